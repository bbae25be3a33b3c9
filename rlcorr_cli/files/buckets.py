"""Buckets and containers, by obstore: `s3://`, `gs://` and `abfs://` are listed, read and written by one client.

`bucket` opens one, as the user and at the endpoint that variables, files and a URI's query name: nothing else asks for
credentials.  Reading and writing differ in their limits of time alone.

A small object is written by one request.  A larger one is sent in parts, which nobody sees until the upload is
completed; an aborted one leaves nothing.

Errors are OSErrors, in whose words `services.refused` finds what is wrong.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from configparser import RawConfigParser
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.services import AWS, AZURE, AZURE_HOST, GOOGLE, SERVICES, container
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Stamp

PART_BYTES = 1 << 23
"""What is sent in one request; a larger object is sent in parts of at least as much."""
MOST_PARTS = 9_999
"""Stores take 10,000 parts of an object."""
PARTS_AT_ONCE = 4
"""Parts of one object that are under way, where it is written as its content comes."""
PAGE = 1000
"""Keys that are listed at a time."""
CONNECTED_S, UNANSWERED_S, SENT_S, READ_S = 10, 10, 60, 600
"""When a connection, and an answer of which nothing comes, are taken for lost, and a request that sends or reads."""
RETRIES: Mapping[str, Any] = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.5)},
}
ASKED_S = 60
"""How long another command may take to find credentials."""
AWS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
"""What a profile has, if it holds keys itself."""
LEADS_TO_KEYS = ("credential_process", "sso_session", "sso_start_url", "role_arn", "login_session")
"""What a profile has, if a command finds its keys."""
GOOGLE_FILES = ("service_account", "authorized_user")
"""Types of files of Google's that obstore reads itself."""
AZURE_HOSTS = (".blob.core.windows.net", ".dfs.core.windows.net")
"""How hosts of Azure's accounts end."""


@frozen
class Found:
    """An object as its store tells of it.  state: what changes when it is written again.  time: when that was."""

    key: str
    n_bytes: int
    state: tuple[int | str, ...]
    time: datetime | None

    @property
    def stamp(self) -> Stamp:
        """Which state of it that is."""
        return self.n_bytes, *self.state


class Upload(io.RawIOBase):
    """An object on its way, as a file to be written: `complete` shows it, `abort` leaves nothing of it."""

    def __init__(
        self, writer: Any, as_os_error: Callable[[], AbstractContextManager[None]], leave: Callable[[], object]
    ) -> None:
        """writer: its end shows the object.  as_os_error: around all that it does.  leave: ends it otherwise."""
        self._writer, self._as_os_error, self._leave, self._n_bytes = writer, as_os_error, leave, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._n_bytes += (n := memoryview(data).nbytes)
        with self._as_os_error():
            self._writer.write(data)
        return n

    def tell(self) -> int:
        return self._n_bytes

    def complete(self) -> None:
        """Have the object under its name, in the place of what has it."""
        try:
            with self._as_os_error():
                self._writer.close()
        except Exception:
            self.abort()
            raise
        self.close()

    def abort(self) -> None:
        """Leave nothing of it, and what has its name as it is."""
        with suppress(OSError), self._as_os_error():
            self._leave()
        self.close()


class Bucket:
    """A bucket or container.  Of what is not there, `found` and the readers raise FileNotFoundErrors."""

    lists_by_page = True

    def __init__(self, reading: Any, writing: Any, other_region: Callable[[], str]) -> None:
        """reading, writing: obstore's clients.  other_region: that the bucket is in, if it is not the one asked."""
        import obstore

        self._obstore: Any = obstore
        self._reading, self._writing, self._other_region = reading, writing, other_region

    def found(self, key: str) -> Found:
        """An object as it is now."""
        with self._as_os_error():
            return _found_object(self._obstore.head(self._reading, key))

    def is_folder(self, key: str) -> bool:
        """Whether anything lies below it."""
        return any(files for files, _ in self.pages(key, recursive=True, at_once=1))

    def pages(self, folder: str, *, recursive: bool, at_once: int = PAGE) -> Iterator[tuple[list[Found], list[str]]]:
        """Files and folders in a folder, some at a time as they come; or all files below, whose names tell folders."""
        below = f"{folder}/".lstrip("/")
        with self._as_os_error():
            if not recursive:
                listed = self._obstore.list_with_delimiter(self._reading, below)
                yield _files_of_page(listed["objects"], folder), list(listed["common_prefixes"])
                return
            for page in self._obstore.list(self._reading, below, chunk_size=at_once):
                yield _files_of_page(page, folder), []

    def reader(self, found: Found) -> Callable[[int, int], Any]:
        """What gives the bytes of an object from a place on, so many, as a buffer."""

        def read(start: int, n: int) -> Any:
            with self._as_os_error():
                return self._obstore.get_range(self._reading, found.key, start=start, length=n)

        return read

    def upload(self, key: str, size: int | None) -> Upload:
        """size: of the object, if it is known: then no more than one part is under way, and the last `write` returns
        when all the others have come."""
        # What is left for the end is less than a byte for each part, and never nothing.
        part, at_once = PART_BYTES, PARTS_AT_ONCE
        if size is not None and size > PART_BYTES:
            part, at_once = (size - 1) // min(size // PART_BYTES, MOST_PARTS), 1
        with self._as_os_error():
            writer = self._obstore.open_writer(self._writing, key, buffer_size=part, max_concurrency=at_once)
        aborted = InterruptedError()
        return Upload(writer, self._as_os_error, partial(writer.__exit__, type(aborted), aborted, None))

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        """A whole object in one request.  new: a FileExistsError where another has the name."""
        with self._as_os_error():
            try:
                mode = "create" if new else "overwrite"
                self._obstore.put(self._writing, key, data, use_multipart=False, mode=mode)
            except self._obstore.exceptions.BaseError as error:
                if not new or "501 Not Implemented" not in str(error):
                    raise
                # Some servers of S3's kind do not know the condition; it was looked a moment before.
                self._obstore.put(self._writing, key, data, use_multipart=False)

    def delete(self, key: str) -> None:
        """Remove an object; some stores raise a FileNotFoundError where it is not there."""
        self._delete([key])

    def delete_below(self, folder: str) -> None:
        """Remove all that is below."""
        for files, _ in self.pages(folder, recursive=True):
            self._delete([file.key for file in files])

    def _delete(self, keys: Sequence[str]) -> None:
        with self._as_os_error():
            self._obstore.delete(self._writing, keys)

    @contextmanager
    def _as_os_error(self) -> Generator[None]:
        """What obstore raises, as an OSError with its first words: what follows is a look into its own values."""
        exceptions = self._obstore.exceptions
        try:
            yield
        except exceptions.AlreadyExistsError as error:
            raise FileExistsError(str(error)) from error
        except (exceptions.BaseError, ValueError) as error:  # of a key that it does not take
            text = str(error).split("\n\nDebug source")[0]
            if re.search(r"status code: 400|without LOCATION", text) and (region := self._other_region()):
                text = f"The bucket is located in '{region}': {text}"
            raise OSError(text) from error


def _found_object(entries: Mapping[str, Any]) -> Found:
    time = entries["last_modified"]
    return Found(entries["path"], entries["size"], (entries["e_tag"] or "", int(time.timestamp())), time)


def _files_of_page(entries: Iterable[Mapping[str, Any]], folder: str) -> list[Found]:
    """Without the empty object that some tools leave for the folder itself."""
    return [_found_object(each) for each in entries if each["path"] != folder]


def bucket(scheme: str, place: str, query: str) -> Bucket:
    """The bucket or container of URIs that begin with `scheme://place/`; an OSError where nobody could ask for it."""
    from obstore import store

    service = SERVICES[scheme]
    name = container(place)
    asked = dict(parse_qsl(query))
    for variable in (*service.variables, *service.secrets):
        if os.environ.get(variable) == "":  # which obstore takes for a value
            del os.environ[variable]
    of_service: dict[Any, tuple[Any, Callable[[str, dict[str, str]], dict[str, Any]]]] = {
        AWS: (store.S3Store, _s3),
        GOOGLE: (store.GCSStore, _google),
        AZURE: (store.AzureStore, _azure),
    }
    kind, settings_of = of_service[service]
    client: dict[str, Any] = {"allow_http": True, "connect_timeout": f"{CONNECTED_S}s"}
    if asked.pop("tls_verify_certificates", "true") in ("false", "0"):
        client["allow_invalid_certificates"] = True
    retries = dict(RETRIES)
    if limit := asked.pop("retry_limit_seconds", ""):
        retries |= {"max_retries": 10, "retry_timeout": timedelta(seconds=float(limit))}
    settings = settings_of(place, asked)
    if asked:
        raise OSError(f"its query has {next(iter(asked))}, which is not known")
    limits = {"timeout": f"{READ_S}s", "read_timeout": f"{UNANSWERED_S}s"}, {"timeout": f"{SENT_S}s"}
    try:
        reading, writing = (
            kind(name, client_options={**client, **limit}, retry_config=retries, **settings) for limit in limits
        )
    except Exception as error:  # obstore's are of no one kind
        raise OSError(str(error).split("\n\nDebug source")[0]) from error
    return Bucket(reading, writing, partial(_other_region, name, settings) if service is AWS else str)


def _server(asked: dict[str, str]) -> str:
    """The endpoint that a query names."""
    named, protocol = asked.pop("endpoint_override", ""), asked.pop("scheme", "https")
    return named if not named or "://" in named else f"{protocol}://{named}"


def _s3(place: str, asked: dict[str, str]) -> dict[str, Any]:
    """By keys of variables or of a profile, else by what the profile leads to, else by the role of the machine."""
    endpoint = _server(asked) or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    profile_name, profile = _profile()
    region = (
        asked.pop("region", "")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or profile.get("region")
        or ("us-east-1" if endpoint else _region(container(place)))
    )
    settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    settings |= {"region": region} if region else {}
    if asked.pop("force_virtual_addressing", "") in ("true", "1"):
        settings["virtual_hosted_style_request"] = True
    if place.startswith("anonymous@"):
        return {**settings, "skip_signature": True}
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return settings
    if {*AWS_KEYS[:2]} <= profile.keys():
        return settings | {key.removeprefix("aws_"): profile[key] for key in AWS_KEYS if key in profile}
    if any(key in profile for key in LEADS_TO_KEYS):
        by_aws = f"aws configure export-credentials --format process --profile {shlex.quote(profile_name)}"
        command = profile.get("credential_process") or by_aws
        return settings | {"credential_provider": partial(_aws_credentials, shlex.split(command))}
    return settings


def _profile() -> tuple[str, dict[str, str]]:
    """The name of the profile that AWS_PROFILE names, and what its files say of it."""
    name = os.environ.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        profiles = RawConfigParser()
        profiles.read(os.environ.get(variable) or Path.home() / ".aws" / file, encoding="utf-8")
        found |= dict(profiles[section]) if profiles.has_section(section) else {}
    return name, found


def _aws_credentials(command: Sequence[str]) -> dict[str, Any]:
    """Keys that a command prints, as AWS's own tools ask for them."""
    entries = json.loads(_printed(command))
    expires = entries.get("Expiration")
    return {
        "access_key_id": entries["AccessKeyId"],
        "secret_access_key": entries["SecretAccessKey"],
        "token": entries.get("SessionToken"),
        "expires_at": datetime.fromisoformat(expires) if expires else None,
    }


def _printed(command: Sequence[str]) -> str:
    """What a command prints that finds credentials."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=ASKED_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OSError(f"AuthenticationException: {error}") from error
    if ran.returncode:
        raise OSError(f"AuthenticationException: {ran.stderr}")
    return ran.stdout


def _region(bucket: str, endpoint: str = "https://s3.amazonaws.com") -> str:
    """Where a bucket is, as its server tells everyone; '' where it does not."""
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=CONNECTED_S) as answer:
            return answer.headers.get("x-amz-bucket-region") or ""
    except urllib.error.HTTPError as error:
        return error.headers.get("x-amz-bucket-region") or ""
    except OSError:
        return ""


def _other_region(bucket: str, settings: Mapping[str, Any]) -> str:
    region = _region(bucket, *([settings["endpoint"]] if "endpoint" in settings else []))
    return "" if region == settings.get("region") else region


def _google(place: str, asked: dict[str, str]) -> dict[str, Any]:
    """By the file of a variable or what gcloud has written, else by the role of the machine; an emulator's asks for
    none."""
    endpoint = _server(asked) or os.environ.get(GOOGLE.endpoint)
    settings: dict[str, Any] = {"base_url": endpoint} if endpoint else {}
    file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if place.startswith("anonymous@") or (endpoint and not file):
        # To write, obstore asks the machine for a token, even where it is told to use none.
        return settings | ({"bearer_token": "anonymous"} if endpoint else {"skip_signature": True})
    with suppress(OSError, ValueError):
        if file and json.loads(Path(file).read_bytes()).get("type") not in GOOGLE_FILES:
            settings["credential_provider"] = _google_token
    return settings


def _google_token() -> dict[str, Any]:
    """By gcloud, which knows all kinds of credentials; it is asked again before it would give another one."""
    token = _printed(["gcloud", "auth", "application-default", "print-access-token"]).strip()
    return {"token": token, "expires_at": datetime.now(UTC) + timedelta(minutes=6)}


def _azure(place: str, asked: dict[str, str]) -> dict[str, Any]:
    """By an account key or a signature, if a variable has one, else by a token, as of `az login` where there is one."""
    if ("/" not in place and AZURE_HOST.fullmatch(place)) or not container(place):
        raise UsageError(f"abfs://{place} names no container.", f"Write {AZURE.example}.")
    user, _, host = place.partition("/")[0].rpartition("@")
    account = next((host.removesuffix(end) for end in AZURE_HOSTS if host.endswith(end)), user)
    if not account:
        raise OSError("it has no valid account name")
    settings: dict[str, Any] = {"account_name": account}
    protocol = "http" if asked.pop("enable_tls", "true") in ("false", "0") else "https"
    server = asked.pop("blob_storage_authority", "")
    asked.pop("dfs_storage_authority", "")
    if not server and re.search("[.:]", host) and not host.endswith(AZURE_HOSTS):
        server = host
    endpoint = f"{protocol}://{server}" if server else os.environ.get(AZURE.endpoint)
    if endpoint:
        settings["endpoint"] = f"{endpoint.rstrip('/')}/{account}"
    settings |= {name: asked.pop(name) for name in ("tenant_id", "client_id") if name in asked}
    key, signature = os.environ.get("AZURE_STORAGE_KEY"), os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    if asked.pop("credential_kind", "") == "anonymous":
        settings["skip_signature"] = True
    elif key:
        settings["account_key"] = key
    elif signature:
        settings["sas_key"] = signature.removeprefix("?")
    elif not os.environ.get("AZURE_CLIENT_ID") and shutil.which("az"):
        settings["use_azure_cli"] = True
    return settings
