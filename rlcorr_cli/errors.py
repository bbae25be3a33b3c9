"""The errors a user can cause, and the exit status of each.

Everything raised on purpose is an RlcorrError; any other exception is a fault of rlcorr's and keeps its traceback.  The
command line turns an RlcorrError into two lines on stderr (`commands/main.py`).

An error names an option as data, by its name in Python and its value: `⟦device cpu⟧` is --device cpu, and for Python
device="cpu" (`for_python` of `commands/declared.py`); `⟦force True⟧` is --force, `⟦output⟧` -o,
`⟦inspect(DUMP)⟧ ⟦worst 5⟧` a command.
"""

import re
import reprlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from rlcorr_cli.places import without_secrets

LONGEST = 600
"""Characters of a message; names and values come from outside, and may be of any length."""
LONGEST_VALUE = 80
MOST_LISTED = 12
"""With more choices than this an error names the nearest alone."""
LONGEST_NAME = 100
"""Beyond this nobody mistypes a name, and looking for the nearest takes long."""


class RlcorrError(Exception):
    """What is wrong and where (`message`), then what to type (`hint`): said with flags, until `word` says it otherwise.

    what, do: both as they were raised, with options as data, for an error that is made of this one.  exit_status: the
    status the process ends with (1 a fault that stops, 2 usage, 3 data, 4 output).
    """

    exit_status = 70

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__()
        self.what, self.do = what, do
        self.word(as_flags)

    def word(self, words: Callable[[str], str]) -> None:
        """Make message and hint of what was raised; `words` turns each option into text: `as_flags`, `as_arguments`."""
        self.message, self.hint = cut(words(self.what)), cut(words(self.do))
        self.args = (self.message,)


class UsageError(RlcorrError):
    """An unknown preset, a bad threshold, options that contradict each other."""

    exit_status = 2


class DataError(RlcorrError):
    """A dump, saved totals or a report that cannot be used: unreadable, no such column, values that are not finite."""

    exit_status = 3


class PartOfStep(DataError):
    """A part of what a framework writes of a step, of which the rest may come."""


class UnfinishedStep(DataError):
    """A step that is still being written, by what its framework says."""


class NoRollouts(DataError):
    """A framework's file that tells of a run, without log-probs."""


class NoTrainedPolicy(PartOfStep):
    """A dump of the rollout policy's log-probs alone."""


class NoRolloutColumn(DataError):
    """A dump in which no column is called as the rollout policy's log-probs are."""


class NoTrainedColumn(DataError):
    """The same of the trained policy's."""


class NoCurrentPolicy(DataError):
    """A dump without the policy after updates, where bypass mode compares that."""


class FaultError(RlcorrError):
    """A dump whose rows or columns are wrong, of which no training set is written."""

    exit_status = 1


class OutputError(RlcorrError):
    """A result that could not be written."""

    exit_status = 4


_OPTION = re.compile(r"⟦(?P<name>[a-z_]+)(?: (?P<value>[^⟧]*))?⟧")
_COMMAND = re.compile(r"⟦(?P<name>[a-z]+)\((?P<dumps>[A-Z, ]+)\)⟧(?P<options>(?: ⟦[a-z_]+ [^⟧]*⟧)*)")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)")
_PAIR = re.compile(r"(?P<key>[\w/]+)=(?P<value>.+)", re.DOTALL)


def as_flags(text: str) -> str:
    """A text that names options as a command line has them: '⟦device cpu⟧' as '--device cpu'."""
    text = _COMMAND.sub(lambda call: f"rlcorr {call['name']} {call['dumps'].replace(',', '')}{call['options']}", text)
    return _OPTION.sub(_as_flag, text)


def _as_flag(option: re.Match[str]) -> str:
    flag = "-o" if option["name"] == "output" else f"--{option['name'].rstrip('_').replace('_', '-')}"
    return flag if option["value"] in (None, "True") else f"{flag} {option['value']}"


def as_arguments(text: str) -> str:
    """The same as Python has them: '⟦device cpu⟧' as 'device="cpu"'."""
    return _OPTION.sub(_as_argument, _COMMAND.sub(_as_call, text))


def _as_call(command: re.Match[str]) -> str:
    options = map(_as_argument, _OPTION.finditer(command["options"]))
    return f"{command['name']}({', '.join((command['dumps'].replace('DUMP', 'dumps'), *options))})"


def _as_argument(option: re.Match[str]) -> str:
    return option["name"] if option["value"] is None else f"{option['name']}={_as_value(option['value'])}"


def _as_value(text: str) -> str:
    """A value as Python writes it, which it may be already."""
    if pair := _PAIR.fullmatch(text):
        return f'{{"{pair["key"]}": {_as_value(pair["value"])}}}'
    return text if text == "True" or text[:1] in ("'", '"') or _NUMBER.fullmatch(text) else f'"{text}"'


@contextmanager
def naming(where: str) -> Generator[None]:
    """Let what goes wrong say where it is: 'dump.parquet: there is no column ...'."""
    try:
        yield
    except RlcorrError as error:
        raise type(error)(f"{where}: {error.what}", error.do) from error


def address_space() -> int | None:
    """Bytes of address space that `ulimit -v` leaves a process; None without a limit."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def require_address_space(n_bytes: int) -> None:
    """A MemoryError where there is less for libraries that are about to be loaded: half-way through, some end the
    process without a word, and some never end."""
    limit = address_space()
    if limit is not None and limit < n_bytes:
        raise MemoryError(f"{limit / 1e6:,.0f} MB of address space, of which libraries take {n_bytes / 1e6:,.0f}")


def not_one_of(name: str, value: object, choices: Iterable[str]) -> UsageError:
    """The error for an option's value that is none of its choices."""
    allowed = tuple(choices)
    if len(allowed) > MOST_LISTED:
        return UsageError(f"{name} does not know {shortened(value)}.", f"Try {nearest(str(value), allowed)}.")
    message = f"{name} must be one of {', '.join(allowed)}, got {shortened(value)}."
    return UsageError(message, f"Try {nearest(str(value), allowed, 1)}.")


def contradiction(first: str, second: str, hint: str) -> UsageError:
    """The error for two options that contradict each other."""
    return UsageError(f"{first} and {second} contradict each other.", hint)


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """The known names closest to a mistyped one, as text: 'a, b'; all of them when none is close.

    At most MOST_LISTED names, the first of them by the alphabet, so that an error stays two lines.
    """
    from difflib import get_close_matches

    names = sorted(known)
    short = [known_name for known_name in names if len(known_name) <= LONGEST_NAME]
    close = (get_close_matches(name, short, n=n, cutoff=0.5) if len(name) <= LONGEST_NAME else []) or names
    shown = (shortened(known_name, quotes=False) for known_name in close[:MOST_LISTED])
    return ", ".join(shown) + (", …" if len(close) > MOST_LISTED else "")


def plural(count: int, noun: str) -> str:
    """A count with its noun: '1 token', '2,000 tokens'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cut(text: str, longest: int = LONGEST) -> str:
    """A text without secrets, of at most about `longest` characters: its start and its end, and between them how many
    it had."""
    text = without_secrets(text)
    if len(text) <= longest:
        return text
    return f"{text[: longest * 2 // 3]} … ({len(text):,} characters) … {text[-(longest // 4) :]}"


def shortened(value: object, longest: int = LONGEST_VALUE, *, quotes: bool = True) -> str:
    """A value as messages show it: a short piece, however much it holds.  quotes: whether text stands in quotes."""
    if isinstance(value, str):
        text = cut(value, longest)
        return repr(text) if quotes else text
    return cut(_REPR.repr(value), longest)


class _Repr(reprlib.Repr):
    def repr_str(self, x: str, level: int) -> str:
        """Half of a secret is none that `cut` would know."""
        return super().repr_str(without_secrets(x), level)

    def repr_int(self, x: int, level: int) -> str:
        """Python refuses to write integers of more than 4,300 digits."""
        return super().repr_int(x, level) if x.bit_length() < 4096 else f"<an integer of {x.bit_length():,} bits>"


_REPR = _Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxdict, _REPR.maxstring, _REPR.maxlong = 2, 4, 4, 40, 40


def plain(value: float) -> str:
    """The shortest digits that are this number."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)
