"""The outputs of one run: each is written under a temporary name beside its place, and all get their names together.

Whoever reads a place sees the old content or the new; a failure or an interrupt leaves nothing behind, and a kill no
more than temporaries, which the next run removes.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rlcorr_cli.atomic import remote
from rlcorr_cli.atomic.destinations import Destination
from rlcorr_cli.atomic.renaming import exchange, name_new
from rlcorr_cli.atomic.temporaries import discard, temporary_name
from rlcorr_cli.errors import OutputError

UNSYNCED = (errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
"""What is answered where a directory may not be opened, or cannot be flushed: it can be written to all the same."""

MEANWHILE = "was written by another run meanwhile"


_has_begun = False


def has_published() -> bool:
    """Whether this process has begun to give outputs their names."""
    return _has_begun


@dataclass(frozen=True, kw_only=True)
class _Staged:
    """What is at `temporary` is meant for `place`; goes: there is nothing, and what has the place is taken away.

    hidden: of a place in a store, the name beside it that the upload has; where others upload, `temporary` is that.
    """

    destination: Destination
    place: Path
    temporary: Path
    goes: bool = False
    hidden: Path | None = None

    @property
    def is_here(self) -> bool:
        """Whether the temporary is on the disk."""
        return self.temporary != self.hidden


class Staging:
    """A context around a run's writing: what was not published is discarded at its end."""

    def __init__(self) -> None:
        self._staged: list[_Staged] = []
        self._new_directories: dict[Path, Path] = {}
        self._uploaded: set[Path] = set()

    def __enter__(self) -> "Staging":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for staged in self._staged:
            self._discard(staged)
        self._staged.clear()
        self._uploaded.clear()
        self._new_directories.clear()

    def add(self, destination: Destination) -> Path:
        """The name to write the destination under: to be opened as new, or made as a directory."""
        place = destination.place
        missing = None if remote.is_remote(place) else _topmost_missing(place.parent)
        if missing is None or not destination.makes_parents:
            return self._stage(destination, place)
        # A directory that is new appears with all that is in it.
        if missing not in self._new_directories:
            above = Destination(path=missing, option=destination.option, directory=True)
            self._new_directories[missing] = self._stage(above, missing)
        temporary = self._new_directories[missing] / place.relative_to(missing)
        temporary.parent.mkdir(parents=True, exist_ok=True)
        return temporary

    def write(self, destination: Destination, content: bytes | Iterable[bytes | memoryview], within: str = "") -> None:
        """Stage a file, whole or in pieces.

        within: its name in the destination, where that is a directory for it alone.
        """
        with _said(destination):
            temporary = self.add(destination)
            if destination.directory:
                temporary.mkdir()
                temporary /= within
            with temporary.open("xb") as file:
                file.writelines((content,) if isinstance(content, bytes) else content)
            sync(temporary)

    def share(self, destination: Destination) -> Path:
        """The directory, made now, into which other processes put a destination's files with `atomic.joint`; of one in
        a store it is there."""
        place = destination.place
        if remote.is_remote(place):
            hidden = temporary_name(place)
            self._staged.append(_Staged(destination=destination, place=place, temporary=hidden, hidden=hidden))
            self._uploaded.add(hidden)
            return hidden
        with _said(destination):
            temporary = self.add(destination)
            temporary.mkdir()
        return temporary

    def withdraw(self, temporary: Path) -> None:
        """Discard what was staged under this name, as if it had never been."""
        for staged in [staged for staged in self._staged if staged.temporary == temporary]:
            self._discard(staged)
            self._staged.remove(staged)

    def remove(self, destination: Destination) -> None:
        """Stage that nothing is there: what an earlier run wrote goes as this one's outputs come."""
        self._stage(destination, destination.place, goes=True)

    def publish(self) -> None:
        """Give all outputs their names, in the order in which they were added."""
        # What can be refused is refused before the first has its name.
        for staged in self._staged:
            with _said(staged.destination):
                if not staged.goes and staged.is_here and staged.temporary.is_dir():
                    _sync_directory(staged.temporary)
                if staged.destination.refuse(staged.place) and not staged.destination.overwrite:
                    raise staged.destination.taken(MEANWHILE)
                self._upload(staged)
        global _has_begun
        _has_begun = _has_begun or bool(self._staged)
        for staged in self._staged:
            with _said(staged.destination):
                _take_away(staged) if staged.goes else _publish(staged)
        for staged in self._staged:
            with _said(staged.destination):
                if staged.hidden is None:
                    _sync_directory(staged.place.parent)

    def _stage(self, destination: Destination, place: Path, goes: bool = False) -> Path:
        hidden = temporary_name(place)
        if remote.is_remote(place):
            temporary = remote.folder_here() / hidden.name
            self._staged.append(
                _Staged(destination=destination, place=place, temporary=temporary, goes=goes, hidden=hidden)
            )
            return temporary
        self._staged.append(_Staged(destination=destination, place=place, temporary=hidden, goes=goes))
        return hidden

    def _upload(self, staged: _Staged) -> None:
        """What takes long and may fail comes before the first output has its name."""
        if staged.hidden is not None and staged.is_here and not staged.goes:
            self._uploaded.add(staged.hidden)
            if staged.destination.directory:
                for file in sorted(staged.temporary.iterdir()):
                    remote.upload(file, staged.hidden / file.name)
            else:
                remote.upload(staged.temporary, staged.hidden)

    def _discard(self, staged: _Staged) -> None:
        if staged.is_here:
            discard(staged.temporary)
        if staged.hidden is not None and staged.hidden in self._uploaded:
            remote.discard(staged.hidden, staged.destination.directory)


def sync(path: Path) -> None:
    """Have a file or a directory on the disk, not only on its way."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_directory(path: Path) -> None:
    try:
        sync(path)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise


def _publish(staged: _Staged) -> None:
    destination, place, temporary = staged.destination, staged.place, staged.temporary
    if staged.hidden is not None:
        if destination.refuse(place) and not destination.overwrite:
            raise destination.taken(MEANWHILE)
        (remote.name_all if destination.directory else remote.name)(staged.hidden, place)
        return
    try:
        name_new(temporary, place)
    except FileExistsError:
        if not destination.overwrite:
            raise destination.taken(MEANWHILE) from None
        destination.refuse(place)
        exchange(temporary, place)
        _refuse_taken(staged, lambda: exchange(temporary, place))


def _take_away(staged: _Staged) -> None:
    destination, place, temporary = staged.destination, staged.place, staged.temporary
    if staged.hidden is not None:
        if destination.refuse(place):
            remote.remove(place, destination.directory)
    elif destination.refuse(place):
        os.rename(place, temporary)
        _refuse_taken(staged, lambda: os.rename(temporary, place))


def _refuse_taken(staged: _Staged, undo: Callable[[], None]) -> None:
    """Look at what had the place again: something else may have come to it a moment before."""
    try:
        staged.destination.refuse(staged.temporary)
    except OutputError:
        undo()
        raise


def _topmost_missing(directory: Path) -> Path | None:
    """The first directory on the way to this one that is not there."""
    missing = None
    while not os.path.lexists(directory):
        missing, directory = directory, directory.parent
    return missing


@contextmanager
def _said(destination: Destination) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise destination.failed(error) from error
