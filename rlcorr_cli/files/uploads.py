"""New objects in stores: seen when they are whole, and not before.

obstore writes to `s3://`, `gs://` and `abfs://`.  A small object is one request.  A larger one is sent in parts, which
nobody sees until the upload is completed; an aborted one leaves nothing.  It asks the same store as reading does, as
the same user: what pyarrow's clients take from variables, files and a URI is handed to obstore here.

The Hub is written by huggingface_hub: it shows a file when its commit is made.

Errors are OSErrors, in whose words `services.refused` finds what is wrong.
"""

import io
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from configparser import RawConfigParser
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from rlcorr_cli.files.services import AWS, AZURE, GOOGLE, SERVICES, container

PART_BYTES = 1 << 23
"""What is sent in one request; a larger object is sent in parts of at least as much."""
MOST_PARTS = 9_999
"""Stores take 10,000 parts of an object."""
PARTS_AT_ONCE = 4
"""Parts of one object that are under way, where it is written as its content comes."""
CLIENT: Mapping[str, Any] = {"allow_http": True, "timeout": "60s", "connect_timeout": "10s"}
RETRIES: Mapping[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
PAGE = 50
"""Keys that are listed at a time."""
AWS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
"""What a profile has, if it holds keys itself."""


class _Stream(Protocol):
    """How a kind of store takes an object."""

    def write(self, data: Any, /) -> int: ...

    def complete(self) -> None: ...

    def abort(self) -> None: ...


class Upload(io.RawIOBase):
    """An object on its way, as a file to be written: `complete` shows it, `abort` leaves nothing of it."""

    def __init__(self, stream: _Stream) -> None:
        self._stream, self._n_bytes = stream, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._n_bytes += (n := memoryview(data).nbytes)
        self._stream.write(data)
        return n

    def tell(self) -> int:
        return self._n_bytes

    def complete(self) -> None:
        """Have the object under its name, in the place of what has it."""
        try:
            self._stream.complete()
        except Exception:
            self.abort()
            raise
        self.close()

    def abort(self) -> None:
        """Leave nothing of it, and what has its name as it is."""
        with suppress(OSError):
            self._stream.abort()
        self.close()


class ObjectStore:
    """A bucket or container, by obstore."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def upload(self, key: str, size: int | None) -> Upload:
        """size: of the object, if it is known: then no more than one part is under way, and the last `write` returns
        when all the others have come."""
        # What is left for the end is less than a byte for each part, and never nothing.
        part, at_once = PART_BYTES, PARTS_AT_ONCE
        if size is not None and size > PART_BYTES:
            part, at_once = (size - 1) // min(size // PART_BYTES, MOST_PARTS), 1
        import obstore

        with _as_os_error():
            writer = obstore.open_writer(self._store, key, buffer_size=part, max_concurrency=at_once)
        return Upload(_ObjectStream(writer))

    def pages(self, folder: str) -> Iterator[list[str]]:
        """Keys below a folder, some at a time, as they come."""
        import obstore

        with _as_os_error():
            for page in obstore.list(self._store, f"{folder}/".lstrip("/"), chunk_size=PAGE):
                yield [meta["path"] for meta in page]

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        """A whole object in one request.  new: a FileExistsError where another has the name."""
        import obstore

        with _as_os_error():
            try:
                mode = "create" if new else "overwrite"
                obstore.put(self._store, key, data, use_multipart=False, mode=mode)
            except obstore.exceptions.BaseError as error:
                if not new or "501 Not Implemented" not in str(error):
                    raise
                # Some servers of S3's kind do not know the condition; it was looked a moment before.
                obstore.put(self._store, key, data, use_multipart=False)


class _ObjectStream:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: Any, /) -> int:
        with _as_os_error():
            return self._writer.write(data)

    def complete(self) -> None:
        with _as_os_error():
            self._writer.close()

    def abort(self) -> None:
        aborted = InterruptedError()
        with _as_os_error():
            self._writer.__exit__(type(aborted), aborted, None)


class OtherStore:
    """A store that obstore does not know: the Hub."""

    def __init__(self, open_stream: Callable[[str], _Stream]) -> None:
        self._open_stream = open_stream

    def upload(self, key: str, size: int | None) -> Upload:
        """As of `ObjectStore`."""
        return Upload(self._open_stream(key))

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        """As of `ObjectStore`, but that `new` changes nothing: it was looked a moment before."""
        upload = self.upload(key, None)
        try:
            upload.write(data)
            upload.complete()
        except BaseException:
            upload.abort()
            raise


@contextmanager
def _as_os_error() -> Generator[None]:
    """What obstore raises, as an OSError with its first words: what follows is a look into its own values."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError as error:
        raise FileExistsError(str(error)) from error
    except (BaseError, ValueError) as error:  # of a key that it does not take
        raise OSError(str(error).split("\n\nDebug source")[0]) from error


def object_store(scheme: str, place: str, files: Any, azure: Callable[[], Mapping[str, str]]) -> ObjectStore | None:
    """The bucket or container by obstore; None where it knows no such store.

    files: pyarrow's, which has found out a bucket's region.  azure: account, authority and scheme, as of
    `stores.azure_account`.
    """
    service = SERVICES[scheme]
    name = container(place)
    with _as_os_error():
        from obstore import store

        if service is AWS:
            endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
            settings = {"endpoint": endpoint} if endpoint else {}
            settings |= {"region": files.region} if files.region else {}
            settings |= {key.removeprefix("aws_"): value for key, value in _profile_keys().items()}
            made: Any = store.S3Store(name, client_options=CLIENT, retry_config=RETRIES, **settings)
        elif service is GOOGLE:
            endpoint = os.environ.get(GOOGLE.endpoint)
            settings = {"base_url": endpoint} if endpoint else {}
            # It asks the machine for a token, even where it is told to use none.
            settings |= {"bearer_token": "anonymous"} if endpoint or place.startswith("anonymous@") else {}
            made = store.GCSStore(name, client_options=CLIENT, retry_config=RETRIES, **settings)
        elif service is AZURE:
            made = store.AzureStore(name, client_options=CLIENT, retry_config=RETRIES, **_azure(azure()))
        else:
            return None
    return ObjectStore(made)


def _profile_keys() -> dict[str, str]:
    """The keys of the profile that AWS_PROFILE names, where no variable has them; none where it leads to others."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    name = os.environ.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        profiles = RawConfigParser()
        profiles.read(os.environ.get(variable) or Path.home() / ".aws" / file, encoding="utf-8")
        if profiles.has_section(section):
            found |= {key: profiles[section][key] for key in AWS_KEYS if key in profiles[section]}
    return found if {*AWS_KEYS[:2]} <= found.keys() else {}


def _azure(account: Mapping[str, str]) -> dict[str, Any]:
    """By an account key or a signature, if a variable has one, else by a token, as of `az login` where there is one."""
    settings: dict[str, Any] = {"account_name": account["account_name"]}
    authority = account.get("blob_storage_authority", "")
    if authority and not authority.startswith("."):
        settings["endpoint"] = f"{account['blob_storage_scheme']}://{authority}/{account['account_name']}"
    key, signature = os.environ.get("AZURE_STORAGE_KEY"), os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    if key:
        settings["account_key"] = key
    elif signature:
        settings["sas_key"] = signature.removeprefix("?")
    elif not os.environ.get("AZURE_CLIENT_ID") and shutil.which("az"):
        settings["use_azure_cli"] = True
    return settings
