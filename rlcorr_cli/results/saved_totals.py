"""A file of saved totals, `.rlcorr`: the exact additive totals of a run, which its command adds to others of its kind.

A line with the version of this form, the digest of all that follows it, the length of the first part, and two parts as
`packed.py` has them: a Head, by which a file is known before its totals are read, and the SavedRun of its command.
Nothing is compressed: it would halve a file, and a small one could then take any memory.  A file that was cut short or
changed has another digest, and is refused whole.

A file that grows, which `watch` keeps, says in its first line also how long head and run are.  What was added follows
as records, each with its length and its digest before it; the last is none where writing was cut short.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TypeVar

from rlcorr_cli import __version__
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import located
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.documents import read_bytes
from rlcorr_cli.results.build import report_of
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved_runs import RunTotals, SavedRun
from rlcorr_cli.totals.packed import MalformedError, pack, unpack
from rlcorr_cli.totals.provenance import SCHEMA
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.view import UnknownTotalError

SUFFIX = ".rlcorr"
VERSION = 3
"""Goes up whenever a file comes to be read in another way."""
MOST_BYTES = 1 << 32
AGAIN = f"Write it again with `⟦analyze(DUMP)⟧ ⟦output part{SUFFIX}⟧`."
_NAME = b"rlcorr totals "
_DIGEST, _LENGTH = 32, 8
P = TypeVar("P")
S = TypeVar("S", bound=SavedRun)


@frozen(kw_only=True)
class Head:
    """By which command and release the totals were written, of which files they are, and of which rows, by content."""

    command: str = "analyze"
    release: str
    paths: tuple[str, ...]
    contents: KeySample | None


def content(run: SavedRun, *, grows: bool = False) -> list[bytes]:
    """What a file of a run's totals holds, in pieces.  grows: whether records may be added to it."""
    paths = tuple(source.path for source in run.inputs)
    head = pack(Head(command=run.command, release=__version__, paths=paths, contents=run.contents))
    body = len(head).to_bytes(_LENGTH, "big"), head, pack(run.unplaced())
    length = b" %d" % sum(map(len, body)) if grows else b""
    return [b"%s%d%s\n" % (_NAME, VERSION, length), _digest(*body), *body]


def record(change: object) -> bytes:
    """A dataclass, as it is added to a file that grows."""
    data = pack(change)
    return len(data).to_bytes(_LENGTH, "big") + _digest(data) + data


def holds_totals(path: str) -> bool:
    """Whether a path or URI is called as files of saved totals are."""
    return located(path).lower().endswith(SUFFIX)


def command_of(path: str) -> str:
    """The command whose totals a file holds."""
    return _part(path, Head, _parts(path)[0]).command


def read_head(path: str, kind: type[SavedRun]) -> Head:
    """What the file is of; a UsageError of another command's totals than are asked for."""
    return _checked_head(path, _parts(path)[0], kind)


def _checked_head(path: str, data: memoryview, kind: type[SavedRun]) -> Head:
    head = _part(path, Head, data)
    if head.command != kind.command:
        raise UsageError(
            f"{path} holds totals of `rlcorr {head.command}`, not of `rlcorr {kind.command}`.",
            f"`rlcorr {head.command} {path}` reads them.",
        )
    return head


def read_totals(path: str) -> RunTotals:
    """The totals of `analyze` that a file holds; anything else is an error."""
    run = read_saved(path, RunTotals)
    if not run.measured.totals:
        raise DataError(f"{path} holds no totals.", AGAIN)
    return run


def read_saved(path: str, kind: type[S]) -> S:
    """The totals of a command that a file holds; those of another are a UsageError, anything else a DataError."""
    return _run_and_added(path, kind)[0]


def read_grown(path: str, kind: type[S], change: type[P]) -> tuple[S, list[P]]:
    """The same, and the records that were added to it, in order."""
    run, added = _run_and_added(path, kind)
    return run, [_part(path, change, data) for data in _records(added)]


def _run_and_added(path: str, kind: type[S]) -> tuple[S, memoryview]:
    """What a file holds, and what was added to it, unread."""
    head, body, added = _parts(path)
    _checked_head(path, head, kind)
    run = _part(path, kind, body)
    if run.provenance.schema != SCHEMA:
        raise DataError(f"{path} was written by another release of rlcorr, whose totals mean something else.", AGAIN)
    return run, added


def grouped_totals(path: str, run: S, columns: Sequence[str]) -> S:
    """The same by some of the columns that they are grouped by; a UsageError names the file that lacks one."""
    try:
        return run.grouped_by(columns)
    except UsageError as error:
        raise UsageError(f"{path}: {error.what}", error.do) from None


def report_in(path: str, run: RunTotals) -> Report:
    """The report of what a file holds, whose totals may lack what this release reads."""
    try:
        return replace(report_of(run), totals=run)
    except UnknownTotalError as error:
        raise DataError(f"{path} was written by another release of rlcorr: it has no {error.args[0]}.", AGAIN) from None


def _part(path: str, cls: type[P], data: memoryview) -> P:
    try:
        return unpack(cls, data)
    except MalformedError as error:
        raise DataError(f"{path} {error}.", AGAIN) from None


def _parts(path: str) -> tuple[memoryview, memoryview, memoryview]:
    """Both parts of a file that is whole, and what was added to it."""
    try:
        data = read_bytes(path, MOST_BYTES)
    except UsageError as error:
        raise DataError(f"{path} cannot be read as saved totals: {error.what}", error.do) from None
    first_line, newline, _ = data[:64].partition(b"\n")
    number, grows, length = first_line.removeprefix(_NAME).partition(b" ")
    if not first_line.startswith(_NAME) or not newline or not number.isdigit() or length.isdigit() != bool(grows):
        raise DataError(f"{path} holds no saved totals of rlcorr's.", AGAIN)
    if int(number) != VERSION:
        raise DataError(f"{path} was written by another version of rlcorr: its form is {int(number)}.", AGAIN)
    rest = memoryview(data)[len(first_line) + 1 + _DIGEST :]
    body = rest[: int(length)] if grows else rest
    if _digest(body) != data[len(first_line) + 1 :][:_DIGEST]:
        raise DataError(f"{path} is damaged or cut short: its digest is another.", AGAIN)
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "big")
    return body[_LENGTH:end], body[end:], rest[len(body) :]


def _records(data: memoryview) -> Iterator[memoryview]:
    """Those that are whole, up to the first that is not."""
    while len(data) > _LENGTH + _DIGEST:
        start = _LENGTH + _DIGEST
        end = start + int.from_bytes(data[:_LENGTH], "big")
        if _digest(data[start:end]) != data[_LENGTH:start]:
            return
        yield data[start:end]
        data = data[end:]


def _digest(*body: "bytes | memoryview") -> bytes:
    digest = blake2b(digest_size=_DIGEST)
    for part in body:
        digest.update(part)
    return digest.digest()
