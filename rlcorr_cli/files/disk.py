"""What reading asks of the place where a file lies, and how a disk of this machine answers, by `os`.

`stores` answers the same questions for URIs.  No file is mapped: where a mapped one is cut
short meanwhile, the system ends the process, without a word.  What is read and comes up short is an error that names
the file.

Globs are looked for folder by folder, so that no more is listed than can match; `**` lists all below.  On a disk
folders may be links to each other (`on_disk`); of a store a listing is asked (`matches`).
"""

import glob
import io
import os
import stat
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from rlcorr_cli.errors import DataError, nearest
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Stamp

Made = TypeVar("Made")
CUT_SHORT = "It may be cut short: write it again."
HALF_WRITTEN = "Is it still being written, or was it cut short?"
"""What to do about a damaged file, and what to ask of one that a framework writes."""


@frozen
class Status:
    """A file that can be read: its size, which state of it that is, and when it was last changed, by `utc_minute`;
    None where nobody knows."""

    n_bytes: int
    stamp: Stamp
    modified: str | None = None


def changed(path: str) -> DataError:
    """Another file, or object, than the one that was found has the name."""
    return DataError(f"{path} was changed while it was read.", "Wait until it is written, or read a copy of it.")


def unreadable(path: str, error: OSError) -> DataError:
    """The system does not let anyone read a file of the disk."""
    return DataError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.")


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


class Placed(io.RawIOBase):
    """So many bytes as a file, with a place in them."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes, self.at = n_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        at = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.n_bytes}[whence] + offset
        if at < 0:
            raise ValueError("before the first byte")
        self.at = at
        return at


class Disk:
    """A place of files: what reading asks of it, as `stores.Store` answers it, too.

    Paths are whole: a path of the disk, or a URI.  A file is what its device and inode are, whatever its names.
    remote: whether a request takes long, so that a few large ones are better than many.
    """

    remote = False

    def status(self, path: str) -> Status:
        """Size and state of a file; a DataError where there is none that can be read."""
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
        """Which state of it is there now; a DataError where there is none."""
        try:
            return _stamp(os.stat(path))
        except OSError as error:
            raise unreadable(path, error) from error

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        """Which state of each file is there now, but of those that are gone; the last of a stamp is when it was
        written."""
        found: dict[str, Stamp] = {}
        for path in paths:
            with suppress(OSError):
                found[path] = _stamp(os.stat(path))
        return found

    def is_directory(self, path: str) -> bool:
        """Whether files lie below it."""
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        """Whether it is a file, of the disk or a whole object."""
        return os.path.isfile(path)

    def is_there(self, path: str) -> bool:
        """Whether anything has this name."""
        return os.path.lexists(path)

    def below(self, directory: str) -> Iterator[str]:
        """All files below, but those whose name or folder begins with `.` or `_`.  Linked folders count, each folder
        once, so a loop ends."""

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
        """Files that a glob hits, and files below the directories that it hits."""
        hits = list(on_disk(pattern))
        if not any(part.startswith("_") for part in Path(pattern).parts):
            hits = [path for path in hits if not any(part.startswith("_") for part in Path(path).parts)]
        named = {os.path.normpath(hit) for hit in hits if not os.path.isdir(hit)}
        return named, {os.path.normpath(path) for hit in hits if os.path.isdir(hit) for path in self.below(hit)}

    def each_once(self, paths: Iterable[str]) -> list[str]:
        """Without second names of the same file, such as links to files that are there, too; in any order."""
        real = cache(os.path.realpath)  # of folders, which many files share
        by_file: dict[str, str] = {}
        links: list[str] = []
        for path in paths:
            if os.path.islink(path):
                links.append(path)
            else:
                folder, name = os.path.split(path)
                by_file.setdefault(os.path.join(real(folder), name), path)
        for path in links:
            by_file.setdefault(self.identity(path), path)
        return list(by_file.values())

    def identity(self, path: str) -> str:
        """The same text for all names of one file."""
        return os.path.realpath(path)

    def open(self, path: str) -> BinaryIO:
        """Its bytes, from the first; may seek."""
        try:
            return open(path, "rb")
        except OSError as error:
            raise unreadable(path, error) from error

    @contextmanager
    def arrow_file(self, path: str) -> Generator[Any]:
        """A pyarrow.NativeFile of its bytes, at any place.  It is opened by the bytes of its name: Arrow takes one for
        UTF-8, which it need not be."""
        import pyarrow as pa

        with pa.OSFile(os.fsencode(path)) as file:
            yield file

    def contents(self, path: str) -> Contents:
        """Its bytes on a disk, at any place."""
        with self.open(path) as file:
            return Contents(path, file)

    def remembered(self, path: str, make: Callable[[], Made]) -> Made:
        """What `make` reads of a file, which may be kept for as long as the file is the same.  Here nothing is: the
        system keeps what was read."""
        return make()

    def forget(self, path: str) -> None:
        """Keep nothing of a file that is not to be read again."""

    def explained(self, path: str, error: Exception) -> DataError | None:
        """What is wrong with the place rather than with the file's contents, if it is that."""
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


def utc_minute(seconds: float) -> str | None:
    """A time since 1970, in seconds; None of one that no calendar holds."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec='minutes')}Z"
    except (ValueError, OverflowError, OSError):
        return None


Listed = Callable[[str, bool], tuple[list[str], list[str]]]
"""The files and the folders in a folder; the second argument says whether those further below count."""


def literal_start(path: str) -> tuple[str, list[str]]:
    """The folder before the first part with a wildcard, and the parts from there."""
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first]), parts[first:]


def matches(folder: str, parts: Sequence[str], listed: Listed) -> tuple[set[str], set[str]]:
    """Files and folders below a folder that a glob's parts hit."""
    first, *rest = parts
    if first == "**":
        files, folders = listed(folder, True)
        return _fitting(files, folder, parts), _fitting(folders, folder, parts)
    files, folders = (_fitting(paths, folder, [first]) for paths in listed(folder, False))
    if not rest:
        return files, folders
    below = [matches(hit, rest, listed) for hit in sorted(folders)]
    return set[str]().union(*(files for files, _ in below)), set[str]().union(*(folders for _, folders in below))


def _fitting(paths: Iterable[str], folder: str, parts: Sequence[str]) -> set[str]:
    return {path for path in paths if _fits(path[len(folder) + 1 :].split("/"), parts)}


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """As `glob` has it: `**` is any number of folders, and a wildcard is not the dot of a hidden name."""
    if not parts:
        return not names
    first, *rest = parts
    if first == "**":
        n_visible = next((i for i, name in enumerate(names) if name.startswith(".")), len(names))
        return any(_fits(names[i:], rest or ["*"]) for i in range(n_visible + 1))
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatchcase(names[0], first) and _fits(names[1:], rest)


def on_disk(pattern: str) -> Iterator[str]:
    """Files and folders of this machine that a glob hits, as `glob` has it, links followed.

    A folder is looked into once for each part of the pattern, whatever its names: a link to a folder above it would
    else lead on and on.  Links come last, so that what lies in a folder is named by that folder's own name.
    """
    root = "/" if pattern.startswith("/") else ""
    pending, seen = deque([(root, pattern[len(root) :].split("/"))]), set[tuple[int, int, int]]()
    while pending:
        folder, parts = pending.popleft()
        first, *rest = parts
        try:
            status = os.stat(folder or ".")
            names = os.listdir(folder or ".") if glob.has_magic(first) else [first]
        except OSError:  # not there, no folder, or not to be listed
            continue
        state = status.st_dev, status.st_ino, len(parts)
        if state in seen:
            continue
        seen.add(state)
        recursive = first == "**"
        if recursive and rest:  # of no folder
            pending.appendleft((folder, rest))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name != first and not _fits([name], ["*" if recursive else first]):
                continue
            if not rest and os.path.lexists(path):
                yield path
            if (rest or recursive) and os.path.isdir(path):
                place = pending.append if os.path.islink(path) else pending.appendleft
                place((path, parts if recursive else rest))
