"""A real S3 server for tests, and before it a proxy that counts what goes through, or answers as a store would.

`server()` starts moto once for a run of pytest.  The proxy stands in for what moto has not: other regions, faults that
pass.  On a busy machine AWS's client asks again what was not answered within 3 s: the proxy counts that once.
"""

import http.client
import re
import threading
import urllib.request
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest
from limits import LIMIT_SECONDS
from pyarrow import fs

BUCKET = "dumps"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tester"}
VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3")


@cache
def server() -> str:
    """The endpoint of a server that holds the bucket, empty; it ends with this process."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    files(f"http://{host}:{port}").create_dir(BUCKET)
    return f"http://{host}:{port}"


def files(endpoint: str) -> fs.S3FileSystem:
    """Its files, for a test to put and look at."""
    return fs.S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=endpoint,
        region="us-east-1",
        request_timeout=300,
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )


def environment(endpoint: str) -> dict[str, str]:
    """The variables of a run against it."""
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true"}


def put(endpoint: str, key: str, content: bytes | str | Path) -> str:
    """The URI of a new object."""
    data = content.read_bytes() if isinstance(content, Path) else content
    with files(endpoint).open_output_stream(f"{BUCKET}/{key}", compression=None) as out:
        out.write(data.encode() if isinstance(data, str) else data)
    return f"s3://{BUCKET}/{key}"


def get(endpoint: str, key: str) -> bytes:
    """An object's content."""
    with files(endpoint).open_input_file(f"{BUCKET}/{key}") as file:
        return file.read()


def keys(endpoint: str, folder: str) -> list[str]:
    """All keys below a folder."""
    selector = fs.FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True)
    infos = files(endpoint).get_file_info(selector)
    return sorted(info.path.removeprefix(f"{BUCKET}/") for info in infos if info.type == fs.FileType.File)


def unfinished(endpoint: str) -> list[str]:
    """Keys of uploads that were begun, and neither completed nor aborted: nobody sees them, and they are paid for."""
    with urllib.request.urlopen(f"{endpoint}/{BUCKET}?uploads", timeout=LIMIT_SECONDS) as response:
        return re.findall("<Key>(.*?)</Key>", response.read().decode())


@dataclass(frozen=True)
class Request:
    """One that went through.  sent: bytes of the answer's body."""

    method: str
    path: str
    range: str
    sent: int


Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Proxy:
    """requests: by the id that one of AWS's keeps when it is sent again, others by their own.  answer: asked before the
    server, its answer goes to the client where it has one."""

    endpoint: str
    requests: dict[str, Request] = field(default_factory=dict[str, Request])
    answer: Callable[[str, str], Answer | None] = lambda method, path: None

    def of(self, key: str, methods: Iterable[str] = ("GET",)) -> list[Request]:
        """The requests for an object."""
        return [
            request
            for request in self.requests.values()
            if request.method in methods and urlsplit(unquote(request.path)).path == f"/{BUCKET}/{key}"
        ]


class _Quiet(ThreadingHTTPServer):
    """Clients that go away in the middle of an answer are no news."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def proxy(endpoint: str) -> Generator[Proxy]:
    """A proxy before a server."""
    host = urlsplit(endpoint).netloc
    state = Proxy("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits 40 ms for the client to acknowledge the headers

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_any(self) -> None:
            body = b"".join(self.pieces())
            status, headers, content = state.answer(self.command, self.path) or self.forwarded(body)
            request = Request(self.command, self.path, self.headers.get("Range", ""), len(content))
            state.requests[self.headers.get("amz-sdk-invocation-id", uuid4().hex)] = request
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command == "HEAD":  # whose answer has no body: what came would begin the connection's next answer
                content = b""
            else:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def pieces(self) -> Iterator[bytes]:
            """The request's body, which AWS's library sends in chunks."""
            if self.headers.get("Transfer-Encoding") != "chunked":
                yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
                return
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass

        def forwarded(self, body: bytes) -> Answer:
            server = http.client.HTTPConnection(host, timeout=LIMIT_SECONDS)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP - {"date"}}
            server.request(self.command, self.path, body, headers)
            with server.getresponse() as response:
                content = response.read()
                kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP}
                if self.command == "PUT":  # of which Google's emulator says nothing, and its store does
                    kept.setdefault("ETag", '"written"')
                if self.command == "HEAD":
                    kept["Content-Length"] = response.getheader("Content-Length", "0")
            server.close()
            return response.status, kept, content

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    with _Quiet(("127.0.0.1", 0), Handler) as listener:
        state.endpoint = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield state
        listener.shutdown()
        thread.join(LIMIT_SECONDS)


HOP = {"content-length", "connection", "transfer-encoding", "server", "date"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server, and the variables by which commands find it."""
    with proxy(server()) as before:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment(before.endpoint).items():
            monkeypatch.setenv(name, value)
        yield before
