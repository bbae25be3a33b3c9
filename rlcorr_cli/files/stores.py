"""Object stores as places of files: `s3://`, `gs://` and `abfs://` (`buckets`), and `hf://` (`hub`).

A store is opened once for each bucket or repository.  An object is looked at by one request, kept while it is the same
(`Kept`), and read in few large ones.  A path of a URI is taken as it is typed, as the stores' own tools take it: `%20`
is three characters of a key.
"""

import io
import os
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.files.buckets import Bucket, Found, Upload, bucket
from rlcorr_cli.files.disk import Contents, Placed, Status, changed, literal_start, matches, utc_minute
from rlcorr_cli.files.services import SERVICES, StoreRequest, missing, refused, uri_parts
from rlcorr_cli.places import Stamp, Uri

if TYPE_CHECKING:
    from rlcorr_cli.files.hub import Hub

Made = TypeVar("Made")
QUIET_S, LISTING_S = 60, 1800
"""After which a listing is given up that brings nothing new, and any."""
MOST_KEYS = 2_000_000
"""The most of a listing."""
FIRST_BYTES, MOST_BYTES = 1 << 16, 1 << 23
"""What one request brings at least, at a new place and where a file is read on and on."""
SMALL_BYTES = 1 << 20
"""An object of no more is read whole in one request."""
KEPT = 256
"""Files whose size and footer are kept."""
KEPT_BYTES = 1 << 26
"""Of the objects that are read whole, so many bytes are kept."""
PIECE_BYTES = 1 << 24
"""What is copied to the disk in one call."""


@dataclass(kw_only=True)
class Kept:
    """A file whose size and state were asked for once: reading at any place needs no more of it.

    read: gives its bytes from a place on, so many.  made: what was read of it and is kept, None for nothing yet.
    start: its first bytes, or all of a small one, once they were read.
    """

    found: Found
    read: Callable[[int, int], Any]
    made: Any = None
    start: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def arrow_file(self) -> pa.NativeFile:
        """It as one of Arrow's, with a place of its own."""
        if self.found.n_bytes <= SMALL_BYTES:
            return pa.BufferReader(self.first())
        return pa.PythonFile(Ranges(self), mode="r")

    def first(self) -> bytes:
        """The first bytes, asked for once."""
        size = self.found.n_bytes
        with self.lock:
            if not self.start and size:
                self.start = bytes(self.read(0, size if size <= SMALL_BYTES else FIRST_BYTES))
        return self.start


class Ranges(Placed):
    """As Arrow asks for a file: what it asks for is one request, and comes as a buffer."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(kept.found.n_bytes)
        self._kept = kept

    def read_buffer(self, n: int, /) -> Any:
        """From its place on, and no more than there is."""
        n = min(n, self.n_bytes - self.at)
        data = self._kept.read(self.at, n) if n > 0 else b""
        self.at += len(data)
        return data

    def read(self, n: int = -1, /) -> bytes:
        return bytes(self.read_buffer(n))


class Bytes(Ranges):
    """As Python's buffers ask for it: each request brings twice as much as the one before it, while one place is read
    after another."""

    read = io.RawIOBase.read

    def __init__(self, kept: Kept, explained: Callable[[Exception], DataError | None]) -> None:
        super().__init__(kept)
        self._explained = explained
        self._first, self._piece, self._ahead = 0, b"", 0

    def readinto(self, buffer: Any, /) -> int:
        at = self.at
        if not 0 <= at - self._first < len(self._piece):
            goes_on = at == self._first + len(self._piece)
            self._ahead = min(2 * self._ahead, MOST_BYTES) if goes_on and self._ahead else FIRST_BYTES
            self._first, self._piece = at, self._bytes_asked_for(max(self._ahead, len(buffer)))
        start = at - self._first
        piece = self._piece[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self.at = at + len(piece)
        return len(piece)

    def _bytes_asked_for(self, n: int) -> bytes:
        try:
            if self.at < FIRST_BYTES or self.n_bytes <= SMALL_BYTES:
                return self._kept.first()[self.at :]
            return bytes(self.read_buffer(n))
        except OSError as error:
            raise self._explained(error) or error from error


def store(uri: Uri) -> "Store":
    """The store of a URI; all files of one place share it, and with it its connections."""
    scheme, place, _ = uri_parts(uri)
    try:
        return _store(scheme, place, uri.query, tuple(SERVICES[scheme].settings.items()))
    except ImportError as error:
        hint = f"pip install 'rlcorr[{scheme}]'."
        raise DataError(f"{uri} needs a package that is not installed.", hint) from error
    except OSError as error:
        raise refused(StoreRequest(uri, uri.query), error) from error


@cache
def _store(scheme: str, place: str, query: str, settings: tuple[tuple[str, str], ...]) -> "Store":
    """settings: the variables that say which store it is, so that it is another one where they are others."""
    return Store(f"{scheme}://{place}", query, opened(scheme, place, query))


def opened(scheme: str, place: str, query: str) -> "Bucket | Hub":
    """What asks for objects whose URIs begin with `scheme://place/`."""
    if scheme != "hf":
        return bucket(scheme, place, query)
    from rlcorr_cli.files.hub import Hub

    return Hub(place)


class Store:
    """A place of files, as `disk.Disk` has it: one bucket, container or repository.

    What was found of files is kept, since each costs a request; who may find a file changed asks for its status, which
    is fresh.
    """

    remote = True

    def __init__(self, start: str, query: str, objects: "Bucket | Hub") -> None:
        """start: of its URIs, without a / at the end."""
        self._start, self._query, self._objects = start, query, objects
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def status(self, path: str) -> Status:
        found = self._fresh(path).found
        return Status(found.n_bytes, found.stamp, None if found.time is None else utc_minute(found.time.timestamp()))

    def stamp(self, path: str) -> Stamp:
        return self.status(path).stamp

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        """As of a disk, by one listing: sizes and states."""
        asked = list(paths)
        if not asked:
            return {}
        folder = os.path.dirname(min(asked, key=len))
        while not all(path.startswith(f"{folder}/") for path in asked):
            folder = os.path.dirname(folder)
        found = self._stamps(folder)
        return {path: found[path] for path in asked if path in found}

    def stamps_below(self, directory: str) -> dict[str, Stamp]:
        """All files below, as `below` has them, with their stamps, by one listing."""
        found = self._stamps(directory)
        return {path: stamp for path, stamp in found.items() if not _is_hidden(path, directory)}

    def _stamps(self, folder: str) -> dict[str, Stamp]:
        files, _ = self._found_below(folder, recursive=True)
        return {self._uri(file.key): file.stamp for file in files}

    def is_directory(self, path: str) -> bool:
        return not self.is_file(path) and (self.is_folder(path) or not self._key(path))

    def is_file(self, path: str) -> bool:
        if not self._key(path):
            return False
        with self._with_cause(path), suppress(FileNotFoundError):
            self._objects.found(self._key(path))
            return True
        return False

    def is_there(self, path: str) -> bool:
        return self.is_file(path) or self.is_folder(path)

    def below(self, directory: str) -> Iterator[str]:
        files, _ = self._uris_below(directory, True)
        return (path for path in files if not _is_hidden(path, directory))

    def matches(self, pattern: str) -> tuple[set[str], set[str]]:
        _, _, path = uri_parts(pattern)
        folder, parts = literal_start(path)
        files, folders = matches(f"{self._start}/{folder}".rstrip("/"), parts, self._uris_below)
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
        yield self._opened(path).arrow_file()

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

    def forget(self, path: str) -> None:
        with self._lock:
            self._kept.pop(path, None)

    def explained(self, path: str, error: Exception) -> DataError | None:
        # Who reads a file that became another one finds it damaged, or gone, or shorter.
        if isinstance(error, FileNotFoundError) or not isinstance(error, OSError) or "code: 416" in str(error):
            kept = self._kept.get(path)
            if kept is not None and self._is_other(path, kept.found.stamp):
                return changed(path)
        return refused(self._request(path), error) if isinstance(error, OSError) else None

    def upload(self, path: str, size: int | None = None) -> Upload:
        """A new object to be written; size: if it is known."""
        with self._with_cause(path):
            return self._objects.upload(self._key(path), size)

    def put(self, path: str, data: bytes, *, new: bool = False) -> None:
        """A whole small object.  new: a FileExistsError where another has the name, if the store can tell."""
        with self._with_cause(path):
            self._objects.put(self._key(path), data, new=new)

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        with self._with_cause(path), suppress(FileNotFoundError):
            self._objects.delete(self._key(path))

    def delete_directory(self, directory: str) -> None:
        """Remove all that is below, if anything is."""
        with self._with_cause(directory), suppress(FileNotFoundError):
            self._objects.delete_below(self._key(directory))

    def names(self, directory: str) -> list[str]:
        """What is in a directory, hidden or not, sorted; a folder's name ends in a /."""
        files, folders = self._uris_below(directory, False)
        start = len(directory) + 1
        return sorted([*(file[start:] for file in files), *(f"{folder[start:]}/" for folder in folders)])

    def size_and_time(self, path: str) -> tuple[int, float]:
        """Bytes of an object or of all below a directory, and when the newest was written, in seconds."""
        files = [self._looked_up(path).found] if self.is_file(path) else self._found_below(path, recursive=True)[0]
        times = [file.time.timestamp() for file in files if file.time]
        return sum(file.n_bytes for file in files), max(times, default=0.0)

    def is_folder(self, path: str) -> bool:
        """Whether anything lies below; a DataError where the bucket is not there, or not ours."""
        with self._with_cause(path):
            return self._in_time(partial(self._objects.is_folder, self._key(path)), path)

    @contextmanager
    def _with_cause(self, path: str) -> Generator[None]:
        """The cause of what is refused."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise refused(self._request(path), error) from error

    def _is_other(self, path: str, stamp: Stamp) -> bool:
        """Whether another file than that of the stamp is there now, or none."""
        try:
            return self._looked_up(path).found.stamp != stamp
        except DataError:
            return True

    def _request(self, path: str) -> StoreRequest:
        return StoreRequest(path, self._query)

    def _key(self, path: str) -> str:
        return uri_parts(path)[2].rstrip("/")

    def _opened(self, path: str) -> Kept:
        with self._lock:
            kept = self._kept.get(path)
        return kept or self._fresh(path)

    def _fresh(self, path: str) -> Kept:
        """The file as it is now; the one that is kept, if it is still the same."""
        opened = self._looked_up(path)
        with self._lock:
            kept = self._kept.pop(path, opened)
            self._kept[path] = kept = kept if kept.found.stamp == opened.found.stamp else opened
            while len(self._kept) > KEPT or sum(len(each.start) for each in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return kept

    def _looked_up(self, path: str) -> Kept:
        key = self._key(path)
        with self._with_cause(path):
            try:
                found = self._objects.found(key)
                return Kept(found=found, read=self._objects.reader(found))
            except FileNotFoundError as error:  # of no such key, or no such bucket, which a request does not tell
                files, folders = self._found_below(path.rpartition("/")[0], path)
                beside = (file.key for file in files), folders
                raise missing(self._request(path), map(os.path.basename, chain(*beside))) from error

    def _uris_below(self, directory: str, recursive: bool) -> tuple[list[str], list[str]]:
        """The URIs of the files and of the folders below, sorted; none where there is no such folder."""
        files, folders = self._found_below(directory, recursive=recursive)
        return sorted(self._uri(file.key) for file in files), sorted(map(self._uri, folders))

    def _found_below(self, directory: str, asked: str = "", *, recursive: bool = False) -> tuple[list[Found], set[str]]:
        """The files and the folders in a folder, or all below, none where it is not there.

        asked: what errors name, if it is not the folder.
        """
        key, end = self._key(directory), time.monotonic() + LISTING_S
        start = len(key) + 1 if key else 0
        files, folders = dict[str, Found](), set[str]()
        with self._with_cause(asked or directory):
            pages = self._objects.pages(key, recursive=recursive)
            while page := self._in_time(partial(next, pages, None), directory):
                n_files = len(files)
                files |= {file.key: file for file in page[0]}
                folders |= {*page[1]}
                if n_files == len(files) and page[0]:
                    raise self._endless(directory, f"after {n_files:,} keys no page brings a new one")
                if len(files) > MOST_KEYS or time.monotonic() > end:
                    raise self._endless(directory, f"it has over {MOST_KEYS:,} keys, or took over {LISTING_S} s")
        if recursive:
            parts = (name[start:].split("/") for name in files)
            folders = {key[:start] + "/".join(each[:n]) for each in parts for n in range(1, len(each))}
        # Some tools leave an empty object for a folder.
        return [file for file in files.values() if file.n_bytes or file.key not in folders], folders

    def _in_time(self, ask: Callable[[], Made], directory: str) -> Made:
        """What a part of a listing gives; a DataError of one that does not end.

        A broken gateway may say for ever that more follows.
        """
        answer: Future[Made] = Future()

        def answered() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:  # whatever it is, it is raised where the answer is waited for
                answer.set_exception(error)

        Thread(target=answered, daemon=True).start()  # nobody waits for it at the end
        quiet_s = QUIET_S if self._objects.lists_by_page else LISTING_S
        try:
            return answer.result(quiet_s)
        except TimeoutError as error:
            raise self._endless(directory, f"for {quiet_s} s no page brought a new key") from error

    def _endless(self, directory: str, fault: str) -> DataError:
        what = f"{directory}: its listing does not end: {fault} ({self._request(directory).where})."
        return DataError(what, "Name the files, or a folder further below. Does the endpoint page as S3 does?")

    def _uri(self, key: str) -> Uri:
        return Uri(f"{self._start}/{key}", self._query)


def _is_hidden(path: str, below: str) -> bool:
    return any(part.startswith((".", "_")) for part in path[len(below) :].split("/"))
