"""The Hugging Face Hub, by huggingface_hub's file system: repositories of data sets and models as folders.

That file system keeps what it listed, takes what a server refuses for a file that is not there, and raises errors of a
client of HTTP that differs from release to release.  Here every question is asked anew, and errors are OSErrors with
the words that other stores have.  A new file is there when its commit is made.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from rlcorr_cli.files.buckets import Found, Upload

STATES = ("blob_id", "xet_hash")
"""What the Hub calls the state of a file."""


class Hub:
    """A repository, which is asked as `buckets.Bucket` is."""

    lists_by_page = False

    def __init__(self, repository: str) -> None:
        """repository: 'datasets/someone/rollouts'.  An ImportError where huggingface_hub is not installed."""
        from huggingface_hub import HfFileSystem

        # The package takes its endpoint from the variable once, when it is loaded.
        self._files: Any = HfFileSystem(endpoint=os.environ.get("HF_ENDPOINT") or None, skip_instance_cache=True)
        self._repository = repository

    def found(self, key: str) -> Found:
        """A file as it is now."""
        info = self._info(key)
        if info["type"] != "file":
            raise FileNotFoundError(key)
        return _found_file(key, info)

    def is_folder(self, key: str) -> bool:
        """Whether a folder is there; git has no empty ones."""
        try:
            return self._info(key)["type"] == "directory"
        except FileNotFoundError:
            self._check_repository()
            return False

    def pages(self, folder: str, *, recursive: bool) -> Iterator[tuple[list[Found], list[str]]]:
        """Files and folders in a folder, or files below, at once."""
        start = f"{self._repository}/"
        name = (start + folder).rstrip("/")
        try:
            with _as_os_error():
                depth = None if recursive else 1
                entries = self._files.find(name, maxdepth=depth, withdirs=not recursive, detail=True, refresh=True)
        except FileNotFoundError:
            entries = {}
        if not entries:
            self._check_repository()
        infos = {path.removeprefix(start): info for path, info in entries.items() if path.strip("/") != name}
        files = [_found_file(key, info) for key, info in infos.items() if info["type"] == "file"]
        yield files, [key for key, info in infos.items() if info["type"] != "file"]

    def reader(self, found: Found) -> Callable[[int, int], bytes]:
        """What gives the bytes of a file from a place on, so many."""
        name, lock = f"{self._repository}/{found.key}", Lock()

        @cache
        def opened() -> Any:
            # Who reads asks for large pieces itself, so none is read ahead.
            return self._files.open(name, "rb", size=found.n_bytes, cache_type="none")

        def read(start: int, n: int) -> bytes:
            with _as_os_error(), lock:
                opened().seek(start)
                return opened().read(n)

        return read

    def upload(self, key: str, size: int | None) -> Upload:
        """A new file."""
        with _as_os_error():
            file = self._files.open(f"{self._repository}/{key}", "wb")
        # Else it would be committed when it is closed or forgotten.
        return Upload(file, _as_os_error, lambda: setattr(file, "closed", True))

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        """A whole file.  `new` changes nothing: it was looked a moment before."""
        upload = self.upload(key, None)
        try:
            upload.write(data)
            upload.complete()
        except BaseException:
            upload.abort()
            raise

    def delete(self, key: str) -> None:
        """Remove a file; a FileNotFoundError where it is not there."""
        self._info(key)
        with _as_os_error():
            self._files.rm(f"{self._repository}/{key}")

    def delete_below(self, folder: str) -> None:
        """Remove all that is below, by one commit."""
        with _as_os_error():
            self._files.rm(f"{self._repository}/{folder}", recursive=True)

    def _check_repository(self) -> None:
        """An OSError where not even the repository is there, which the Hub tells as it tells a missing file."""
        try:
            self._info("")
        except FileNotFoundError as error:
            raise OSError("NoSuchBucket") from error

    def _info(self, key: str) -> dict[str, Any]:
        """Asked for alone: what is known of a folder may be old, and to list it for every file of it takes long."""
        with _as_os_error():
            self._files.dircache.clear()
            return self._files.info(f"{self._repository}/{key}".rstrip("/"), refresh=True, expand_info=bool(key))


def _found_file(key: str, info: Mapping[str, Any]) -> Found:
    state = tuple(str(info[name]) for name in STATES if info.get(name))
    return Found(key, info.get("size") or 0, state, getattr(info.get("last_commit"), "date", None))


@contextmanager
def _as_os_error() -> Generator[None]:
    """What the Hub refuses, as an OSError in the words of other stores."""
    from huggingface_hub import errors

    http_error: Any = errors.HfHubHTTPError.__mro__[1]
    unnamed = (errors.HFValidationError, getattr(errors, "HfUriError", errors.HFValidationError))
    try:
        yield
    except FileNotFoundError as error:
        if isinstance(error.__cause__, errors.GatedRepoError):
            raise OSError(f"HTTP status 403: {error.__cause__}") from error
        raise
    except (errors.RepositoryNotFoundError, errors.EntryNotFoundError) as error:
        raise FileNotFoundError(str(error)) from error
    except errors.HfHubHTTPError as error:
        raise OSError(f"HTTP status {error.response.status_code}: {error}") from error
    except http_error as error:
        raise OSError(f"Could not connect: {error}") from error
    except unnamed as error:
        raise OSError(str(error)) from error
