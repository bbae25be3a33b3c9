"""What a document beside a dump may hold, and what is said of one that holds more, or is not of its form.

`documents.py` reads them; `yaml_files.py` counts while it composes.
"""

from dataclasses import dataclass
from typing import Any

from rlcorr_cli.errors import UsageError, shortened

MOST_BYTES = 1 << 20
"""A whole trainer's config has some ten thousand."""
MOST_VALUES = 20_000
MOST_DEPTH = 64
LARGEST_INTEGER = 10**4000
"""Python refuses to write integers of more than 4,300 digits, be they in a message."""


@dataclass(frozen=True)
class Document:
    """What a document holds, and notes on scalars of it that may not mean what they show."""

    data: Any
    notes: tuple[str, ...] = ()


def not_valid(form: str, error: ValueError) -> UsageError:
    """The error for a text that the parser of a form does not take."""
    # Python gives a length, and its own advice, for integers of more than 4,300 digits.
    return too_large() if "int_max_str_digits" in str(error) else invalid(form, str(error))


def invalid(form: str, problem: str) -> UsageError:
    """The error for a text that is not of its form."""
    return UsageError(f"not valid {form}: {problem}.", "Fix the file.")


def twice(key: object, line: int | None = None) -> UsageError:
    """The error for a mapping that has a key twice.  line: that of the second, if it is known."""
    where = "" if line is None else f", again in line {line}"
    return UsageError(f"the key {shortened(key)} comes twice in one mapping{where}.", "Keep one of the two.")


def too_many() -> UsageError:
    """The error for a document of too many values."""
    return UsageError(f"it comes to more than {MOST_VALUES:,} values.", "Name a file that holds the options alone.")


def too_deep() -> UsageError:
    """The error for a document that is nested too deep."""
    return UsageError(f"it is nested more than {MOST_DEPTH} deep.", "Name a file that holds the options alone.")


def too_large() -> UsageError:
    """The error for a number that cannot be shown, or is beyond every float."""
    return UsageError("it holds a number that is too large.", "Use null for no bound.")
