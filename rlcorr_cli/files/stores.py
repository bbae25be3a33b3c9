"""Object stores, by pyarrow.fs: `s3://`, `gs://`, `abfs://` and `hf://`.

A store is opened once for each bucket or host (`opened`), in the way that its client needs.  An object is opened by one
request, kept while it is the same (`Kept`), and read in few large ones.  A path of a URI is taken as it is typed, as
the stores' own tools take it: `%20` is three characters of a key.

`FileSystem.from_uri` alone would not do.  Google's client would try for a quarter of an hour to reach an endpoint that
is not there.  Amazon's gives a request up after 3 s, and makes it thirty times: too soon for a store that is slow, too
long for one that is silent.  Azure's takes no account key by a URI; and where it finds no token, any call but a look at
a path ends the process, so that is the first.  Of a silent store neither Google's nor Azure's says a word for minutes:
`Impatient` gives them up.
"""

import io
import os
import re
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from threading import Thread
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files.disk import Contents, Status, changed, stated_minute, utc_minute
from rlcorr_cli.files.search import literal_start, matches
from rlcorr_cli.files.services import (
    AWS,
    AZURE,
    AZURE_FOLDERS,
    GOOGLE,
    SERVICES,
    StoreRequest,
    container,
    missing,
    refused,
    uri_parts,
)
from rlcorr_cli.files.uploads import ObjectStore, OtherStore, Upload, object_store
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Stamp, Uri

RETRIED_S = 20
"""For how long a request to Google is repeated; the last attempt may end twice as late."""
UNANSWERED_S, ATTEMPTS = 10, 4
"""Of a request to S3: when it is taken for lost, and how often it is made."""
KEPT_BY_URI = ("tls_verify_certificates=", "smart_defaults=")
"""What only a query can say to Amazon's client."""
AUTHORITIES = {".blob.core.windows.net": "blob_storage_authority", AZURE_FOLDERS: "dfs_storage_authority"}
"""The end of an Azure account's host -> the setting that has it."""
AZURE_SECRETS = {"AZURE_STORAGE_KEY": "account_key", "AZURE_STORAGE_SAS_TOKEN": "sas_token"}
"""Variable -> argument of AzureFileSystem; the first one that is set is taken."""

Made = TypeVar("Made")
State = Callable[[str], tuple[tuple[int | str, ...], str | None]]
"""Of a file's name: which state of it is there, and when it was last changed."""


@frozen
class Opened:
    """A file system, and what its paths begin with.  state: of a file, where an opened file does not tell it."""

    files: Any
    root: str
    state: State | None = None


def opened(scheme: str, place: str, query: str) -> Opened:
    """The file system of URIs that begin with `scheme://place/`."""
    service = SERVICES[scheme]
    if scheme == "hf":
        from rlcorr_cli.files.hub import hub

        files, state = hub()
        return Opened(files, f"{place}/", state)
    if service is AZURE:
        return _azure(place, query)
    patient = "retry_limit_seconds=" in query
    if service is GOOGLE and not patient:
        query = _joined(query, f"retry_limit_seconds={RETRIED_S}")
    files, path = fs.FileSystem.from_uri(_uri(scheme, place, query))
    if service is GOOGLE and not patient:
        files = Impatient(files)
    if service is AWS and not any(name in query for name in KEPT_BY_URI):
        files = _with_limits(files)
    return Opened(files, path.removesuffix("x"))


def _with_limits(files: fs.FileSystem) -> fs.FileSystem:
    """The same store with other limits of time: a URI cannot say them, so it is made again of what it is pickled as."""
    made, (settings,) = cast(Any, files).__reduce__()
    strategy = fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    return made({**settings, "request_timeout": UNANSWERED_S, "retry_strategy": strategy})


def _azure(place: str, query: str) -> Opened:
    """By an account key or a shared access signature, if a variable has one, else as pyarrow finds a token."""
    query = _joined(query, _azure_endpoint(place))
    files, path = fs.FileSystem.from_uri(_uri("abfs", place, query))
    if path.startswith("/") or "/" not in path:
        raise UsageError(f"abfs://{place} names no container.", f"Write {AZURE.example}.")
    secret = next((name for name in AZURE_SECRETS if os.environ.get(name)), "")
    if secret:
        value = os.environ[secret].removeprefix("?")
        # A signature is put behind an address as it is.
        value = f"?{value}" if secret == "AZURE_STORAGE_SAS_TOKEN" else value
        files = fs.AzureFileSystem(**{AZURE_SECRETS[secret]: value}, **azure_account(place, query))
    files = Impatient(files)
    # Before anything else is asked, because of tokens; what it finds out of the account is kept.
    files.get_file_info(path)
    return Opened(files, path.removesuffix("x"))


def _azure_endpoint(place: str) -> str:
    """What a query says of the server that the variable names, if the URI names none."""
    endpoint = os.environ.get(AZURE.endpoint, "")
    host = place.partition("/")[0].rpartition("@")[2]
    if not endpoint or (re.search("[.:]", host) and not host.endswith(tuple(AUTHORITIES))):
        return ""
    server = urlsplit(endpoint)
    named = [f"{name}={server.netloc}" for name in AUTHORITIES.values()]
    return "&".join([*named, f"enable_tls={'false' if server.scheme == 'http' else 'true'}"])


def azure_account(place: str, query: str) -> dict[str, str]:
    """The arguments that from_uri makes of a URI; a secret cannot be added to what it opened."""
    user, _, host = place.partition("/")[0].rpartition("@")
    settings = dict(parse_qsl(query))
    scheme = "http" if settings.get("enable_tls") in ("false", "0") else "https"
    account = next((host.removesuffix(end) for end in AUTHORITIES if host.endswith(end)), "")
    if not account and re.search("[.:]", host):
        settings = dict.fromkeys(AUTHORITIES.values(), host) | settings
    authorities = {name: settings[name] for name in AUTHORITIES.values() if name in settings}
    schemes = dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), scheme)
    return {"account_name": account or user, **authorities, **schemes}


def _uri(scheme: str, place: str, query: str) -> str:
    return f"{scheme}://{place}/x?{query}".rstrip("?")


def _joined(*queries: str) -> str:
    return "&".join(query for query in queries if query)


SILENT_S = 45
"""After which a store is taken for silent; where nothing listens, Google's client says so within 40 s."""


QUIET_S, LOOK_S, LISTING_S = 15, 0.1, 1800
"""After which a listing is looked at that brings nothing new, how often, and after which it is given up."""
SEEN_KEYS, MOST_KEYS = 1 << 17, 2_000_000
"""Keys that are kept to see whether they come again, and the most of a listing."""


class Impatient:
    """A file system of pyarrow's, of which a look at a path and the opening of a file end within `limit_s`.

    Other calls are passed on: a listing or a copy may well take longer, and a look comes before each.
    """

    def __init__(self, files: Any, limit_s: float = SILENT_S) -> None:
        self._files = files
        self._limit_s = limit_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def get_file_info(self, asked: Any) -> Any:
        """Of a path in time, of a selector as long as it takes."""
        ask = self._files.get_file_info
        return self._in_time(ask, asked) if isinstance(asked, str) else ask(asked)

    def open_input_file(self, path: str) -> Any:
        """As pyarrow's."""
        return self._in_time(self._files.open_input_file, path)

    def _in_time(self, call: Callable[[str], Any], path: str) -> Any:
        answer = _in_thread(partial(call, path))
        try:
            return answer.result(self._limit_s)
        except TimeoutError as error:
            if answer.done():  # the client's own
                raise
            raise TimeoutError(f"no answer within {self._limit_s:g} s") from error


def _in_thread(call: Callable[[], Made]) -> "Future[Made]":
    """What a call gives, made by a thread that nobody waits for at the end."""
    answer: Future[Made] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # whatever it is, it is raised where the answer is waited for
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return answer


def entries(files: Any, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
    """Files and folders in a folder, or also further below; a FileNotFoundError where there is none."""
    if files.type_name != "gcs":
        return files.get_file_info(fs.FileSelector(folder, recursive=recursive))
    # Of Google's store pyarrow tells the folders that it made itself, and no others: keys tell them all.
    infos = files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    if not infos and files.get_file_info(folder).type != fs.FileType.Directory:
        raise FileNotFoundError(folder)
    start = len(folder) + 1
    below = {info.path: info for info in infos if info.type == fs.FileType.File}
    folders = {info.path for info in infos if info.type == fs.FileType.Directory}
    for path in below:
        parts = path[start:].split("/")
        folders |= {f"{folder}/{'/'.join(parts[:n])}" for n in range(1, len(parts))}
    all_infos = [*below.values(), *(fs.FileInfo(path, fs.FileType.Directory) for path in folders)]
    return [info for info in all_infos if recursive or "/" not in info.path[start:]]


FIRST_BYTES, MOST_BYTES = 1 << 16, 1 << 23
"""What one request brings at least, at a new place and where a file is read on and on."""
SMALL_BYTES = 1 << 20
"""An object of no more is read whole in one request."""


@dataclass(kw_only=True)
class Kept:
    """An opened file: its size and state were asked for once, and reading at any place needs no more of it.

    modified: when it was last changed, None where the store does not tell.  made: what was read of it and is kept, None
    for nothing yet.  start: its first bytes, or all of a small one, once they were read.
    """

    file: Any
    stamp: Stamp
    modified: str | None = None
    made: Any = None
    start: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def contents(self) -> Any:
        """A file to be read at any place: the opened one, or of a small one another over its bytes."""
        return pa.BufferReader(self.first()) if 0 < self.file.size() <= SMALL_BYTES else self.file

    def first(self) -> bytes:
        """The first bytes, asked for once."""
        size = self.file.size()
        with self.lock:
            if not self.start and size:
                self.start = self.file.read_at(size if size <= SMALL_BYTES else FIRST_BYTES, 0)
        return self.start


class Bytes(io.RawIOBase):
    """A file of Arrow's as one of Python's, with a place of its own: the file itself may have other readers.

    Each request brings twice as much as the one before it, while one place is read after another.
    """

    def __init__(self, kept: Kept, explained: Callable[[Exception], DataError | None]) -> None:
        self._kept, self._file, self._explained, self._at = kept, kept.file, explained, 0
        self._first, self._piece, self._ahead = 0, b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size()}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        if not 0 <= self._at - self._first < len(self._piece):
            goes_on = self._at == self._first + len(self._piece)
            self._ahead = min(2 * self._ahead, MOST_BYTES) if goes_on and self._ahead else FIRST_BYTES
            self._first, self._piece = self._at, self._read(max(self._ahead, len(buffer)))
        start = self._at - self._first
        piece = self._piece[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _read(self, n: int) -> bytes:
        n = min(n, self._file.size() - self._at)
        try:
            if self._at < FIRST_BYTES or self._file.size() <= SMALL_BYTES:
                return self._kept.first()[self._at :]
            return self._file.read_at(n, self._at) if n > 0 else b""
        except (OSError, pa.ArrowException) as error:
            raise self._explained(error) or error from error


KEPT = 256
"""Files whose size and footer are kept."""
KEPT_BYTES = 1 << 26
"""Of the objects that are read whole, so many bytes are kept."""
PIECE_BYTES = 1 << 24
"""What is copied to the disk in one call."""
TIMES = ("last-modified", "updated")
"""What stores call the time of a file's last change."""
STATES = ("etag", *TIMES)
"""What stores call the state of a file."""
REFUSALS = (OSError, pa.ArrowException)
"""What pyarrow raises where a store refuses something, or where its own client does."""


def store(uri: Uri) -> "Store":
    """The store of a URI; all files of one place share it, and with it its connections."""
    scheme, place, key = uri_parts(uri)
    try:
        return _store(scheme, place, uri.query, tuple(SERVICES[scheme].settings.items()))
    except ImportError as error:
        hint = f"pip install 'rlcorr[{scheme}]'."
        raise DataError(f"{uri} needs a package that is not installed.", hint) from error
    except REFUSALS as error:
        raise refused(StoreRequest(uri, container(place), key, uri.query), error) from error


@cache
def _store(scheme: str, place: str, query: str, settings: tuple[tuple[str, str], ...]) -> "Store":
    """settings: the variables that say which store it is, so that it is another one where they are others."""
    return Store(f"{scheme}://{place}", query, opened(scheme, place, query))


class Store:
    """A place of files, as `disk.Disk` has it: one bucket or host.

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

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        """As of a disk, by one listing: sizes, and times or what the Hub has instead."""
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
        if uri_parts(self._start)[0] == "hf":
            with self._with_cause(folder):
                states = self._files.handler.states(self._name(folder))
            return {self._uri(name): state for name, state in states.items()}
        infos = self._selected(folder, recursive=True)
        is_file = fs.FileType.File
        return {self._uri(info.path): (info.size or 0, info.mtime_ns or 0) for info in infos if info.type == is_file}

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
        try:
            yield self._opened(path).contents()
        except pa.ArrowException as error:
            # What a store's own client raises while a file is read, such as of a token that can be had no more; Arrow's
            # complaints about contents are of narrower kinds, and those of the place are OSErrors: who reads asks for
            # both what `explained` says.
            if type(error) is not pa.ArrowException:
                raise
            raise refused(self._asked(path), error) from error

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
        # Who reads a file that became another one finds it damaged, or gone where a store keeps apart what was opened.
        if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):
            kept = self._kept.get(path)
            if kept is not None and self._is_other(path, kept.stamp):
                return changed(path)
        # Arrow's complaints about the contents are of narrower kinds.
        if isinstance(error, OSError) or type(error) is pa.ArrowException:
            return refused(self._asked(path), error)
        return None

    def upload(self, path: str, size: int | None = None) -> Upload:
        """A new object to be written; size: if it is known."""
        with self._with_cause(path):
            return self._writing.upload(self._written_name(path), size)

    def put(self, path: str, data: bytes, *, new: bool = False) -> None:
        """A whole small object.  new: a FileExistsError where another has the name, if the store can tell."""
        with self._with_cause(path):
            self._writing.put(self._written_name(path), data, new=new)

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        with self._with_cause(path), suppress(FileNotFoundError):
            self._files.delete_file(self._name(path))

    def delete_directory(self, directory: str) -> None:
        """Remove all that is below, if anything is."""
        with self._with_cause(directory), suppress(FileNotFoundError):
            self._files.delete_dir(self._name(directory))

    def names(self, directory: str) -> list[str]:
        """What is in a directory, hidden or not, sorted; a folder's name ends in a /."""
        files, folders = self._listed(directory, False)
        start = len(directory) + 1
        return sorted([*(file[start:] for file in files), *(f"{folder[start:]}/" for folder in folders)])

    def size_and_time(self, path: str) -> tuple[int, float]:
        """Bytes of an object or of all below a directory, and when the newest was written, in seconds."""
        info = self._info(path)
        infos = self._selected(path, recursive=True) if info.type == fs.FileType.Directory else [info]
        return sum(info.size or 0 for info in infos), max(((info.mtime_ns or 0) / 1e9 for info in infos), default=0.0)

    def check_place(self, path: str) -> None:
        """A DataError where the bucket is not there, or not ours."""
        self._selected(f"{self._start}/{uri_parts(path)[2].rpartition('/')[0]}", path)

    @cached_property
    def _writing(self) -> ObjectStore | OtherStore:
        """What writes; it is loaded when something is written."""
        scheme, place, _ = uri_parts(self._start)
        files = self._files
        if scheme == "hf":
            return OtherStore(files.handler.stream)
        made = object_store(scheme, place, files, lambda: azure_account(place, _azure_endpoint(place)))
        assert made is not None
        return made

    def _written_name(self, path: str) -> str:
        """A path as what writes names it: obstore by its key alone."""
        return uri_parts(path)[2] if isinstance(self._writing, ObjectStore) else self._name(path)

    @contextmanager
    def _with_cause(self, path: str) -> Generator[None]:
        """The cause of what is refused."""
        try:
            yield
        except FileExistsError:
            raise
        except REFUSALS as error:
            raise refused(self._asked(path), error) from error

    def _is_other(self, path: str, stamp: Stamp) -> bool:
        """Whether another file than that of the stamp is there now, or none."""
        try:
            return self._asked_for(path).stamp != stamp
        except DataError:
            return True

    def _asked(self, path: str) -> StoreRequest:
        name = self._name(path)
        place = self._container(name)
        return StoreRequest(path, place or container(uri_parts(path)[1]), name[len(place) :].strip("/"), self._query)

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
            raise refused(asked, FileNotFoundError("NO_SUCH_BUCKET")) from error

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
        with self._with_cause(path):
            try:
                file = self._files.open_input_file(self._name(path))
                if file.closed:  # Google's client reads on at once, and of what goes wrong then it says no more
                    self._files.open_input_stream(self._name(path)).close()
                    raise changed(path)
                size, metadata = file.size(), {name.lower(): value for name, value in (file.metadata() or {}).items()}
            except FileNotFoundError as error:  # of no such key, or no such bucket, which a request does not tell
                names = [info.base_name for info in self._selected(path.rpartition("/")[0], path)]
                raise missing(self._asked(path), names) from error
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

    def _info(self, path: str) -> Any:
        return self._info_of(self._name(path).rstrip("/") or self._root, path)

    def _info_of(self, name: str, path: str) -> Any:
        with self._with_cause(path):
            return self._files.get_file_info(name)

    def _listed(self, directory: str, recursive: bool) -> tuple[list[str], list[str]]:
        """The URIs of the files and of the folders below, sorted; none where there is no such folder."""
        infos = self._selected(directory, recursive=recursive)
        files: list[str] = [self._uri(info.path) for info in infos if info.type == fs.FileType.File]
        folders: list[str] = [self._uri(info.path) for info in infos if info.type == fs.FileType.Directory]
        return sorted(files), sorted(folders)

    def _selected(self, directory: str, asked: str = "", *, recursive: bool = False) -> list[fs.FileInfo]:
        """What is in a folder, nothing where it is not there; a DataError on what was asked for, if it is not the
        folder, where not even the bucket is there."""
        with self._with_cause(asked or directory):
            name = self._name(directory).rstrip("/") or self._root
            listing = _in_thread(partial(entries, self._files, name, recursive=recursive))
            try:
                return self._waited_for(listing, directory)
            except FileNotFoundError as error:
                self._check_place(asked or directory, error)
                return []

    def _waited_for(self, listing: "Future[list[fs.FileInfo]]", directory: str) -> list[fs.FileInfo]:
        """What a listing gives; a DataError of one that does not end."""
        with suppress(TimeoutError):
            return listing.result(QUIET_S)
        for fault in self._listed_again(directory):
            if listing.done():
                break
            if fault:
                what = f"{directory}: its listing does not end: {fault} ({self._asked(directory).where})."
                raise DataError(what, "Name the files, or a folder further below. Does the endpoint page as S3 does?")
        return listing.result()

    def _listed_again(self, directory: str) -> Iterator[str]:
        """What is wrong with a listing that takes long, "" while nothing is; again and again.

        A broken gateway may say for ever that more follows, and pyarrow's clients say nothing before the end.  So the
        keys are listed a second time by obstore, which gives them as they come; where it cannot, time alone tells.
        """
        end, n_keys, seen = time.monotonic() + LISTING_S, 0, set[str]()
        pages: Iterator[list[str]] | None = None
        if isinstance(self._writing, ObjectStore) and not self._query:
            pages = self._writing.pages(uri_parts(directory)[2])
        while True:
            keys: list[str] | None = None
            try:
                keys = None if pages is None else _in_thread(partial(next, pages, None)).result(QUIET_S)
            except TimeoutError:
                yield f"for {QUIET_S} s no page brought a new key"
            except OSError:  # it has no credentials
                pages = None
            if keys is None:
                pages = None
                time.sleep(LOOK_S)
            elif seen.issuperset(keys):
                yield f"after {n_keys:,} keys no page brings a new one"
            elif n_keys < SEEN_KEYS:
                seen.update(keys)
            n_keys += len(keys or ())
            fault = f"it has over {MOST_KEYS:,} keys" if n_keys > MOST_KEYS else ""
            yield fault or (f"it took over {LISTING_S} s" if time.monotonic() > end else "")

    def _uri(self, name: str) -> Uri:
        return Uri(f"{self._start}/{name.removeprefix(self._root)}", self._query)


def _is_hidden(path: str, below: str) -> bool:
    return any(part.startswith((".", "_")) for part in path[len(below) :].split("/"))


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
