"""Bytes of JSON lines: plain, gzip or zstd, from a file or from standard input, cut at line ends.

A range of a plain file owns the lines that begin past its start, up to and including one that begins at its end (and
the file's first line, if it starts at 0).  So ranges that share their ends read every line once.
"""

import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.disk import CUT_SHORT
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import STDIN, shown
from rlcorr_cli.reading.formats import GZIP, ZSTD

BLOCK_BYTES = 16 << 20
PIECE_BYTES = 1 << 18
"""Taken at once of a file on a disk: more would leave the processor's cache before they are lines."""
HEAD_BYTES = 1 << 20
LINE_LIMIT = 128 << 20
COMPRESSIONS: dict[bytes, str] = dict.fromkeys(GZIP, "gzip") | dict.fromkeys(ZSTD, "zstd")
BOM = b"\xef\xbb\xbf"


class Readable(Protocol):
    """A source of bytes; read may come up short, and is empty only at the end."""

    def read(self, n: int, /) -> bytes:
        """At most n bytes."""
        ...


@frozen
class Block:
    """Lines with their ends, blank ones too.  lines_before: how many lines lie between byte `start` of the file and
    these; where the block is a range of a file nobody has counted the lines before it, and `start` is the range's
    own."""

    lines: list[bytes]
    lines_before: int = 0
    start: int = 0

    @cached_property
    def numbered(self) -> dict[int, bytes]:
        """Lines that are not blank, by their number from 1."""
        numbered = enumerate(self.lines, self.lines_before + 1)
        return {number: line for number, line in numbered if line and not line.isspace()}


class Chained(io.RawIOBase):
    """Bytes taken off a stream, then the rest of it."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        """`head` comes first; neither is copied."""
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, n: int = -1, /) -> bytes:
        """At most n bytes, never across the seam."""
        if not self._head:
            return self._rest.read(n)
        taken, self._head = self._head[:n], self._head[n:]
        return taken

    def readinto(self, buffer: Any, /) -> int:
        """The same into a buffer."""
        taken = self.read(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)


class Stdin(str):
    """Standard input, decompressed, in the place of a path: its head may be looked at, but it is read through only
    once."""

    _rest: Readable
    _taken: bytes
    _used: bool

    def __new__(cls, stream: BinaryIO) -> "Stdin":
        """Takes the head off `stream`, so it waits for the first HEAD_BYTES or the end."""
        name = super().__new__(cls, STDIN)
        with reading(STDIN):
            name._rest = _decompressed(stream)
            name._taken = _take_head(name._rest, STDIN)
        name._used = False
        return name

    @property
    def head(self) -> Block:
        """As `head` of a file."""
        return _whole_lines(self._taken)

    def opened(self) -> Readable:
        """All of it from the start; a second call is a UsageError, since the bytes are gone."""
        if self._used:
            raise UsageError("Standard input can be read only once.", "Save it to a file and name that.")
        self._used = True
        taken, self._taken = self._taken, b""
        return Chained(taken, self._rest)


@contextmanager
def reading(path: str) -> Generator[None]:
    """What goes wrong between a file and its bytes is the dump's fault, not ours."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        hint = CUT_SHORT
        if "too much memory" in str(error):  # what zstd says of a window beyond 128 MiB
            hint = "Compress it again with a window of 128 MiB at most, as zstd does unless told otherwise."
        explained = filesystem(path).explained(path, error)
        raise explained or DataError(f"{shown(path)} cannot be read: {error}.", hint) from error


def head(path: str) -> Block:
    """The first whole lines, decompressed: about HEAD_BYTES, or one line if that is longer."""
    if isinstance(path, Stdin):
        return path.head
    with reading(path), filesystem(path).open(path) as file:
        return _whole_lines(_take_head(_decompressed(file), path))


def is_compressed(path: str) -> bool:
    """Whether the first bytes are those of gzip or zstd, whatever the name says."""
    with reading(path), filesystem(path).open(path) as file:
        return _compression(file.read(4)) is not None


def blocks(path: str, part: tuple[int, int] | None) -> Iterator[Block]:
    """Whole lines, about BLOCK_BYTES at a time; for a range, the lines it owns as one block."""
    if isinstance(path, Stdin):
        with reading(path):
            yield from _stream(path.opened(), path)
        return
    with reading(path), filesystem(path).open(path) as file:
        if part:
            yield _range(file, path, *part)
        else:
            yield from _stream(_decompressed(file), path)


def _range(file: Any, path: str, start: int, end: int) -> Block:
    # A line belongs to the range in which the line before it ends: so a range begins past the first line end at or
    # after its start, and reads on to the one at or after its end, even where its end is just where a line begins.
    file.seek(start)
    at_once = file.read(end - start) if filesystem(path).remote else b""  # by one request
    buffered = io.BufferedReader(Chained(at_once, file), PIECE_BYTES)
    first = start + len(_bounded(buffered.readline(LINE_LIMIT), path)) if start else 0
    return Block(_lines(buffered, path, end - first, first == 0), start=first)


def _stream(stream: Any, path: str) -> Iterator[Block]:
    buffered, n_lines = io.BufferedReader(stream, PIECE_BYTES), 0
    while lines := _lines(buffered, path, BLOCK_BYTES, n_lines == 0):
        yield Block(lines, n_lines)
        n_lines += len(lines)


def _lines(stream: Any, path: str, n_bytes: int, at_start: bool) -> list[bytes]:
    """The lines that begin within so many bytes from here, or just behind them."""
    lines: list[bytes] = []
    while n_bytes >= 0 and (line := _bounded(stream.readline(LINE_LIMIT), path)):
        n_bytes -= len(line)
        lines.append(line)
    if at_start and lines:
        lines[0] = lines[0].removeprefix(BOM)
    return lines


def _decompressed(raw: Readable) -> Readable:
    start = _read_fully(raw, 4)
    whole = Chained(start, raw)
    compression = _compression(start)
    return whole if compression is None else pa.CompressedInputStream(pa.PythonFile(whole, mode="r"), compression)


def _compression(start: bytes) -> str | None:
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


def _take_head(stream: Readable, path: str) -> bytes:
    taken = _read_fully(stream, HEAD_BYTES)
    while b"\n" not in taken and (more := _read_fully(stream, len(taken))):
        taken = _bounded(taken + more, path)
    return taken


def _whole_lines(taken: bytes) -> Block:
    """`taken` less a last line that may go on; kept where it is all there is, or where the input ended."""
    end = len(taken) if len(taken) < HEAD_BYTES else taken.rfind(b"\n") + 1
    return Block(io.BytesIO(taken[: end or len(taken)].removeprefix(BOM)).readlines())


def _read_fully(stream: Readable, n: int) -> bytes:
    pieces: list[bytes] = []
    while n > 0 and (piece := stream.read(n)):
        pieces.append(piece)
        n -= len(piece)
    return b"".join(pieces)


def _bounded(line: bytes, path: str) -> bytes:
    if len(line) >= LINE_LIMIT:
        raise DataError(
            f"{shown(path)} has a line of over 128 MiB.", "JSON lines are one object per line, one per row."
        )
    return line
