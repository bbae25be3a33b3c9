"""A stand-in for the Hugging Face Hub: the few requests by which its client lists, reads and commits files.

There is no server of the Hub's to be had; what this one answers is what huggingface_hub's own code asks for and reads.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from limits import LIMIT_SECONDS

REPOSITORY = "someone/rollouts"
COMMITTED = "2026-11-22T00:00:00.000Z"
API = re.compile(
    r"/api/datasets/(?P<repository>[^/]+/[^/]+)(?:/(?P<what>[^/]+)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?"
)
FILE = re.compile(r"/datasets/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.*)")

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Hub:
    """One repository of a data set.  files: path -> content.  commits: the paths that each wrote or removed."""

    endpoint: str = ""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    commits: list[list[str]] = field(default_factory=list[list[str]])

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Answer:
        """What the Hub says to a request."""
        url = urlsplit(target)
        for pattern, asked in ((API, self._api), (FILE, self._file)):
            match = pattern.fullmatch(unquote(url.path))
            if match:
                if match["repository"] != REPOSITORY:
                    return _refused(401, "RepoNotFound")
                return asked(match.groupdict(), parse_qs(url.query), headers, body)
        return _refused(401, "RepoNotFound")  # as of one that may not be seen

    def _api(self, asked: dict[str, Any], query: dict[str, list[str]], headers: Any, body: bytes) -> Answer:
        match asked["what"]:
            case None | "revision":
                return _json({"id": REPOSITORY, "sha": "0" * 40, "private": False, "tags": [], "siblings": []})
            case "tree":
                return self._tree(asked["path"] or "", "true" in query.get("recursive", [""])[0].lower())
            case "paths-info":
                paths = json.loads(body)["paths"] if body[:1] == b"{" else parse_qs(body.decode())["paths"]
                paths = [paths] if isinstance(paths, str) else paths
                return _json([entry for entry in self._entries() if entry["path"] in paths])
            case "preupload":
                files = json.loads(body)["files"]
                names = ({"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files)
                return _json({"files": list(names)})
            case "commit":
                return self._commit([json.loads(line) for line in body.splitlines()])
            case _:
                return _refused(404, "")

    def _entries(self) -> list[dict[str, Any]]:
        last = {"lastCommit": {"id": "0" * 40, "title": "", "date": COMMITTED}}
        folders = {path[: end.start()] for path in self.files for end in re.finditer("/", path)}
        return [
            *({"type": "directory", "path": path, "oid": _oid(path.encode()), "size": 0, **last} for path in folders),
            *(
                {"type": "file", "path": path, "oid": _oid(data), "size": len(data), **last}
                for path, data in self.files.items()
            ),
        ]

    def _tree(self, folder: str, recursive: bool) -> Answer:
        start = f"{folder}/" if folder else ""
        below = [entry for entry in self._entries() if entry["path"].startswith(start)]
        if folder and not below:
            return _refused(404, "EntryNotFound")
        return _json([entry for entry in below if recursive or "/" not in entry["path"][len(start) :]])

    def _commit(self, lines: list[dict[str, Any]]) -> Answer:
        changed: list[str] = []
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "file":
                    self.files[value["path"]] = base64.b64decode(value["content"])
                case "deletedFile":
                    del self.files[value["path"]]
                case "deletedFolder":
                    for path in [path for path in self.files if path.startswith(value["path"].rstrip("/") + "/")]:
                        del self.files[path]
                case _:
                    continue
            changed.append(value["path"])
        self.commits.append(changed)
        return _json(
            {"success": True, "commitOid": "1" * 40, "commitUrl": f"{self.endpoint}/datasets/{REPOSITORY}/commit/1"}
        )

    def _file(self, asked: dict[str, Any], query: dict[str, list[str]], headers: Any, body: bytes) -> Answer:
        data = self.files.get(asked["path"])
        if data is None:
            return _refused(404, "EntryNotFound")
        told = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": "0" * 40, "Accept-Ranges": "bytes"}
        piece = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range") or "")
        if not piece:
            return 200, told, data
        first, last = int(piece[1]), int(piece[2] or len(data) - 1)
        return 206, {**told, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1]


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _json(value: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _refused(status: int, code: str) -> Answer:
    return status, {"X-Error-Code": code, "Content-Type": "application/json"}, b'{"error": "refused"}'


@contextmanager
def hub() -> Generator[Hub]:
    """It answers, at an endpoint of this machine."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits 40 ms for the client to acknowledge the headers

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = state.answer(self.command, self.path, self.headers, body)
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = handle_any

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        state.endpoint = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield state
        listener.shutdown()
        thread.join(LIMIT_SECONDS)
