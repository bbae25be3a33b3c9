"""The Hugging Face Hub, by huggingface_hub's file system: repositories of data sets and models as folders.

That file system keeps what it listed, takes what a server refuses for a file that is not there, and raises errors of a
client of HTTP that differs from release to release.  Here every question is asked anew, and errors are OSErrors with
the words that other stores have.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rlcorr_cli.files.disk import stated_minute

STATES = ("blob_id", "xet_hash", "mtime")
"""What the Hub calls the state of a file."""


def hub() -> tuple[fs.PyFileSystem, Callable[[str], tuple[tuple[str, ...], str | None]]]:
    """The Hub, and what tells a file's state; an ImportError where huggingface_hub is not installed."""
    from huggingface_hub import HfFileSystem

    # The package takes its endpoint from the variable once, when it is loaded.
    handler = _Hub(HfFileSystem(endpoint=os.environ.get("HF_ENDPOINT") or None, skip_instance_cache=True))
    return fs.PyFileSystem(handler), handler.state


class _Hub(fs.FSSpecHandler):
    """As pyarrow has it for every file system of fsspec, but for what the module says."""

    def state(self, path: str) -> tuple[tuple[str, ...], str | None]:
        """Which state of a file is there now, and when the commit that last changed it was made."""
        info = self._info(path)
        date = getattr(info.get("last_commit"), "date", None)
        modified = None if date is None else stated_minute(date.isoformat())
        return tuple(str(info[name]) for name in STATES if info.get(name)), modified

    def states(self, folder: str) -> dict[str, tuple[int | str, ...]]:
        """Which state of each file below a folder is there now, by one listing."""
        with _as_os_error():
            entries = self.fs.find(folder.strip("/"), detail=True, refresh=True)
        return {
            path: (info.get("size") or 0, *(str(info[name]) for name in STATES[:2] if info.get(name)))
            for path, info in entries.items()
        }

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._file_info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        base = selector.base_dir.strip("/")
        with _as_os_error():
            maxdepth = None if selector.recursive else 1
            entries = self.fs.find(base, maxdepth=maxdepth, withdirs=True, detail=True, refresh=True)
        infos = [self._create_file_info(path, info) for path, info in entries.items() if path.strip("/") != base]
        if not infos and not selector.allow_not_found:  # git has no empty folders
            raise FileNotFoundError(base)
        return infos

    def open_input_file(self, path: str) -> pa.PythonFile:
        info = self._info(path)
        if info["type"] != "file":
            raise FileNotFoundError(path)
        with _as_os_error():
            # Who reads asks for large pieces itself, so none is read ahead.
            return pa.PythonFile(_File(self.fs.open(path, "rb", size=info["size"], cache_type="none")), mode="r")

    def stream(self, path: str) -> "_File":
        """A new file, which is there when its commit is made."""
        with _as_os_error():
            return _File(self.fs.open(path, "wb"))

    def delete_file(self, path: str) -> None:
        self._info(path)
        with _as_os_error():
            self.fs.rm(path)

    def delete_dir(self, path: str) -> None:
        with _as_os_error():
            self.fs.rm(path, recursive=True)

    def _info(self, path: str) -> dict[str, Any]:
        """Asked for alone: what is known of a folder may be old, and to list it for every file of it takes long."""
        with _as_os_error():
            self.fs.dircache.clear()
            is_repository = path.removeprefix("datasets/").count("/") < 2
            return self.fs.info(path, refresh=True, expand_info=not is_repository)

    def _file_info(self, path: str) -> fs.FileInfo:
        try:
            return self._create_file_info(path, self._info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)


class _File:
    """An open file whose errors are OSErrors."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, n: int = -1) -> bytes:
        with _as_os_error():
            return self._file.read(n)

    def write(self, data: bytes) -> int:
        with _as_os_error():
            return self._file.write(data)

    def close(self) -> None:
        with _as_os_error():
            self._file.close()

    complete = close

    def abort(self) -> None:
        """Nothing of it is committed, as it would be when the file is closed or forgotten."""
        self._file.closed = True


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
