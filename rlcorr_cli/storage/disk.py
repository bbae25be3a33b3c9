"""The disks of this machine, by `os`."""

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rlcorr_cli.errors import DataError, nearest
from rlcorr_cli.places import Stamp
from rlcorr_cli.storage.contents import Contents
from rlcorr_cli.storage.globs import on_disk
from rlcorr_cli.storage.protocol import Status
from rlcorr_cli.storage.refusals import unreadable
from rlcorr_cli.storage.times import utc_minute

Made = TypeVar("Made")


class Disk:
    """As FileSystem says.  A file is what its device and inode are, whatever its names."""

    remote = False

    def status(self, path: str) -> Status:
        try:
            status = os.stat(path)
        except FileNotFoundError as error:
            raise _missing(path) from error
        except OSError as error:
            raise unreadable(path, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path} is not a regular file.", "Pipe JSON lines to rlcorr and name the dump -.")
        return Status(status.st_size, _stamp(status), utc_minute(status.st_mtime))

    def stamp(self, path: str) -> Stamp:
        try:
            return _stamp(os.stat(path))
        except OSError as error:
            raise unreadable(path, error) from error

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_there(self, path: str) -> bool:
        return os.path.lexists(path)

    def below(self, directory: str) -> Iterator[str]:
        """Linked folders count, each folder once, so a loop ends."""

        def refuse(error: OSError) -> None:
            raise unreadable(error.filename or directory, error) from error

        seen: set[tuple[int, int]] = set()
        for top, below, names in os.walk(directory, onerror=refuse, followlinks=True):
            status = os.stat(top)
            if (status.st_dev, status.st_ino) in seen:
                below.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            # Links last, so that a folder that is there itself is not called by the name of a link to it.
            below[:] = sorted(
                (name for name in below if not name.startswith((".", "_"))),
                key=lambda name: (os.path.islink(os.path.join(top, name)), name),
            )
            yield from (os.path.join(top, name) for name in names if not name.startswith((".", "_")))

    def matches(self, pattern: str) -> tuple[set[str], set[str]]:
        hits = list(on_disk(pattern))
        if not any(part.startswith("_") for part in Path(pattern).parts):
            hits = [path for path in hits if not any(part.startswith("_") for part in Path(path).parts)]
        named = {os.path.normpath(hit) for hit in hits if not os.path.isdir(hit)}
        return named, {os.path.normpath(path) for hit in hits if os.path.isdir(hit) for path in self.below(hit)}

    def each_once(self, paths: Iterable[str]) -> list[str]:
        """Without links to files that are there, too."""
        by_file: dict[str, str] = {}
        for path in sorted(paths, key=os.path.islink):
            by_file.setdefault(self.identity(path), path)
        return list(by_file.values())

    def identity(self, path: str) -> str:
        return os.path.realpath(path)

    def open(self, path: str) -> BinaryIO:
        try:
            return open(path, "rb")
        except OSError as error:
            raise unreadable(path, error) from error

    @contextmanager
    def arrow_file(self, path: str) -> Generator[Any]:
        """Opened by the bytes of its name: Arrow takes one for UTF-8, which it need not be."""
        import pyarrow as pa

        with pa.OSFile(os.fsencode(path)) as file:
            yield file

    def contents(self, path: str) -> Contents:
        with self.open(path) as file:
            return Contents(path, file)

    def remembered(self, path: str, make: Callable[[], Made]) -> Made:
        """Nothing is kept: the system keeps what was read."""
        return make()

    def explained(self, path: str, error: Exception) -> DataError | None:
        return None


DISK = Disk()


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _missing(path: str) -> DataError:
    folder = Path(path).parent
    names: list[str] = []
    with suppress(OSError):  # no directory, or one that may not be listed
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    if names:
        return DataError(f"{path}: no such file.", f"Similar names in {folder}: {nearest(Path(path).name, names)}.")
    return DataError(
        f"{path}: no such file.",
        f"No file is to be seen in {folder}." if os.path.isdir(folder) else f"No directory {folder} either.",
    )
