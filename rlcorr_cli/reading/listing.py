"""What the names of a job that runs stand for, look after look: `Listing`.

A look at a folder of the disk lists its names, which takes half a microsecond each, and asks few files for their state:
those that are new, or were moved to the place of another (which the listing tells by the inode), those that wait, the
YOUNG whose state changed last, and of the others IN_TURN, at each look the next ones.  So what is written again in its
place long afterwards is found some looks later, and a look takes hardly longer with each file that there is.  Folders
are listed likewise: those whose names changed last at each look, the others in turn.

A glob with folders that vary, and a folder with links in it, is searched anew at each look, and its files are asked for
likewise.  A store tells names and states by one listing, which is all that it is asked.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from glob import has_magic
from itertools import islice
from typing import Generic, TypeVar

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.disk import DISK, Disk, unreadable
from rlcorr_cli.places import Stamp
from rlcorr_cli.reading.find import DESCRIBED, files, is_housekeeping, without_housekeeping
from rlcorr_cli.reading.formats import is_searched

YOUNG, IN_TURN = 256, 256
V = TypeVar("V")


@dataclass
class _InTurn(Generic[V]):
    """Values by path, and which of them are due: the YOUNG that changed last, and the next ones of the others."""

    young: OrderedDict[str, V] = field(default_factory=OrderedDict[str, V])
    others: OrderedDict[str, V] = field(default_factory=OrderedDict[str, V])

    def get(self, path: str) -> V | None:
        return self.young[path] if path in self.young else self.others.get(path)

    def set(self, path: str, value: V) -> None:
        """What is new, or has changed."""
        self.remove(path)
        self.young[path] = value
        if len(self.young) > YOUNG:
            path, value = self.young.popitem(last=False)
            self.others[path] = value

    def remove(self, path: str) -> None:
        self.young.pop(path, None)
        self.others.pop(path, None)

    def paths(self) -> Iterator[str]:
        yield from self.young
        yield from self.others

    def due(self) -> list[str]:
        turn = list(islice(self.others, IN_TURN))
        for path in turn:
            self.others.move_to_end(path)
        return [*self.young, *turn]


class Listing:
    """The files that the names of a run stand for, as the looks so far saw them."""

    def __init__(self, names: Sequence[str]) -> None:
        """names: as they were typed."""
        self._places = [_Store(name) if filesystem(located(name)).remote else _OnDisk(name) for name in names]

    def look(self, waiting: Collection[str] = ()) -> dict[str, Stamp]:
        """The states that this look asked for, those of files that are new or wait among them; a DataError where a name
        stands for nothing, and no file can come to be there.  A folder, a prefix that ends in a / or a glob may be
        empty still."""
        asked: dict[str, Stamp] = {}
        for place in self._places:
            asked |= place.look([path for path in waiting if place.stamp(path) is not None])
        return asked

    def __contains__(self, path: str) -> bool:
        """Whether such a file was there."""
        return any(place.stamp(path) is not None for place in self._places)

    def __getitem__(self, path: str) -> Stamp:
        """The state of a file that was there, when it was asked for it last."""
        return next(stamp for place in self._places if (stamp := place.stamp(path)) is not None)


class _OnDisk:
    """What one name stands for on a disk of this machine.

    folders: the names in each that is listed, and the inode of each name; none where all is searched anew.  top: the
    first of them; pattern: which of its names count, all without one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_links = False
        self._forget()

    def _forget(self) -> None:
        self._files = _InTurn[Stamp]()
        self._folders = _InTurn[dict[str, int]]()
        self._top, self._pattern = "", None

    def stamp(self, path: str) -> Stamp | None:
        return self._files.get(path)

    def look(self, waiting: Collection[str]) -> dict[str, Stamp]:
        place = located(self._name)
        try:
            new = None if self._has_links else self._new_in_folders(place)
            if new is None:
                new = self._searched(place)
        except DataError:
            self._forget()  # the next look begins anew
            raise
        asked = DISK.stamps(dict.fromkeys((*new, *self._files.due(), *waiting)))
        for path, stamp in asked.items():
            if stamp != self._files.get(path):
                self._files.set(path, stamp)
        for folder, name in (os.path.split(path) for path in new if path not in asked):  # it may come again
            (self._folders.get(folder) or self._folders.get(f"{folder}/") or {}).pop(name, None)
        return asked

    def _searched(self, place: str) -> list[str]:
        """The new files of a name, searched for as `find` does."""
        if next(self._folders.paths(), None) is not None:  # it was listed
            self._forget()
        paths = _files_of(self._name, place)
        for path in set(self._files.paths()) - set(paths):
            self._files.remove(path)
        if paths == [place] and not has_magic(place):
            DISK.status(place)  # says what is wrong
        return [path for path in paths if self._files.get(path) is None]

    def _new_in_folders(self, place: str) -> list[str] | None:
        """The files that are new in the folders that are due, or were moved there; None where all must be searched."""
        top = place if os.path.isdir(place) else _folder_of(place)
        if top is None:
            return None
        if self._folders.get(top) is None:
            self._forget()
            self._top, self._pattern = top, None if top == place else re.compile(translate(os.path.basename(place)))
        new: list[str] = []
        folders = self._folders.due() or [top]
        while folders and not self._has_links:
            folders += self._new_in(folders.pop(), new)
        return None if self._has_links else new

    def _new_in(self, folder: str, new: list[str]) -> list[str]:
        """Adds the new files of one folder, and returns the folders in it that are new."""
        before = self._folders.get(folder)
        try:
            with os.scandir(folder or ".") as found:
                entries = {entry.name: entry for entry in found if not entry.name.startswith((".", "_"))}
        except (FileNotFoundError, NotADirectoryError):
            return []  # the folder above tells that it is gone
        except OSError as error:
            raise unreadable(folder, error) from error
        pattern = self._pattern if folder == self._top else None
        now = {name: each.inode() for name, each in entries.items() if pattern is None or pattern.match(name)}
        if now == before:
            return []
        self._folders.set(folder, now)
        before = before or {}
        kept = before.keys() & now.keys() if (DESCRIBED in before) == (DESCRIBED in now) else set[str]()
        for name in before.keys() - kept:
            self._remove(os.path.join(folder, name))
        below: list[str] = []
        for name in [name for name, inode in now.items() if name not in kept or before[name] != inode]:
            path = os.path.join(folder, name)
            if entries[name].is_symlink():
                self._has_links = True
            elif entries[name].is_dir():
                self._remove(path)
                below.append(path)
            elif is_searched(name) and not (DESCRIBED in now and is_housekeeping(name) and self._pattern is None):
                new.append(path)
        return below

    def _remove(self, path: str) -> None:
        """A file, or a folder with all that is in it."""
        self._files.remove(path)
        names = self._folders.get(path) or {}
        self._folders.remove(path)
        for name in names:
            self._remove(os.path.join(path, name))


def _folder_of(pattern: str) -> str | None:
    """The folder of a glob such as run/*.parquet, which all that it finds lies in; None of others, and of what is no
    glob, or names what it means."""
    folder, name = os.path.split(pattern)
    hidden = any(part.startswith("_") for part in pattern.split("/")) or name.startswith(".")
    if has_magic(folder) or not has_magic(name) or not is_searched(name) or hidden or os.path.lexists(pattern):
        return None
    return (os.path.normpath(folder) if folder else "") if os.path.isdir(folder or ".") else None


class _Store:
    """What one URI stands for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_folder = False
        self._stamps: dict[str, Stamp] = {}

    def stamp(self, path: str) -> Stamp | None:
        return self._stamps.get(path)

    def look(self, waiting: Collection[str]) -> dict[str, Stamp]:
        place = located(self._name)
        store = filesystem(place)
        assert not isinstance(store, Disk)
        stamps = store.stamps_below(place) if self._is_folder or not store.is_file(place) else {}
        self._is_folder = self._is_folder or bool(stamps)
        if self._is_folder:
            self._stamps = {path: stamps[path] for path in without_housekeeping(list(stamps)) if is_searched(path)}
        else:
            self._stamps = store.stamps(_files_of(self._name, place))
            if not self._stamps and not has_magic(place) and not _may_fill(self._name, place):
                store.status(place)  # says what is wrong
        return self._stamps


def _files_of(name: str, place: str) -> list[str]:
    """The files that a name stands for; none of one that may still fill."""
    try:
        return list(files((name,)))
    except DataError:
        if not _may_fill(name, place):
            raise
        return []


def _may_fill(name: str, place: str) -> bool:
    """Whether files may come to be where there are none; a DataError of a bucket that is not there."""
    store = filesystem(place)
    if isinstance(store, Disk):
        return has_magic(place) or store.is_directory(place)
    if not has_magic(place) and not name.partition("?")[0].endswith("/"):
        return False
    store.is_folder(place)
    return True
