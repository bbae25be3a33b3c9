"""Stores other than S3 for tests: moto, which speaks Google's XML as it does S3's, a stand-in for the Hugging Face
Hub, and, where a variable names one that runs, Azurite, Microsoft's emulator of Azure (from npm):

    azurite-blob --inMemoryPersistence --skipApiVersionCheck --disableTelemetry
    AZURITE=http://127.0.0.1:10000 python -m pytest tests/cli/test_other_stores.py

Each is asked through a proxy that can answer in its place, and runs with it in a process of its own.
"""

import base64
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
import stores
from hub import COMMITTED, REPOSITORY, hub
from limits import LIMIT_SECONDS, LimitedProcess
from pyarrow import fs
from stores import Answer, Proxy, proxy

PLACE = "dumps"
ACCOUNT = "devstoreaccount1"
# The account and key that every Azurite has, as its manual says.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VARIABLES = (
    *("CLOUD_STORAGE_EMULATOR_ENDPOINT", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET"),
    *("HF_ENDPOINT", "HF_TOKEN"),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of store.  start: of its URIs; elsewhere: of those in a place that is not there; place: what messages call
    it.  variable: that names its endpoint.  settings: variables to read it by; wrong: that it refuses, or that lead to
    none.  contents: what is in a request for the bytes of an object.
    """

    start: str
    elsewhere: str
    place: str
    variable: str
    contents: str
    settings: dict[str, str]
    wrong: dict[str, str]


KINDS = {
    "gs": Kind(
        start=f"gs://anonymous@{PLACE}",
        elsewhere="gs://anonymous@nowhere",
        place="bucket",
        variable="CLOUD_STORAGE_EMULATOR_ENDPOINT",
        contents=f"/{PLACE}/",
        settings={},
        wrong={"GOOGLE_APPLICATION_CREDENTIALS": "/nothing/credentials.json"},
    ),
    "hf": Kind(
        start=f"hf://datasets/{REPOSITORY}",
        elsewhere="hf://datasets/someone/nothing",
        place="repository",
        variable="HF_ENDPOINT",
        contents="/resolve/",
        settings={},
        wrong={},
    ),
    "abfs": Kind(
        start=f"abfs://{PLACE}@{ACCOUNT}.dfs.core.windows.net",
        elsewhere=f"abfs://{ACCOUNT}@nowhere",
        place="container",
        variable="AZURE_STORAGE_SERVICE_ENDPOINT",
        contents=f"/{PLACE}/",
        settings={"AZURE_STORAGE_KEY": ACCOUNT_KEY},
        wrong={"AZURE_STORAGE_KEY": "d3Jvbmc="},
    ),
}
RUNNING = ("gs", "hf", *(("abfs",) if os.environ.get("AZURITE") else ()))


MINUTE = "%Y-%m-%dT%H:%MZ"
"""A time in UTC, as reports have it."""


class PyarrowFiles:
    """The objects of a store, by pyarrow and nothing of ours."""

    def __init__(self, files: Any) -> None:
        self.files = files

    def write(self, key: str, data: bytes) -> None:
        with self.files.open_output_stream(f"{PLACE}/{key}", compression=None) as out:
            out.write(data)

    def read(self, key: str) -> bytes:
        with self.files.open_input_file(f"{PLACE}/{key}") as file:
            return file.read()

    def all_keys(self) -> list[str]:
        infos = self.files.get_file_info(fs.FileSelector(PLACE, recursive=True))
        return [info.path.removeprefix(f"{PLACE}/") for info in infos if info.type == fs.FileType.File]

    def modified(self, key: str) -> str:
        return f"{self.files.get_file_info(f'{PLACE}/{key}').mtime:{MINUTE}}"


class HubFiles:
    """The files of the stand-in's repository."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def write(self, key: str, data: bytes) -> None:
        value = {"path": key, "content": base64.b64encode(data).decode()}
        line = json.dumps({"key": "file", "value": value}).encode()
        asked(f"{self.endpoint}/api/datasets/{REPOSITORY}/commit/main", line)

    def read(self, key: str) -> bytes:
        return asked(f"{self.endpoint}/datasets/{REPOSITORY}/resolve/main/{quote(key)}")

    def all_keys(self) -> list[str]:
        entries = json.loads(asked(f"{self.endpoint}/api/datasets/{REPOSITORY}/tree/main?recursive=true"))
        return [entry["path"] for entry in entries if entry["type"] == "file"]

    def modified(self, key: str) -> str:
        return f"{datetime.fromisoformat(COMMITTED):{MINUTE}}"


def files_of(kind: str, endpoint: str) -> PyarrowFiles | HubFiles:
    """The objects of a store at an endpoint."""
    if kind == "hf":
        return HubFiles(endpoint)
    server = urlsplit(endpoint)
    if kind == "gs":
        return PyarrowFiles(stores.files(endpoint))
    both = {"blob_storage_authority": server.netloc, "dfs_storage_authority": server.netloc}
    schemes = {"blob_storage_scheme": server.scheme, "dfs_storage_scheme": server.scheme}
    return PyarrowFiles(fs.AzureFileSystem(account_name=ACCOUNT, account_key=ACCOUNT_KEY, **both, **schemes))


def asked(url: str, body: bytes | None = None) -> bytes:
    """The answer to a GET, or of what is sent, to a POST."""
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=LIMIT_SECONDS) as response:
        return response.read()


@dataclass(frozen=True)
class Cloud:
    """A store that runs.  before: the endpoint of the proxy."""

    kind: Kind
    before: str
    files: PyarrowFiles | HubFiles

    def put(self, key: str, content: bytes | str | Path) -> str:
        """The URI of a new object."""
        data = content.read_bytes() if isinstance(content, Path) else content
        self.files.write(key, data.encode() if isinstance(data, str) else data)
        return f"{self.kind.start}/{key}"

    def keys(self, folder: str) -> list[str]:
        """All keys below a folder; Azure's client leaves folders behind as empty objects."""
        return sorted(key for key in self.files.all_keys() if key.startswith(f"{folder}/") and not key.endswith("/"))

    def modified(self, uri: str) -> str:
        """When an object was written, by the store's own client."""
        return self.files.modified(uri.removeprefix(f"{self.kind.start}/"))

    def answer(self, status: int) -> None:
        """Have every request answered so from now on; 0: by the store."""
        asked(f"{self.before}{CONTROL}status/{status}")

    def change(self, key: str, content: bytes) -> None:
        """Write an object at the moment when its bytes are asked for next."""
        asked(f"{self.before}{CONTROL}change/{quote(key, safe='')}/{content.hex()}")

    def sent(self) -> int:
        """Bytes of objects that went through, since this was asked last."""
        return int(asked(f"{self.before}{CONTROL}sent/"))


CONTROL = "/-control-/"


@contextmanager
def google() -> Generator[str]:
    """moto, which asks for no credentials."""
    yield stores.server()


@contextmanager
def hugging_face() -> Generator[str]:
    """The stand-in."""
    with hub() as state:
        yield state.endpoint


@contextmanager
def azurite() -> Generator[str]:
    """The one that runs already, with an empty container."""
    endpoint = os.environ["AZURITE"]
    files = files_of("abfs", endpoint).files
    with suppress(OSError):
        files.delete_dir(PLACE)
    files.create_dir(PLACE)
    yield endpoint


SERVERS: dict[str, Callable[[], Any]] = {"gs": google, "hf": hugging_face, "abfs": azurite}


def serve(kind: str) -> None:
    """Run a store and the proxy before it, and say where they are; end with standard input."""
    with SERVERS[kind]() as endpoint, proxy(endpoint) as before:
        before.answer = Controlled(kind, endpoint, before).answer
        print(endpoint, before.endpoint, flush=True)
        sys.stdin.read()


class Controlled:
    """What the proxy answers itself: as the test has asked for."""

    def __init__(self, kind: str, endpoint: str, before: Proxy) -> None:
        self.kind, self.endpoint, self.before = kind, endpoint, before
        self.status, self.key, self.content = 0, "", b""

    def answer(self, method: str, path: str) -> Answer | None:
        if path.startswith(CONTROL):
            return 200, {}, self.control(*path.removeprefix(CONTROL).split("/"))
        if self.status:
            return self.status, {}, b""
        asked_for = unquote(path)
        if self.key and method == "GET" and self.key in asked_for and KINDS[self.kind].contents in asked_for:
            key, self.key = self.key, ""
            files_of(self.kind, self.endpoint).write(key, self.content)
        return None

    def control(self, what: str, value: str, content: str = "") -> bytes:
        match what:
            case "status":
                self.status = int(value)
            case "change":
                self.key, self.content = unquote(value), bytes.fromhex(content)
            case _:
                contents = [one.sent for one in self.before.requests.values() if KINDS[self.kind].contents in one.path]
                self.before.requests.clear()
                return str(sum(contents)).encode()
        return b""


@pytest.fixture(params=RUNNING, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """Each store once for a module."""
    kind = request.param
    args = [sys.executable, __file__, kind]
    with LimitedProcess(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        endpoint, before = process.first_line().split()
        yield Cloud(KINDS[kind], before, files_of(kind, endpoint))
        process.stdin.close()


@pytest.fixture
def cloud(server: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A store behind a proxy, and the variables by which commands find it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {server.kind.variable: server.before, **server.kind.settings}.items():
        monkeypatch.setenv(name, value)
    server.answer(0)
    return server


if __name__ == "__main__":
    serve(sys.argv[1])
