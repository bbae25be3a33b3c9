"""How long `analyze` takes on an object in a store of this machine, over the same file on its disk.

    python tests/benchmarks/stores.py /tmp/W1.parquet --delay 0 --runs 5
    python tests/benchmarks/stores.py /tmp/W1.parquet --delay 0.02

The server knows of S3 what reading asks: HEAD and GET of ranges.  It is a process of its own and reads with `pread`, so
that the figure is rlcorr's and not the server's.  The two ways alternate, and the medians are compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BUCKET = "bench"


def serve(path: Path, delay: float) -> None:
    """Serve one file as an object of the bucket, each answer after `delay` seconds; print the port, then requests."""
    descriptor, size = os.open(path, os.O_RDONLY), path.stat().st_size

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            time.sleep(delay)
            there = self.path == f"/{BUCKET}/{path.name}"
            self.send_response_only(200 if there else 404)
            self.send_header("Content-Length", str(size if there else 0))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Sun, 22 Nov 2026 00:00:00 GMT")
            self.end_headers()

        def do_GET(self) -> None:
            time.sleep(delay)
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            length = int(last) - int(first) + 1
            self.send_response_only(206)
            self.send_header("Content-Length", str(length))
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.flush()
            offset = int(first)
            while length > 0:
                sent = os.sendfile(self.connection.fileno(), descriptor, offset, length)
                offset, length = offset + sent, length - sent
            print(self.headers["Range"], flush=True)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        print(listener.server_port, flush=True)
        listener.serve_forever()


def seconds(dump: str, environment: dict[str, str], workers: int) -> float:
    """The wall time of one run, start included."""
    command = [sys.executable, "-m", "rlcorr_cli", "analyze", dump, "--quiet", "--engine", "threads"]
    command += ["--workers", str(workers)]
    started = time.perf_counter()
    subprocess.run(command, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    if args.serve:
        serve(args.path, args.delay)
    command = [sys.executable, __file__, str(args.path), "--serve", "--delay", str(args.delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        uri = f"s3://{BUCKET}/{args.path.name}"
        pairs = [
            (seconds(str(args.path), {}, args.workers), seconds(uri, environment, args.workers))
            for _ in range(args.runs)
        ]
        server.terminate()
        ranges = server.stdout.read().splitlines()
    here, there = (statistics.median(times) for times in zip(*pairs, strict=True))
    told = {"delay": args.delay, "local_s": here, "store_s": there, "ratio": there / here}
    print(json.dumps({**told, "requests_a_run": len(ranges) / args.runs}))


if __name__ == "__main__":
    main()
