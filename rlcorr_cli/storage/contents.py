"""A file's bytes at any place, read when they are asked for.

No file is mapped: where a mapped one is cut short meanwhile, the system ends the process, without a word.  What is read
and comes up short is an error that names the file.
"""

import os
import weakref
from typing import BinaryIO, TypeAlias

from rlcorr_cli.storage.refusals import changed, unreadable


class Contents:
    """A file's bytes, sliced as a memoryview is: of what no slice holds, nothing is read.

    Slices of one step alone.  Several threads may take them at once.
    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        """path: as messages name it.  file: may be closed; its bytes stay as long as anyone has this."""
        try:
            number = os.dup(file.fileno())
        except OSError as error:
            raise unreadable(path, error) from error
        weakref.finalize(self, os.close, number)
        self._path, self._number = path, number
        self._n_bytes = os.fstat(number).st_size

    def __len__(self) -> int:
        return self._n_bytes

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(self._n_bytes)
        pieces: list[bytes] = []
        while start < stop:
            try:
                piece = os.pread(self._number, stop - start, start)
            except OSError as error:
                raise unreadable(self._path, error) from error
            if not piece:
                raise changed(self._path)
            pieces.append(piece)
            start += len(piece)
        return memoryview(b"".join(pieces))


AnyBytes: TypeAlias = memoryview | Contents
"""Bytes in memory, or in a file."""
