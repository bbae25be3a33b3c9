"""The errors a user can cause, and the exit status of each.

Everything raised on purpose is an RlcorrError; any other exception is a fault of rlcorr's and keeps its traceback.  The
command line turns an RlcorrError into two lines on stderr (`cli/main.py`).
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches


class RlcorrError(Exception):
    """What is wrong and where (`message`), then what to type (`hint`).

    exit_status: the status the process ends with (2 usage, 3 data, 4 output).
    """

    exit_status = 70

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self._raised = message, hint

    def word(self, words: Callable[[str], str]) -> None:
        """Say message and hint through `words`, which takes them as they were raised: they may name flags."""
        self.message, self.hint = map(words, self._raised)
        self.args = (self.message,)


class UsageError(RlcorrError):
    """An unknown preset, a bad threshold, options that contradict each other."""

    exit_status = 2


class DataError(RlcorrError):
    """A dump that cannot be used: unreadable, a missing column, unequal lengths, non-finite values."""

    exit_status = 3


class OutputError(RlcorrError):
    """A result that could not be written."""

    exit_status = 4


def not_one_of(name: str, value: object, choices: Iterable[str]) -> UsageError:
    """The error for an option's value that is none of its choices."""
    allowed = tuple(choices)
    message = f"{name} must be one of {', '.join(allowed)}, got '{value}'."
    return UsageError(message, f"Try {nearest(str(value), allowed, 1)}.")


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """The known names closest to a mistyped one, as text: 'a, b'; all of them when none is close.

    At most twelve names, so that an error stays two lines.
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=n, cutoff=0.5) or names
    return ", ".join(close[:12]) + (", …" if len(close) > 12 else "")
