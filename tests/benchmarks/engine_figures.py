"""The figures of engines: the same work, by threads, by worker processes and by tasks on Ray."""

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from child import answer
from figures import PRESET, RLCORR, Bench, Figure, NotHere, Picked, figure, interleave, say, wall

CORES = 16
"""What P18 is about."""


def p10(bench: Bench) -> Figure:
    """analyze W2 as 20 files by two workers on Ray over the same by two threads, starts excluded."""
    if find_spec("ray") is None:
        raise NotHere("Ray is not installed")
    samples = answer("by_ray.py", parts(bench, 20), PRESET, str(bench.rounds), bench.dump("W1"))
    return figure(samples, lambda t: t["ray"] / t["threads"], "s")


def p12(bench: Bench) -> Figure:
    """analyze W2 by two processes over the same by two threads, start included."""
    dump = bench.dump("W2")
    works = {engine: partial(_analyze, dump, engine, 2) for engine in ("threads", "processes")}
    return figure(interleave(works, bench.rounds), lambda t: t["processes"] / t["threads"], "s")


def p18(bench: Bench) -> Figure:
    """analyze W2 as 64 files by one process over the same by sixteen; details give numbers of processes between."""
    if len(os.sched_getaffinity(0)) < CORES:
        raise NotHere(f"{CORES} cores are needed")
    dump = parts(bench, 64)
    works = {str(n): partial(_analyze, dump, "processes", n) for n in (1, 2, 4, 8, CORES)}
    return figure(interleave(works, min(3, bench.rounds)), lambda t: t["1"] / t[str(CORES)], "s")


def on_a_gpu(bench: Bench) -> Figure:
    """analyze W2 on the device over the same on a CPU by a process for each core, both net of start-up; details give
    threads of a CPU, too."""
    n_cores = len(os.sched_getaffinity(0))
    there, here = f"{bench.device} threads {n_cores}", f"cpu processes {n_cores}"
    ways = {
        there: ("threads", n_cores, bench.device),
        here: ("processes", n_cores, "cpu"),
        f"cpu threads {n_cores}": ("threads", n_cores, "cpu"),
        f"{bench.device} threads 1": ("threads", 1, bench.device),
    }
    works = {
        f"{way}, {dump}": partial(_analyze, bench.dump(dump), *how)
        for way, how in ways.items()
        for dump in ("tiny", "W2")
    }

    def net(t: Picked, way: str) -> float:
        return t[f"{way}, W2"] - t[f"{way}, tiny"]

    return figure(interleave(works, min(3, bench.rounds)), lambda t: net(t, there) / net(t, here), "s")


def parts(bench: Bench, n: int) -> Path:
    """W2 as n files, made once, then kept."""
    whole, folder = bench.dump("W2"), bench.directory / f"W2-{n}"
    if (folder / "_done").exists():
        return folder
    say(f"writing {folder}")
    folder.mkdir(exist_ok=True)
    file = pq.ParquetFile(whole)
    batches = file.iter_batches(-(-file.metadata.num_rows // n))
    for i, batch in enumerate(batches):
        pq.write_table(pa.Table.from_batches([batch]), folder / f"{i:03d}.parquet", compression="zstd")
    (folder / "_done").touch()
    return folder


def _analyze(dump: Path, engine: str, workers: int, device: str = "cpu") -> float:
    """Seconds of the command."""
    options = ("--preset", PRESET, "--json", "--engine", engine, "--workers", str(workers), "--device", device)
    return wall(RLCORR, "analyze", dump, *options)
