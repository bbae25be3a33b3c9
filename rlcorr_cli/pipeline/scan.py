"""One reading of a dump: its shards through the engine, batch by batch, results in the dump's order."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rlcorr_cli.batch import Batch, Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.engine import LocalEngine
from rlcorr_cli.errors import UsageError
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.readers import Allowance, read

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


@dataclass(frozen=True)
class Run:
    """What one reading works with.  allowance: the rows it may still take; one thread then reads in order."""

    device: Device
    batch_tokens: int
    engine: LocalEngine
    allowance: Allowance | None


def run_of(dump: Dump, computing: Computing) -> Run:
    """A fresh run over a dump."""
    device = devices.resolve(computing.device)
    batch_tokens = computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type]
    allowance = None if dump.limit is None else Allowance(dump.limit)
    return Run(device, batch_tokens, LocalEngine(computing.threads if allowance is None else 1), allowance)


def scan(dump: Dump, computing: Computing, work: Callable[[Iterable[Batch], Device], R]) -> Iterator[tuple[Shard, R]]:
    """What `work` makes of each shard's batches."""
    run = run_of(dump, computing)

    def batches(shard: Shard) -> Iterable[Batch]:
        for batch in read(dump, shard, run.batch_tokens, run.allowance):
            run.engine.check()
            yield batch

    def one(shard: Shard) -> R:
        with devices.worker(run.device):
            return work(batches(shard), run.device)

    return zip(dump.shards, run.engine.map(dump.shards, one), strict=True)


def check_rereadable(dump: Dump) -> None:
    """Refuse standard input where one reading is not enough."""
    if dump.stdin is not None:
        raise UsageError(
            "This takes more than one pass, and standard input can be read only once.", "Save it to a file first."
        )
