"""Files of a directory that several processes write together, before `staging` gives the directory its name.

A file appears in it whole, under a name that its writer is told: what is written again, because a first writer was
killed, takes the first one's place.  On a disk it is renamed, in a store it is one upload.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rlcorr_cli.atomic import remote
from rlcorr_cli.atomic.staging import sync
from rlcorr_cli.atomic.temporaries import discard


class JointFile:
    """One file on its way into such a directory: write to `file`, then `commit` or `discard`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._place = directory / name
        self._is_remote = remote.is_remote(directory)
        # Two may write the same part at a time, where the first only seemed to be dead.
        self._temporary = self._place if self._is_remote else directory / f".{name}-{os.urandom(8).hex()}"
        self.file: BinaryIO = remote.created(self._place) if self._is_remote else self._temporary.open("xb")

    def commit(self) -> int:
        """Have it whole under its name.  Returns its bytes."""
        n_bytes = self.file.tell()
        self.file.close()
        if not self._is_remote:
            sync(self._temporary)
            os.replace(self._temporary, self._place)
        return n_bytes

    def discard(self) -> None:
        """Leave nothing of it: closing completes an upload, so what came of that is deleted."""
        with suppress(OSError):
            self.file.close()
        if self._is_remote:
            remote.discard(self._place)
        else:
            discard(self._temporary)


def put(directory: Path, name: str, content: bytes) -> None:
    """A whole file."""
    file = JointFile(directory, name)
    try:
        file.file.write(content)
        file.commit()
    except BaseException:
        file.discard()
        raise


def settle(directory: Path, names: Collection[str]) -> list[str]:
    """Take away what is not among the names: what killed writers left.  Returns the names that are missing."""
    is_remote = remote.is_remote(directory)
    there = remote.names_in(directory) if is_remote else os.listdir(directory)
    for name in there:
        if name not in names:
            remote.remove(directory / name) if is_remote else discard(directory / name)
    return sorted({*names} - {*there})
