"""Seconds of `analyze` by two threads and by two tasks on Ray, in turn, with the cluster up and its workers warm.

    python tests/benchmarks/by_ray.py DUMP PRESET ROUNDS SMALL

Prints lists of seconds by engine as JSON.  SMALL is a dump that each engine reads before.
"""

import json
import os
import secrets
import sys
import tempfile
import time

import ray

import rlcorr_cli
from rlcorr_cli.reading.request import EngineName

ENGINES: tuple[EngineName, ...] = ("threads", "ray")
WORKERS = 2


def seconds(dump: str, preset: str, engine: EngineName) -> float:
    """Of one reading."""
    started = time.perf_counter()
    rlcorr_cli.analyze(dump, preset=preset, engine=engine, workers=WORKERS)
    return time.perf_counter() - started


def main(dump: str, preset: str, rounds: str, small: str) -> None:
    """Start a cluster, measure, and leave nothing of it."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray writes one into the home folder
    environment = {"py_modules": [rlcorr_cli.__path__[0]]}
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:  # short: sockets lie below
        ray.init("local", num_cpus=WORKERS, include_dashboard=False, runtime_env=environment, _temp_dir=folder)
        for engine in ENGINES * WORKERS:
            seconds(small, preset, engine)
        samples: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        for _ in range(int(rounds)):
            for engine in ENGINES:
                samples[engine].append(seconds(dump, preset, engine))
        ray.shutdown()
    print(json.dumps(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
