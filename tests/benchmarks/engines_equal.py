"""Whether each engine gives every golden case, and each command of dumps, byte for byte as threads do.

    python tests/benchmarks/engines_equal.py [DUMP...]

The golden input is cut into seven files, as in tests/cli/test_golden_ways.py.  Prints what differs, and a count;
exits with 1 where anything does.  Ray runs as a cluster of this machine.
"""

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import ray

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import Ran, run
from test_golden_ways import CASES, CUTS, INPUT, plan_args

import rlcorr_cli

COMMANDS = (
    ("analyze", "--preset", "geo_rs"),
    ("compare",),
    ("sweep", "--vary", "k3.token", "--target-keep", "0.99"),
    ("diagnose",),
    ("check", "--preset", "token_is"),
    ("inspect", "--worst", "3"),
)
ENGINES = {"processes": "2", "ray": "2"}


def command_lines(folder: Path, dumps: list[str]) -> Iterator[list[str]]:
    """Of the golden cases, and of the dumps."""
    table, seven = pq.read_table(INPUT), folder / "seven"
    seven.mkdir()
    for i, (first, last) in enumerate(pairwise(CUTS)):
        pq.write_table(table.slice(first, last - first), seven / f"part{i}.parquet")
    for case in CASES:
        yield ["analyze", str(seven), *plan_args(case, folder), "--json"]
    for dump in dumps:
        for name, *options in COMMANDS:
            yield [name, dump, *options, "--json"]


def pictures(folder: Path, dump: str, engine: str, workers: str) -> Ran | bytes:
    """The page of pictures that `plot` draws, as SVG."""
    path = folder / f"{engine}.svg"
    ran = run("plot", dump, "-o", str(path), "--engine", engine, "--workers", workers)
    return path.read_bytes() if ran.status == 0 else ran


def main(dumps: list[str]) -> int:
    """Run all of it; returns the exit status."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray writes one into the home folder
    environment = {"py_modules": [rlcorr_cli.__path__[0]]}
    n_runs = n_different = 0
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:  # short: Ray's sockets lie below
        folder = Path(name)
        ray.init("local", num_cpus=2, include_dashboard=False, runtime_env=environment, _temp_dir=f"{name}/ray")
        for line in command_lines(folder, dumps):
            by_threads = run(*line, "--engine", "threads", "--workers", "1")
            for engine, workers in ENGINES.items():
                n_runs += 1
                if run(*line, "--engine", engine, "--workers", workers) != by_threads:
                    n_different += 1
                    print("differs by", engine, json.dumps(line))
        for dump in dumps:
            by_threads = pictures(folder, dump, "threads", "1")
            for engine, workers in ENGINES.items():
                n_runs += 1
                if pictures(folder, dump, engine, workers) != by_threads:
                    n_different += 1
                    print("differs by", engine, "plot", dump)
        ray.shutdown()
    print(f"{n_runs} runs, {n_different} different from threads")
    return min(n_different, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
