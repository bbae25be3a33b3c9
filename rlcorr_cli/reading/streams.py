"""Bytes of JSON lines: plain, gzip or zstd, from a file or from standard input, cut at line ends.

A range of a plain file owns the lines that begin past its start, up to and including one that begins at its end (and
the file's first line, if it starts at 0).  So ranges that share their ends read every line once.
"""

import io
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, BinaryIO

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
    """Bytes taken off a stream, then the rest of it; whoever opened the stream closes it.  read: reads the rest."""

    def __init__(self, head: bytes, read: Callable[[int], bytes]) -> None:
        self._head, self._read = memoryview(head), read  # a part of a view is no copy

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """As many bytes as fit, never across the seam."""
        taken = self._head[: len(buffer)] or self._read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


class Stdin(str):
    """Standard input, decompressed, in the place of a path: its head may be looked at, but it is read through only
    once."""

    head: Block
    _rest: io.BufferedReader
    _taken: list[bytes] | None

    def __new__(cls, stream: BinaryIO) -> "Stdin":
        """Takes the head off `stream`, so it waits for the first HEAD_BYTES or the end."""
        name = super().__new__(cls, STDIN)
        with reading(STDIN):
            # What has come is taken, however little: a read that waits for more does not hear a signal in between.
            name._rest = _decompressed(stream, getattr(stream, "read1", stream.read))
            name._taken, name.head = _first_lines(name._rest, STDIN)
        return name

    def blocks(self) -> Iterator[Block]:
        """All of it from the start; a second call is a UsageError, since the bytes are gone."""
        taken, self._taken = self._taken, None
        if taken is None:
            raise UsageError("Standard input can be read only once.", "Save it to a file and name that.")
        return _stream(self._rest, self, taken)


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
        _, head = _first_lines(_decompressed(file), path)
    return head


def is_compressed(path: str) -> bool:
    """Whether the first bytes are those of gzip or zstd, whatever the name says."""
    with reading(path), filesystem(path).open(path) as file:
        return _compression(file.read(4)) is not None


def blocks(path: str, part: tuple[int, int] | None) -> Iterator[Block]:
    """Whole lines, about BLOCK_BYTES at a time; for a range, the lines it owns as one block."""
    if isinstance(path, Stdin):
        with reading(path):
            yield from path.blocks()
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
    buffered = io.BufferedReader(Chained(at_once, file.read), PIECE_BYTES)
    first = start + len(_bounded(buffered.readline(LINE_LIMIT), path)) if start else 0
    return Block(_lines(buffered, path, end - first, first == 0), start=first)


def _stream(stream: io.BufferedReader, path: str, taken: Sequence[bytes] = ()) -> Iterator[Block]:
    """taken: its first lines, where these are read already."""
    n_lines = 0
    while lines := [*taken, *_lines(stream, path, BLOCK_BYTES - sum(map(len, taken)), not (taken or n_lines))]:
        yield Block(lines, n_lines)
        n_lines, taken = n_lines + len(lines), ()


def _first_lines(stream: io.BufferedReader, path: str) -> tuple[list[bytes], Block]:
    """Lines that are taken off a stream, and those of them that lie in its first HEAD_BYTES, or in as many times more
    as the first line takes."""
    lines, n_bytes = _lines(stream, path, 0, True), HEAD_BYTES
    while lines and len(lines[0]) > n_bytes:
        n_bytes *= 2
    lines += _lines(stream, path, n_bytes - sum(map(len, lines)), False)
    return lines, Block(lines[:-1] if sum(map(len, lines)) > n_bytes else lines)


def _lines(stream: Any, path: str, n_bytes: int, at_start: bool) -> list[bytes]:
    """The lines that begin within so many bytes from here, or just behind them."""
    lines: list[bytes] = []
    while n_bytes >= 0 and (line := _bounded(stream.readline(LINE_LIMIT), path)):
        n_bytes -= len(line)
        lines.append(line)
    if at_start and lines:
        lines[0] = lines[0].removeprefix(BOM)
    return lines


def _decompressed(raw: BinaryIO, read: Callable[[int], bytes] | None = None) -> io.BufferedReader:
    """read: reads all but the first bytes, where not by `raw.read`."""
    start = raw.read(4)
    whole, compression = Chained(start, read or raw.read), _compression(start)
    stream: Any = pa.CompressedInputStream(pa.PythonFile(whole, mode="r"), compression) if compression else whole
    return io.BufferedReader(stream, PIECE_BYTES)


def _compression(start: bytes) -> str | None:
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


def _bounded(line: bytes, path: str) -> bytes:
    if len(line) >= LINE_LIMIT:
        raise DataError(
            f"{shown(path)} has a line of over 128 MiB.", "JSON lines are one object per line, one per row."
        )
    return line
