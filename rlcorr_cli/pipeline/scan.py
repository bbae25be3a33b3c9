"""One reading of a dump: the work that an engine is given, and the order in which its results come back.

Work on a shard is a frozen dataclass, called with the shard; what it needs of the dump is in its ShardReading.  What
was set aside travels beside the result, because the log is the driver's.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.engines import engine
from rlcorr_cli.engines.engine import Engine
from rlcorr_cli.engines.threads import ThreadEngine
from rlcorr_cli.errors import UsageError
from rlcorr_cli.io.batches import CheckedRows, SetAside
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.readers import ReadState, ShardReader
from rlcorr_cli.pipeline.bad_rows import BadRowLog

R = TypeVar("R")
Device = Any
"""A torch device, which only core looks into."""


@dataclass(frozen=True)
class Computing:
    """Where and in what portions to compute.  batch_tokens: None for the device's default."""

    device: str = "auto"
    batch_tokens: int | None = None
    engine: Engine = field(default_factory=ThreadEngine)

    def in_portions(self, tokens: Mapping[str, int]) -> "Computing":
        """The same in portions of another default.  tokens: by the kind of device."""
        default = tokens[devices.resolve(self.device).type]
        return replace(self, batch_tokens=self.batch_tokens or default)

    def engine_for(self, dump: Dump) -> Engine:
        """The engine, one shard after another, in this process, where the dump must be read so."""
        apart = dump.reader.needs_memory and not self.engine.shares_memory
        return self.engine.one_by_one() if dump.reader.in_order or apart else self.engine


def computing(device: str, threads: int | None, batch_tokens: int | None) -> Computing:
    """Defaults: a thread for each core this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Computing(device, batch_tokens, ThreadEngine(threads or cores))


@dataclass(frozen=True, kw_only=True)
class ShardReading:
    """How a worker reads a shard's checked rows, batch by batch.  whole: with all columns, or their lines."""

    reader: ShardReader
    state: ReadState
    device: Device
    batch_tokens: int
    whole: bool = False

    @classmethod
    def of(cls, dump: Dump, computing: Computing, *, whole: bool = False) -> "ShardReading":
        """A fresh reading of a dump."""
        device = devices.resolve(computing.device)
        return cls(
            reader=dump.reader,
            state=dump.reader.state(),
            device=device,
            batch_tokens=computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type],
            whole=whole,
        )

    def afresh(self) -> "ShardReading":
        """The same for another pass over the dump, which has met no row yet."""
        return replace(self, state=self.reader.state())

    def checked_rows(self, shard: Shard) -> Iterator[CheckedRows | SetAside]:
        """The shard's rows, those set aside before the ones they stood among; ends when the run does."""
        for rows in self.reader.checked(shard, self.batch_tokens, self.state, whole=self.whole):
            engine.check()
            yield rows

    def sound_rows(self, shard: Shard, set_aside: list[SetAside]) -> Iterator[CheckedRows]:
        """The sound ones; the others are put into the list."""
        for rows in self.checked_rows(shard):
            if isinstance(rows, SetAside):
                set_aside.append(rows)
            else:
                yield rows


@dataclass(frozen=True)
class ShardResult(Generic[R]):
    """What was made of a shard, and the rows that were left out of it."""

    value: R
    set_aside: tuple[SetAside, ...] = ()


def scan(
    dump: Dump, computing: Computing, work: Callable[[Shard], ShardResult[R]], log: BadRowLog | None = None
) -> Iterator[tuple[Shard, R]]:
    """What `work` makes of each shard, in the dump's order.  log: where what is set aside goes, if anywhere."""
    results = computing.engine_for(dump).map(dump.shards, work)
    for shard, result in zip(dump.shards, results, strict=True):
        if log is not None:
            for set_aside in result.set_aside:
                log.add(shard, set_aside)
        yield shard, result.value


def check_rereadable(dump: Dump) -> None:
    """Refuse standard input where one reading is not enough."""
    if dump.stdin is not None:
        raise UsageError(
            "This takes more than one pass, and standard input can be read only once.", "Save it to a file first."
        )
