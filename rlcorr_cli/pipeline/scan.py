"""One reading of a dump: its shards through the engine, batch by batch, results in the dump's order."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rlcorr_cli.batch import Batch, Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.engines.threads import LocalEngine
from rlcorr_cli.errors import UsageError
from rlcorr_cli.io.batches import SetAside
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.readers import ReadState, in_order, read
from rlcorr_cli.pipeline.bad_rows import BadRowLog

R = TypeVar("R")
Device = Any
"""A torch device, which only core looks into."""


@dataclass(frozen=True)
class Computing:
    """Where and in what portions to compute.  batch_tokens: None for the device's default."""

    device: str = "auto"
    threads: int = 1
    batch_tokens: int | None = None


def computing(device: str, threads: int | None, batch_tokens: int | None) -> Computing:
    """Defaults: a thread for each core this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Computing(device, threads or cores, batch_tokens)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one reading works with."""

    device: Device
    batch_tokens: int
    engine: LocalEngine
    state: ReadState


def run_of(dump: Dump, computing: Computing) -> Run:
    """A fresh run over a dump."""
    device = devices.resolve(computing.device)
    batch_tokens = computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type]
    engine = LocalEngine(1 if in_order(dump) else computing.threads)
    return Run(device=device, batch_tokens=batch_tokens, engine=engine, state=ReadState.of(dump))


def scan(
    dump: Dump, computing: Computing, work: Callable[[Iterable[Batch], Device], R], log: BadRowLog | None = None
) -> Iterator[tuple[Shard, R]]:
    """What `work` makes of each shard's batches.  log: where what is set aside goes, if anywhere."""
    run = run_of(dump, computing)

    def one(shard: Shard) -> tuple[R, list[SetAside]]:
        asides: list[SetAside] = []

        def batches() -> Iterable[Batch]:
            for found in read(dump, shard, run.batch_tokens, run.state):
                run.engine.check()
                if isinstance(found, SetAside):
                    asides.append(found)
                else:
                    yield found

        with devices.worker(run.device):
            return work(batches(), run.device), asides

    for shard, (result, asides) in zip(dump.shards, run.engine.map(dump.shards, one), strict=True):
        if log is not None:
            for aside in asides:
                log.add(shard, aside)
        yield shard, result


def check_rereadable(dump: Dump) -> None:
    """Refuse standard input where one reading is not enough."""
    if dump.stdin is not None:
        raise UsageError(
            "This takes more than one pass, and standard input can be read only once.", "Save it to a file first."
        )
