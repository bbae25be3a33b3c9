"""How pyarrow opens each kind of store, where `FileSystem.from_uri` alone would not do.

Google's client would try for a quarter of an hour to reach an endpoint that is not there.  Amazon's gives a request up
after 3 s, and makes it thirty times: too soon for a store that is slow, too long for one that is silent.  Azure's takes
no account key by a URI; and where it finds no token, any call but a look at a path ends the process, so that is the
first.  Of a silent store neither Google's nor Azure's says a word for minutes: see `waiting`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

from rlcorr_cli.errors import UsageError
from rlcorr_cli.storage.services import AWS, AZURE, AZURE_FOLDERS, GOOGLE, SERVICES
from rlcorr_cli.storage.waiting import Impatient

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

State = Callable[[str], tuple[tuple[int | str, ...], str | None]]
"""Of a file's name: which state of it is there, and when it was last changed."""


@dataclass(frozen=True)
class Opened:
    """A file system, and what its paths begin with.  state: of a file, where an opened file does not tell it."""

    files: Any
    root: str
    state: State | None = None


def opened(scheme: str, place: str, query: str) -> Opened:
    """The file system of URIs that begin with `scheme://place/`."""
    service = SERVICES[scheme]
    if scheme == "hf":
        from rlcorr_cli.storage.hub import hub

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
        files = fs.AzureFileSystem(**{AZURE_SECRETS[secret]: value}, **_azure_account(place, query))
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


def _azure_account(place: str, query: str) -> dict[str, str]:
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
