"""The outputs of one run: each appears whole or not at all.

Each is written under a temporary name beside its place, or, where it is meant for a store, in the folder for temporary
files.  `publish` looks whether any place was taken meanwhile, sends what is large to its store, and then gives all of
them their names: in stores first, where it may still fail.  Whoever reads a place sees the old content or the new.

A failure or an interrupt removes what has no name yet; a kill leaves temporaries, which the next run removes.  A
failure between two outputs can leave the first ones; if a store fails, new objects there are deleted again.  One
exception: an older folder in a store that many processes rewrite loses its last file at the start.

How a name is given.  A new file has its name by link(), which replaces nothing; an older file is replaced by a rename.
A new directory is renamed; an older one steps aside for the moment between two renames, in which there is none.  An
object in a store is seen when its upload is completed.  A folder of a store cannot come in one step: its last file
alone tells of its end, so an older one's last goes first and the new one's comes last.

A directory that many processes write has their files as they come: on a disk in the temporary directory, in a store
under their own names, beside a marker that has a temporary's name for as long as the run lasts (`shared_directory`).
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from rlcorr_cli.errors import OutputError
from rlcorr_cli.files.destinations import (
    ASIDE,
    NAME,
    Destination,
    discard,
    folder_here,
    is_remote,
    names_in,
    store_of,
    temporary_name,
)
from rlcorr_cli.frozen import frozen

if TYPE_CHECKING:
    from rlcorr_cli.files.buckets import Upload

UNSYNCED = (errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
"""Errors of flushing a directory that may be ignored: it can be written to all the same."""
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
"""What a rename of a directory answers where the name is another's."""
MEANWHILE = "was written by another run meanwhile"
MARKER = b"This folder is being written by rlcorr, or was when that was killed.\n"
LARGE_BYTES = 1 << 23
"""Larger objects are uploaded before any output gets its name, smaller ones at that moment."""
AT_ONCE = 8
"""Objects of a folder that are under way at a time."""

Item = TypeVar("Item")

_has_begun = False


def has_published() -> bool:
    """Whether this process has begun to give outputs their names."""
    return _has_begun


@frozen(kw_only=True)
class _Staged:
    """What is at `temporary` is meant for `place`.

    goes: nothing was written, and publishing removes what is at `place`.  shared: many processes write straight to the
    place, a folder in a store, and `temporary` is the marker in it.  replaces: that folder held an older output.
    """

    destination: Destination
    place: Path
    temporary: Path
    goes: bool = False
    shared: bool = False
    replaces: bool = False

    @property
    def objects(self) -> list[tuple[Path, Path]]:
        """Each file on the disk and the object that it becomes; names that begin with _ come last, because such a file
        says that the folder is complete."""
        if not self.destination.directory:
            return [(self.temporary, self.place)]
        return [(self.temporary / name, self.place / name) for name in _seal_last(os.listdir(self.temporary))]


class Outputs:
    """A context around a run's writing: what was not published is discarded at its end."""

    def __init__(self) -> None:
        self._staged: list[_Staged] = []
        self._new_directories: dict[Path, Path] = {}
        self._last_files: dict[Path, tuple[str, bytes]] = {}
        self._uploads: dict[Path, Upload] = {}
        # Objects that are visible where nothing was before; deleted again if publishing in a store fails.
        self._shown: list[Path] = []

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(self, *_: object) -> None:
        for upload in self._uploads.values():
            upload.abort()
        for staged in self._staged:
            _discard(staged)
        for kept in (self._staged, self._new_directories, self._last_files, self._uploads, self._shown):
            kept.clear()

    def add(self, destination: Destination) -> Path:
        """The name to write the destination under: to be opened as new, or made as a directory."""
        place = destination.place
        missing = None if is_remote(place) else _topmost_missing(place.parent)
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
        with as_output_error(destination):
            temporary = self.add(destination)
            if destination.directory:
                temporary.mkdir()
                temporary /= within
            with temporary.open("xb") as file:
                file.writelines((content,) if isinstance(content, bytes) else content)
            sync(temporary)

    def shared_directory(self, destination: Destination) -> Path:
        """The directory, made now, into which many processes put a destination's files as `PartFile`s."""
        place = destination.place
        with as_output_error(destination):
            if not is_remote(place):
                temporary = self.add(destination)
                temporary.mkdir()
                return temporary
            if (replaces := destination.refuse(place)) and not destination.overwrite:
                raise destination.exists_error(MEANWHILE)
            marker = temporary_name(place / "_")
            with store_of(place) as (store, uri):
                older = _seal_last(store.names(uri))
                staged = _Staged(destination=destination, place=place, temporary=marker, shared=True, replaces=replaces)
                self._staged.append(staged)
                store.put(str(marker), MARKER)
                if {*store.names(uri)} - {*older} != {marker.name}:
                    raise destination.exists_error(MEANWHILE)
                for name in older[-1:]:
                    store.delete(f"{uri}/{name}")
        return place

    def complete_directory(self, destination: Destination, directory: Path, names: Collection[str]) -> list[str]:
        """Delete from a shared directory all but `names`: what killed writers left, in a store an older run's files.

        Returns those of `names` that are missing.
        """
        there = names_in(directory)
        markers = {staged.temporary.name for staged in self._staged}
        for name in sorted({*there} - {*names} - markers):
            if not is_remote(directory):
                discard(directory / name)
            elif NAME.fullmatch(name) or destination.holds_own(directory, name):
                _delete(directory / name)
            else:
                raise destination.foreign_error(name)
        return sorted({*names} - {*there})

    def finish_directory(self, directory: Path, name: str, content: bytes) -> None:
        """The file of a shared directory that says it is whole; in a store it comes as the others get their names."""
        if is_remote(directory):
            self._last_files[directory] = name, content
        else:
            write_file(directory, name, content)

    def withdraw(self, directory: Path) -> None:
        """Discard a shared directory, as if it had never been."""
        for staged in [staged for staged in self._staged if directory in (staged.temporary, staged.place)]:
            _discard(staged)
            self._staged.remove(staged)

    def remove(self, destination: Destination) -> None:
        """Stage that nothing is there: what an earlier run wrote goes as this one's outputs come."""
        self._stage(destination, destination.place, goes=True)

    def publish(self) -> None:
        """Give all outputs their names, those of a disk in the order in which they were added."""
        # What can be refused is refused before the first has its name, and what takes long is done.
        for staged in self._staged:
            with as_output_error(staged.destination):
                if not (staged.goes or is_remote(staged.place)) and staged.temporary.is_dir():
                    _sync_directory(staged.temporary)
                if not staged.shared:
                    _refuse_meanwhile(staged)
        for staged in self._staged:
            if is_remote(staged.place) and not staged.goes and not staged.shared:
                with as_output_error(staged.destination):
                    _several_at_once(self._send, [one for one in staged.objects if one[0].stat().st_size > LARGE_BYTES])
        global _has_begun
        _has_begun = _has_begun or bool(self._staged)
        here = [staged for staged in self._staged if not is_remote(staged.place)]
        try:
            for staged in self._staged:
                if is_remote(staged.place):
                    with as_output_error(staged.destination):
                        self._publish_in_store(staged)
        except BaseException:
            for path in self._shown:
                with suppress(OutputError):
                    _delete(path)
            raise
        for staged in [staged for staged in self._staged if staged.shared]:
            self._staged.remove(staged)
            with suppress(OutputError):
                _delete(staged.temporary)
        for staged in here:
            with as_output_error(staged.destination):
                if not staged.goes:
                    _publish(staged)
                elif staged.destination.refuse(staged.place):
                    _step_aside(staged, staged.temporary)
        for staged in here:
            with as_output_error(staged.destination):
                _sync_directory(staged.place.parent)

    def _stage(self, destination: Destination, place: Path, goes: bool = False) -> Path:
        temporary = temporary_name(folder_here() / "_" if is_remote(place) else place)
        self._staged.append(_Staged(destination=destination, place=place, temporary=temporary, goes=goes))
        return temporary

    def _send(self, one: tuple[Path, Path]) -> None:
        """Upload a large object; `complete` makes it visible later."""
        file, place = one
        with store_of(place) as (store, uri), file.open("rb") as content:
            upload = self._uploads[place] = store.upload(uri, file.stat().st_size)
            while piece := content.read(LARGE_BYTES):
                upload.write(piece[:-1])
                upload.write(piece[-1:])  # the last byte alone: this call returns once the parts before it have arrived

    def _publish_in_store(self, staged: _Staged) -> None:
        destination, place = staged.destination, staged.place
        if staged.shared:
            name, content = self._last_files[place]
            with store_of(place) as (store, uri):
                store.put(f"{uri}/{name}", content)
            if not staged.replaces:
                self._shown.append(place / name)
            return
        replaces = _refuse_meanwhile(staged)
        with store_of(place) as (store, uri):
            if staged.goes:
                if replaces:
                    (store.delete_directory if destination.directory else store.delete)(uri)
                return

            def show(one: tuple[Path, Path]) -> None:
                file, path = one
                if not replaces:
                    self._shown.append(path)
                try:
                    if path in self._uploads:
                        self._uploads.pop(path).complete()
                    else:
                        store.put(str(path), file.read_bytes(), new=not destination.overwrite)
                except Exception:  # the upload failed, so an object of this name is another run's: never delete it
                    if not replaces:
                        self._shown.remove(path)
                    raise

            older = _seal_last(store.names(uri)) if destination.directory else []
            objects = staged.objects
            try:
                for name in older[-1:]:
                    store.delete(f"{uri}/{name}")
                _several_at_once(show, objects[:-1])
                for name in {*older[:-1]} - {path.name for _, path in objects[:-1]}:
                    store.delete(f"{uri}/{name}")
                show(objects[-1])
            except FileExistsError:
                raise destination.exists_error(MEANWHILE) from None


class PartFile:
    """One file on its way into a directory that is staged: write to `file`, then `commit` or `discard`.

    In a shared directory it is written under a hidden name first and appears whole, on a disk by a rename, in a store
    by one upload.  A second writer of the same part, whose first one seemed dead, replaces it whole.
    """

    def __init__(self, directory: Path, name: str, *, shared: bool = True) -> None:
        self.name = name
        self._place = self._temporary = directory / name
        if shared:  # two may write the same part at a time, where the first only seemed to be dead
            self._temporary = directory / f".{name}-{os.urandom(8).hex()}"
        self._upload: Upload | None = None
        if is_remote(directory):
            with store_of(self._place) as (store, uri):
                self._upload = store.upload(uri)
        self.file: BinaryIO = cast(BinaryIO, self._upload or self._temporary.open("xb"))

    @property
    def n_bytes(self) -> int:
        """What was written so far."""
        return self._temporary.stat().st_size if self._upload is None else self._upload.tell()

    def commit(self) -> int:
        """Have it whole under its name.  Returns its bytes."""
        if self._upload is not None:
            self._upload.complete()
            return self.n_bytes
        self.file.close()
        sync(self._temporary)
        n_bytes = self.n_bytes
        if self._temporary != self._place:
            os.replace(self._temporary, self._place)
        return n_bytes

    def discard(self) -> None:
        """Leave nothing of it."""
        if self._upload is not None:
            self._upload.abort()
            return
        with suppress(OSError):
            self.file.close()
        discard(self._temporary)


def write_file(directory: Path, name: str, content: bytes) -> None:
    """A whole file of a directory that is not seen yet."""
    file = PartFile(directory, name)
    try:
        file.file.write(content)
        file.commit()
    except BaseException:
        file.discard()
        raise


def sync(path: Path) -> None:
    """Have a file or a directory on the disk, not only on its way."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def as_output_error(destination: Destination) -> Generator[None]:
    """What the system refuses, as an error that names the output."""
    try:
        yield
    except OSError as error:
        raise destination.write_error(error) from error


def _sync_directory(path: Path) -> None:
    try:
        sync(path)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise


def _refuse_meanwhile(staged: _Staged) -> bool:
    """Refuse what came to the place since the run began.  Returns whether there is anything to be replaced."""
    there = staged.destination.refuse(staged.place)
    if there and not staged.destination.overwrite:
        raise staged.destination.exists_error(MEANWHILE)
    return there


def _publish(staged: _Staged) -> None:
    """Give a file or directory of the disk its name."""
    destination, place, temporary = staged.destination, staged.place, staged.temporary
    try:
        if temporary.is_dir():
            # rename() puts a directory in the place of nothing or of an empty directory, never of anything else.
            os.rename(temporary, place)
        else:
            _link(temporary, place)
        return
    except OSError as error:
        if error.errno not in TAKEN or not os.path.lexists(place):
            raise
    if not destination.overwrite:
        raise destination.exists_error(MEANWHILE)
    destination.refuse(place)
    _take_permissions(temporary, place)
    if not temporary.is_dir():
        os.replace(temporary, place)
        return
    aside = temporary.with_suffix(ASIDE)
    _step_aside(staged, aside)
    try:
        os.rename(temporary, place)
    except BaseException:
        os.rename(aside, place)
        raise
    os.rename(aside, temporary)  # so that __exit__ deletes the older directory


def _take_permissions(newer: Path, older: Path) -> None:
    """Give a file, or a folder with its files, the mode of what it replaces, and if we may, its owner and group.

    A file of a folder takes those of the older one of its name, or else of any."""
    if newer.is_dir():
        files = {file.name: file for file in older.iterdir()}
        for file in newer.iterdir() if files else ():
            _take_permissions(file, files.get(file.name) or min(files.values()))
    status = older.stat()
    with suppress(OSError):
        os.chown(newer, status.st_uid, status.st_gid)
    newer.chmod(stat.S_IMODE(status.st_mode))


def _link(temporary: Path, place: Path) -> None:
    try:
        os.link(temporary, place)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place)) from None
        os.rename(temporary, place)  # some file systems have no links: what comes in this very moment is replaced
    else:
        os.unlink(temporary)


def _step_aside(staged: _Staged, aside: Path) -> None:
    """Rename what has the place, and look at it again: something else may have come to it a moment before."""
    os.rename(staged.place, aside)
    try:
        staged.destination.refuse(aside)
    except BaseException:
        os.rename(aside, staged.place)
        raise


def _discard(staged: _Staged) -> None:
    """Delete what has no name yet.  An older folder in a store that was being replaced stays, without its last file."""
    if not staged.shared:
        discard(staged.temporary)
        return

    def delete_own(name: str) -> None:
        if staged.destination.holds_own(staged.place, name):
            _delete(staged.place / name)

    with suppress(OutputError):
        if not staged.replaces:
            _several_at_once(delete_own, names_in(staged.place))
        _delete(staged.temporary)


def _delete(path: Path) -> None:
    with store_of(path) as (store, uri):
        store.delete(uri)


def _seal_last(names: Iterable[str]) -> list[str]:
    """Names in order, those that begin with _ last: such a file says that the folder is complete."""
    return sorted(names, key=lambda name: (name.startswith("_"), name))


def _several_at_once(act: Callable[[Item], None], ones: Collection[Item]) -> None:
    """Do it with each, several at a time, as nearly all of it is waiting; whatever fails, none is under way after."""
    if len(ones) < 2:
        for one in ones:
            act(one)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rlcorr-upload") as pool:
        try:
            for done in [pool.submit(act, one) for one in ones]:
                done.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _topmost_missing(directory: Path) -> Path | None:
    """The first directory on the way to this one that is not there."""
    missing = None
    while not os.path.lexists(directory):
        missing, directory = directory, directory.parent
    return missing
