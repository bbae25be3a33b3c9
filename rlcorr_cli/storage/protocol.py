"""What reading asks of the place where a file lies."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeVar

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import Stamp
from rlcorr_cli.storage.contents import Contents

ArrowFile: TypeAlias = Any
"""A pyarrow.NativeFile: loading pyarrow is left to who reads."""
Made = TypeVar("Made")


@dataclass(frozen=True)
class Status:
    """A file that can be read: its size, which state of it that is, and when it was last changed, as `times` has it;
    None where nobody knows."""

    n_bytes: int
    stamp: Stamp
    modified: str | None = None


class FileSystem(Protocol):
    """A place of files.  Paths are whole: a path of the disk, or a URI.

    remote: whether a request takes long, so that a few large ones are better than many.
    """

    @property
    def remote(self) -> bool: ...

    def status(self, path: str) -> Status:
        """Size and state of a file; a DataError where there is none that can be read."""
        ...

    def stamp(self, path: str) -> Stamp:
        """Which state of it is there now; a DataError where there is none."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether files lie below it."""
        ...

    def is_file(self, path: str) -> bool:
        """Whether it is a file, of the disk or a whole object."""
        ...

    def is_there(self, path: str) -> bool:
        """Whether anything has this name."""
        ...

    def below(self, directory: str) -> Iterable[str]:
        """All files below, but those whose name or folder begins with `.` or `_`."""
        ...

    def matches(self, pattern: str) -> tuple[set[str], set[str]]:
        """Files that a glob hits, and files below the directories that it hits."""
        ...

    def each_once(self, paths: Iterable[str]) -> list[str]:
        """Without second names of the same file, in any order."""
        ...

    def identity(self, path: str) -> str:
        """The same text for all names of one file."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Its bytes, from the first; may seek."""
        ...

    def arrow_file(self, path: str) -> AbstractContextManager[ArrowFile]:
        """Its bytes for Arrow's readers, at any place."""
        ...

    def contents(self, path: str) -> Contents:
        """Its bytes on a disk, at any place."""
        ...

    def remembered(self, path: str, make: Callable[[], Made]) -> Made:
        """What `make` reads of a file, which may be kept for as long as the file is the same."""
        ...

    def explained(self, path: str, error: Exception) -> DataError | None:
        """What is wrong with the place rather than with the file's contents, if it is that."""
        ...
