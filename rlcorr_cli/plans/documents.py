"""Documents that stand beside a dump: plan files, rules files, frameworks' configs, saved reports.

All are read here, from a disk or a store, because the same can be wrong with each: it is a pipe that never ends, it is
larger than it can usefully be, it says a thing twice.  A reason is raised as a UsageError without the file's name,
which callers add.  JSON is here; `files.py` reads TOML, too, and `yaml_files.py` YAML.

Limits are of what a document comes to, aliases and merges of YAML expanded, so that nothing that is later done with one
(validating it, showing a part of it) takes long.
"""

import json
import os
import stat
from typing import Any

from rlcorr_cli.errors import DataError, UsageError, shortened
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Uri

MOST_BYTES = 1 << 20
"""A whole trainer's config has some ten thousand."""
MOST_VALUES = 20_000
MOST_DEPTH = 64
LARGEST_INTEGER = 10**4000
"""Python refuses to write integers of more than 4,300 digits, be they in a message."""


@frozen
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


def read_bytes(path: str, most_bytes: int = MOST_BYTES) -> bytes:
    """What a regular file holds.  path: of the disk, or a URI as it is typed."""
    if "\0" in path:
        raise UsageError("its name holds a NUL.", "Name a file that can be read.")
    place = located(path)
    try:
        if isinstance(place, Uri):
            files = filesystem(place)
            with files.open(place) as file:
                content = file.read(min(most_bytes + 1, files.status(place).n_bytes))
        else:
            content = _regular_file(place, most_bytes + 1)
    except OSError as error:
        raise UsageError(f"{error.strerror or error}.", "Name a file that can be read.") from None
    except DataError as error:  # of a store, which begins with the file's name
        raise UsageError(error.what.removeprefix(f"{place}: "), error.do) from None
    if len(content) > most_bytes:
        raise UsageError(f"it is larger than {most_bytes:,} bytes.", "Name a smaller one.")
    return content


def read_text(path: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a regular file."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start:,} is not UTF-8.", "Save it as UTF-8.") from None


def _regular_file(path: str, n_bytes: int) -> bytes:
    """The first bytes of a regular file."""
    # Opening a pipe would wait for someone to write to it, were it not for O_NONBLOCK.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("it is not a regular file.", "Write it to a file, and name that.")
        with open(descriptor, "rb", closefd=False) as file:
            # What is asked for is allocated, be there that much or not; files of /proc say that they have no bytes.
            return file.read(min(n_bytes, max(status.st_size, MOST_BYTES) + 1))
    finally:
        os.close(descriptor)


def parse_json(text: str, **more: Any) -> Any:
    """What a text in JSON holds.  more: arguments of `json.loads`."""
    try:
        return json.loads(text, object_pairs_hook=_once_each, **more)
    except UsageError:
        raise
    except ValueError as error:  # JSONDecodeError, or an integer of too many digits
        raise not_valid("JSON", error) from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each of whose keys comes once."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        raise twice(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return mapping
