"""Object stores and file systems of clusters, by pyarrow.fs: `s3://`, `gs://`, `abfs://`, `hdfs://` and `hf://`.

A path of a URI is taken as it is typed, as the stores' own tools take it: `%20` is three characters of a key.
"""

import io
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa
from pyarrow import fs

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import Stamp, Uri
from rlcorr_cli.storage.contents import Contents
from rlcorr_cli.storage.globs import literal_start, matches
from rlcorr_cli.storage.listing import entries
from rlcorr_cli.storage.objects import FIRST_BYTES, Bytes, Kept
from rlcorr_cli.storage.opening import Opened, opened
from rlcorr_cli.storage.protocol import Status
from rlcorr_cli.storage.refusals import changed, missing, no_place, refused
from rlcorr_cli.storage.services import SERVICES, Asked, container, uri_parts
from rlcorr_cli.storage.times import stated_minute, utc_minute

KEPT = 256
"""Files whose size and footer are kept."""
KEPT_BYTES = 1 << 26
"""Of the objects that are read whole, so many bytes are kept."""
PIECE_BYTES = 1 << 24
"""What is uploaded in one call."""
TIMES = ("last-modified", "updated")
"""What stores call the time of a file's last change."""
STATES = ("etag", *TIMES)
"""What stores call the state of a file."""
REFUSALS = (OSError, pa.ArrowException)
"""What pyarrow raises where a store refuses something, or where its own client does."""
Made = TypeVar("Made")


def store(uri: Uri) -> "Store":
    """The store of a URI; all files of one place share it, and with it its connections."""
    scheme, place, key = uri_parts(uri)
    try:
        return _store(scheme, place, uri.query, tuple(SERVICES[scheme].settings.items()))
    except ImportError as error:
        hint = f"pip install 'rlcorr[{scheme}]'."
        raise DataError(f"{uri} needs a package that is not installed.", hint) from error
    except REFUSALS as error:
        raise refused(Asked(uri, container(place), key, uri.query), error) from error


@cache
def _store(scheme: str, place: str, query: str, settings: tuple[tuple[str, str], ...]) -> "Store":
    """settings: the variables that say which store it is, so that it is another one where they are others."""
    return Store(f"{scheme}://{place}", query, opened(scheme, place, query))


class Store:
    """As FileSystem says, of one bucket or host.

    Opened files are kept, since each costs a request; who may find a file changed asks for its status, which is fresh.
    """

    remote = True

    def __init__(self, start: str, query: str, opened: Opened) -> None:
        """start: of its URIs, without a / at the end."""
        self._start, self._query = start, query
        self._files, self._root, self._state = opened.files, opened.root, opened.state
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def status(self, path: str) -> Status:
        kept = self._asked_again(path)
        return Status(kept.file.size(), kept.stamp, kept.modified)

    def stamp(self, path: str) -> Stamp:
        return self.status(path).stamp

    def is_directory(self, path: str) -> bool:
        return self._info(path).type == fs.FileType.Directory

    def is_file(self, path: str) -> bool:
        return self._info(path).type == fs.FileType.File

    def is_there(self, path: str) -> bool:
        return self._info(path).type != fs.FileType.NotFound

    def below(self, directory: str) -> Iterator[str]:
        files, _ = self._listed(directory, True)
        return (path for path in files if not _is_hidden(path, directory))

    def matches(self, pattern: str) -> tuple[set[str], set[str]]:
        _, _, path = uri_parts(pattern)
        folder, parts = literal_start(path)
        files, folders = matches(f"{self._start}/{folder}".rstrip("/"), parts, self._listed)
        if not any(part.startswith("_") for part in path.split("/")):
            files, folders = ({hit for hit in hits if "/_" not in hit} for hits in (files, folders))
        return files, {hit for folder in folders for hit in self.below(folder)}

    def each_once(self, paths: Iterable[str]) -> list[str]:
        """A store has no links."""
        return list(dict.fromkeys(paths))

    def identity(self, path: str) -> str:
        return f"{path}?{self._query}"

    def open(self, path: str) -> BinaryIO:
        raw = Bytes(self._opened(path), partial(self.explained, path))
        return cast(BinaryIO, io.BufferedReader(raw, FIRST_BYTES))

    @contextmanager
    def arrow_file(self, path: str) -> Generator[Any]:
        """The file that is kept: it is closed by nobody, because others may read it at the same time."""
        with self._refusing(path):
            yield self._opened(path).contents()

    def contents(self, path: str) -> Contents:
        """A copy on the disk, in the folder for temporary files and without a name: it goes with the last look at it,
        however this process ends."""
        try:
            with self.open(path) as file, tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy, PIECE_BYTES)
                copy.flush()
                return Contents(path, cast(BinaryIO, copy))
        except OSError as error:
            folder = tempfile.gettempdir()
            hint = "Set TMPDIR to a folder with more room."
            raise DataError(f"{path} cannot be copied to {folder}, to be read: {error.strerror}.", hint) from error

    def remembered(self, path: str, make: Callable[[], Made]) -> Made:
        kept = self._opened(path)
        if kept.made is None:
            kept.made = make()
        return kept.made

    def explained(self, path: str, error: Exception) -> DataError | None:
        # Who reads a file that became another one finds it damaged, or gone where a store keeps apart what was opened.
        if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):
            kept = self._kept.get(path)
            if kept is not None and self._is_other(path, kept.stamp):
                return changed(path)
        # Arrow's complaints about the contents are of narrower kinds.
        if isinstance(error, OSError) or type(error) is pa.ArrowException:
            return refused(self._asked(path), error)
        return None

    def put(self, local: Path, path: str) -> None:
        """Upload a file of the disk under a name that nobody reads.

        What is interrupted leaves an object cut short, which `delete` removes: closing Arrow's stream completes it, and
        there is no way to abort.  An upload that the store itself refuses half-way stays unfinished there, unseen.
        """
        try:
            with open(local, "rb") as file, self.create(path) as out:
                while piece := file.read(PIECE_BYTES):
                    out.write(piece)
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error

    def create(self, path: str) -> BinaryIO:
        """A stream to a new object, which replaces what has the name when it is closed, however that comes about."""
        try:
            return self._files.open_output_stream(self._name(path), compression=None)
        except OSError as error:
            raise refused(self._asked(path), error) from error

    def name(self, temporary: str, path: str) -> None:
        """Give an uploaded object its name, in the place of what has it: a store copies it, and shows it when it is
        whole."""
        self.copy(temporary, path)
        self.delete(temporary)

    def copy(self, source: str, path: str) -> None:
        """Have an object under another name, too, in the place of what has it."""
        try:
            self._files.copy_file(self._name(source), self._name(path))
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        try:
            self._files.delete_file(self._name(path))
        except FileNotFoundError:
            pass
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error

    def delete_each(self, directory: str, names: Iterable[str]) -> None:
        """Remove files of a directory, those that are there."""
        for name in names:
            self.delete(f"{directory}/{name}")

    def delete_directory(self, directory: str) -> None:
        """Remove all that is below, if anything is."""
        try:
            self._files.delete_dir(self._name(directory))
        except FileNotFoundError:
            pass
        except REFUSALS as error:
            raise refused(self._asked(directory), error) from error

    def names(self, directory: str) -> list[str]:
        """What is in a directory, hidden or not, sorted; a folder's name ends in a /."""
        files, folders = self._listed(directory, False)
        start = len(directory) + 1
        return sorted([*(file[start:] for file in files), *(f"{folder[start:]}/" for folder in folders)])

    def size_and_time(self, path: str) -> tuple[int, float]:
        """Bytes of an object or of all below a directory, and when the newest was written, in seconds."""
        try:
            info = self._info(path)
            infos = self._selected(path, recursive=True) if info.type == fs.FileType.Directory else [info]
        except OSError as error:
            raise refused(self._asked(path), error) from error
        return sum(info.size or 0 for info in infos), max(((info.mtime_ns or 0) / 1e9 for info in infos), default=0.0)

    def check_place(self, path: str) -> None:
        """A DataError where the bucket is not there, or not ours."""
        try:
            self._selected(f"{self._start}/{uri_parts(path)[2].rpartition('/')[0]}", recursive=False)
        except FileNotFoundError as error:
            self._check_place(path, error)
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error

    @contextmanager
    def _refusing(self, path: str) -> Generator[None]:
        """What a store's own client raises while a file is read, such as of a token that can be had no more; Arrow's
        complaints about contents are of narrower kinds, and those of the place are OSErrors: who reads asks for both
        what `explained` says."""
        try:
            yield
        except pa.ArrowException as error:
            if type(error) is not pa.ArrowException:
                raise
            raise refused(self._asked(path), error) from error

    def _is_other(self, path: str, stamp: Stamp) -> bool:
        """Whether another file than that of the stamp is there now, or none."""
        try:
            return self._asked_for(path).stamp != stamp
        except DataError:
            return True

    def _asked(self, path: str) -> Asked:
        name = self._name(path)
        place = self._container(name)
        return Asked(path, place or container(uri_parts(path)[1]), name[len(place) :].strip("/"), self._query)

    def _container(self, name: str) -> str:
        """The bucket, container or repository of a path as pyarrow names it."""
        n_parts = SERVICES[uri_parts(self._start)[0]].n_parts(name)
        return "/".join(name.split("/")[:n_parts])

    def _check_place(self, path: str, error: FileNotFoundError) -> None:
        """A DataError where not even the bucket is there, which some stores tell as they tell a missing key."""
        asked = self._asked(path)
        place = self._container(self._name(path))
        if not place or asked.service.tells_missing_places:
            return
        if self._info_of(place, path).type == fs.FileType.NotFound:
            raise no_place(asked) from error

    def _name(self, path: str) -> str:
        """A path as pyarrow names it."""
        return self._root + uri_parts(path)[2]

    def _opened(self, path: str) -> Kept:
        with self._lock:
            kept = self._kept.get(path)
        return kept or self._asked_again(path)

    def _asked_again(self, path: str) -> Kept:
        """The file as it is now; the one that is kept, if it is still the same."""
        opened = self._asked_for(path)
        with self._lock:
            kept = self._kept.pop(path, opened)
            self._kept[path] = kept = kept if kept.stamp == opened.stamp else opened
            while len(self._kept) > KEPT or sum(len(each.start) for each in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return kept

    def _asked_for(self, path: str) -> Kept:
        try:
            file = self._files.open_input_file(self._name(path))
            if file.closed:  # Google's client reads on at once, and of what goes wrong then it says no more
                self._files.open_input_stream(self._name(path)).close()
                raise changed(path)
            size, metadata = file.size(), {name.lower(): value for name, value in (file.metadata() or {}).items()}
        except FileNotFoundError as error:
            raise self._missing(path) from error
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error
        if self._state is not None:
            state, modified = self._state(self._name(path))
            return Kept(file=file, stamp=(size, *state), modified=modified)
        told = {name: _text(metadata[name]) for name in STATES if name in metadata}
        if not told:
            nanoseconds = self._info(path).mtime_ns
            modified = None if nanoseconds is None else utc_minute(nanoseconds / 1e9)
            return Kept(file=file, stamp=(size, nanoseconds or 0), modified=modified)
        modified = next((stated_minute(told[name]) for name in TIMES if name in told), None)
        return Kept(file=file, stamp=(size, *told.values()), modified=modified)

    def _missing(self, path: str) -> DataError:
        """No such key, or no such bucket, which a request for a key does not tell."""
        folder = path.rpartition("/")[0]
        try:
            names = [info.base_name for info in self._selected(folder, recursive=False)]
        except FileNotFoundError as error:
            names = []
            self._check_place(path, error)
        except REFUSALS as error:
            return refused(self._asked(path), error)
        return missing(self._asked(path), names)

    def _info(self, path: str) -> Any:
        return self._info_of(self._name(path).rstrip("/") or self._root, path)

    def _info_of(self, name: str, path: str) -> Any:
        try:
            return self._files.get_file_info(name)
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error

    def _listed(self, directory: str, recursive: bool) -> tuple[list[str], list[str]]:
        """The URIs of the files and of the folders below, sorted; none where there is no such folder."""
        try:
            infos = self._selected(directory, recursive=recursive)
        except FileNotFoundError as error:
            self._check_place(directory, error)
            return [], []
        except REFUSALS as error:
            raise refused(self._asked(directory), error) from error
        files: list[str] = [self._uri(info.path) for info in infos if info.type == fs.FileType.File]
        folders: list[str] = [self._uri(info.path) for info in infos if info.type == fs.FileType.Directory]
        return sorted(files), sorted(folders)

    def _selected(self, directory: str, *, recursive: bool) -> Any:
        return entries(self._files, self._name(directory).rstrip("/") or self._root, recursive=recursive)

    def _uri(self, name: str) -> Uri:
        return Uri(f"{self._start}/{name.removeprefix(self._root)}", self._query)


def _is_hidden(path: str, below: str) -> bool:
    return any(part.startswith((".", "_")) for part in path[len(below) :].split("/"))


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
