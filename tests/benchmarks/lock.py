"""P13: the share of a worker thread's time in which it holds the interpreter lock, by a sampling profiler.

py-spy samples one-thread runs of `analyze` on W1, in turn those samples alone at which the lock is held and all of them
at which the thread is at work; each is taken for a second of its run, since runs differ in length.  py-spy is no
dependency of rlcorr's: `pip install py-spy` beside it, or say in PY_SPY where it is.
"""

import os
import shutil
import tempfile
from pathlib import Path

from child import cost
from figures import PRESET, RLCORR, Bench, Figure, NotHere, figure, interleave

RATE = "400"
"""Samples a second; of a run some hundred are a worker's."""
IN_A_WORKER = "ShardWork.__call__"
"""What a worker's stack has, and no other thread's."""


def p13(bench: Bench) -> Figure:
    """Samples with the lock over all samples of a worker thread, in percent."""
    sampler = os.environ.get("PY_SPY") or shutil.which("py-spy")
    if sampler is None:
        raise NotHere("there is no py-spy here")
    dump = bench.dump("W1")
    works = {
        "with the lock": lambda: samples(sampler, dump, "--gil"),
        "at work": lambda: samples(sampler, dump),
    }
    return figure(
        interleave(works, bench.rounds), lambda t: 100 * t["with the lock"] / t["at work"], "samples a second"
    )


def samples(sampler: str, dump: Path, *options: str) -> float:
    """Samples of a worker thread in a second of one run."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw.txt")
        profiler = [sampler, "record", "--rate", RATE, "--format", "raw", "--output", raw, *options, "--"]
        run = cost(
            [*profiler, RLCORR, "analyze", dump, "--preset", PRESET, "--engine", "threads", "--workers", "1", "--json"]
        )
        # Line by line: hundreds of MB, from which the peak of every later child would start.
        with raw.open() as lines:
            stacks = (line.rstrip().rpartition(" ") for line in lines)
            return sum(int(n) for stack, _, n in stacks if IN_A_WORKER in stack) / run.wall
