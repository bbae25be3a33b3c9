"""An opened object of a store: its bytes at any place, in few large requests."""

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import Stamp

FIRST_BYTES, MOST_BYTES = 1 << 16, 1 << 23
"""What one request brings at least, at a new place and where a file is read on and on."""
SMALL_BYTES = 1 << 20
"""An object of no more is read whole in one request."""


@dataclass(kw_only=True)
class Kept:
    """An opened file: its size and state were asked for once, and reading at any place needs no more of it.

    modified: when it was last changed, None where the store does not tell.  made: what was read of it and is kept, None
    for nothing yet.  start: its first bytes, or all of a small one, once they were read.
    """

    file: Any
    stamp: Stamp
    modified: str | None = None
    made: Any = None
    start: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def contents(self) -> Any:
        """A file to be read at any place: the opened one, or of a small one another over its bytes."""
        return pa.BufferReader(self.first()) if 0 < self.file.size() <= SMALL_BYTES else self.file

    def first(self) -> bytes:
        """The first bytes, asked for once."""
        size = self.file.size()
        with self.lock:
            if not self.start and size:
                self.start = self.file.read_at(size if size <= SMALL_BYTES else FIRST_BYTES, 0)
        return self.start


class Bytes(io.RawIOBase):
    """A file of Arrow's as one of Python's, with a place of its own: the file itself may have other readers.

    Each request brings twice as much as the one before it, while one place is read after another.
    """

    def __init__(self, kept: Kept, explained: Callable[[Exception], DataError | None]) -> None:
        self._kept, self._file, self._explained, self._at = kept, kept.file, explained, 0
        self._first, self._piece, self._ahead = 0, b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size()}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        if not 0 <= self._at - self._first < len(self._piece):
            goes_on = self._at == self._first + len(self._piece)
            self._ahead = min(2 * self._ahead, MOST_BYTES) if goes_on and self._ahead else FIRST_BYTES
            self._first, self._piece = self._at, self._read(max(self._ahead, len(buffer)))
        start = self._at - self._first
        piece = self._piece[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _read(self, n: int) -> bytes:
        n = min(n, self._file.size() - self._at)
        try:
            if self._at < FIRST_BYTES or self._file.size() <= SMALL_BYTES:
                return self._kept.first()[self._at :]
            return self._file.read_at(n, self._at) if n > 0 else b""
        except (OSError, pa.ArrowException) as error:
            raise self._explained(error) or error from error
