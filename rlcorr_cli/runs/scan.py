"""One reading of a dump: the work that an engine is given, and the order in which its results come back.

Work on a shard is a frozen dataclass, called with the shard; what it needs of the dump is in its ShardReading.  What
was set aside travels beside the result, because the log is the driver's.  So do the ids that a worker met, where it
knows nothing of the others': the driver looks whether one came twice.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from rlcorr_cli.engines.choice import AutoEngine
from rlcorr_cli.engines.in_order import Engine, ThreadEngine, check, cores
from rlcorr_cli.errors import UsageError
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.ids import SeenIds
from rlcorr_cli.reading.request import EngineName
from rlcorr_cli.reading.shards import ReadState, ShardReader
from rlcorr_cli.runs.bad_rows import BadRowLog
from rlcorr_cli.runs.portions import RetriedSmaller
from rlcorr_cli.totals.row_keys import Keys

if TYPE_CHECKING:
    from rlcorr_cli.engines.processes import ProcessEngine
    from rlcorr_cli.engines.ray_tasks import RayEngine

R = TypeVar("R")
Device = Any
"""Where arrays live, a measure.arrays.Device."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Computing:
    """Where and in what portions to compute.

    batch_tokens: None for the device's default.  warnings: what was said of workers that were asked for, since a run
    may read its dump several times; None where none were.
    """

    device: str = "auto"
    batch_tokens: int | None = None
    engine: Engine = field(default_factory=ThreadEngine)
    warnings: set[str] | None = field(default=None, compare=False)

    def in_portions(self, tokens: Mapping[str, int]) -> "Computing":
        """The same in portions of another default.  tokens: by the kind of device."""
        default = tokens[devices.resolve(self.device).type]
        return replace(self, batch_tokens=self.batch_tokens or default)

    @property
    def as_named(self) -> "Computing":
        """The same by threads where nobody named an engine: for what must not depend on how many cores there are."""
        return replace(self, engine=self.engine.local()) if isinstance(self.engine, AutoEngine) else self

    def engine_for(self, dump: Dump, *, streams: bool = False) -> Engine:
        """The engine for a dump; threads of this process, or one of them, where it must be read so.

        streams: whether a shard's results are taken one by one, so that it cannot be read again once it is known which
        of its rows came before.
        """
        if _alone(dump, streams=streams):
            return self.engine.local(1)
        if dump.is_here:
            return self.engine.local()
        return self.engine.sized(dump.n_bytes)

    def warn(self, dump: Dump, *, streams: bool) -> None:
        """Say once, on stderr, that what was asked for is not what reads a dump."""
        why = _alone(dump, streams=streams) or _here(dump, self.engine)
        if why and self.warnings is not None and why not in self.warnings:
            self.warnings.add(why)
            _LOG.warning("The workers that were asked for do not share the work: %s.", why)


def _alone(dump: Dump, *, streams: bool) -> str:
    """Why one thread must read a dump; empty where it need not."""
    if dump.reader.counts_rows:
        return "under a limit one thread counts the rows"
    if (streams or dump.is_here) and dump.reader.leaves_out_repeated:
        return "one thread looks for ids that come twice, to leave out their later rows"
    return ""


def _here(dump: Dump, engine: Engine) -> str:
    """Why no other process shares the reading of a dump; empty where one does, or none was to."""
    if dump.stdin is not None:
        return "standard input is read by one thread"
    apart = not isinstance(engine, ThreadEngine | AutoEngine)
    return "a table in memory is read by threads of this process" if dump.is_here and apart else ""


@contextmanager
def computing(
    device: str,
    batch_tokens: int | None,
    *,
    engine: EngineName = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
) -> Generator[Computing]:
    """Where to compute, while a run lasts.  workers: None for one for each core this process may use, or GPU."""
    chosen = (
        _on_ray(device, workers, ray_address) if engine == "ray" else _engine(engine, workers, devices.gpus(device))
    )
    try:
        asked = engine in ("processes", "ray") or (workers or 1) > 1
        yield Computing(device, batch_tokens, chosen, set() if asked else None)
    finally:
        chosen.close()


def _engine(name: EngineName, workers: int | None, gpus: int) -> Engine:
    """gpus: how many there are to share the work, 0 where it is done on none or on a certain one."""
    if name == "threads" or (name == "auto" and gpus == 1):
        return ThreadEngine(workers or cores())
    make = partial(_processes, workers or gpus or cores(), gpus)
    return AutoEngine(workers or cores(), make) if name == "auto" and gpus < 2 else make()


def _processes(workers: int, gpus: int) -> "ProcessEngine":
    """A process for each GPU, or for each core."""
    from rlcorr_cli.engines.processes import ProcessEngine

    environments = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in devices.visible_gpus(gpus)] or [{}]
    return ProcessEngine(workers, prepare_worker, environments)


def _on_ray(device: str, workers: int | None, address: str | None) -> "RayEngine":
    from rlcorr_cli.engines.ray_tasks import RayEngine

    on_gpus = devices.resolve(device).type == "cuda"
    if on_gpus and device not in ("auto", "cuda"):
        raise UsageError(f"Ray gives each worker a GPU, so --device {device} names none.", "Write --device cuda.")
    return RayEngine(workers, address, prepare=prepare_worker, on_gpus=on_gpus)


def prepare_worker() -> None:
    """What a worker process does before a shard."""
    from rlcorr_cli.reading.parquet import use_jemalloc

    use_jemalloc(False)


@dataclass
class ShardNotes:
    """What a reading of a shard leaves beside its sound rows: those set aside, and the ids that it met, sorted, where
    no other shard knows of them."""

    set_aside: list[BadRows] = field(default_factory=list[BadRows])
    met: Keys | None = None


@dataclass(frozen=True, kw_only=True)
class ShardReading:
    """How a worker reads a shard's checked rows, batch by batch.  whole: with all columns, or their lines.

    state: what all shards know together; None where each is read by itself, and knows of the others' ids just `known`.
    """

    reader: ShardReader
    state: ReadState | None
    device: Device
    batch_tokens: int
    whole: bool = False
    known: Keys | None = None

    @classmethod
    def of(cls, dump: Dump, computing: Computing, *, whole: bool = False, streams: bool = False) -> "ShardReading":
        """A fresh reading of a dump.  streams: as of `Computing.engine_for`."""
        device = devices.resolve(computing.device)
        return cls(
            reader=dump.reader,
            state=dump.reader.state() if _in_one_memory(dump, computing, device, streams=streams) else None,
            device=device,
            batch_tokens=computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type],
            whole=whole,
        )

    def afresh(self) -> "ShardReading":
        """The same for another pass over the dump, which has met no row yet."""
        return replace(self, state=None if self.state is None else self.reader.state())

    def checked_rows(self, shard: Shard, beside: ShardNotes) -> Iterator[CheckedRows | BadRows]:
        """The shard's rows, those set aside before the ones they stood among; ends when the run does."""
        state = self.state or self.reader.state()
        if self.known is not None and state.seen is not None:
            state.seen.repeated(self.known)
        for rows in self.reader.checked(shard, self.batch_tokens, state, whole=self.whole):
            check()
            yield rows
        if self.state is None and state.seen is not None:
            beside.met = state.seen.keys

    def sound_rows(self, shard: Shard, beside: ShardNotes) -> Iterator[CheckedRows]:
        """The sound ones; the others are left beside them."""
        for rows in self.checked_rows(shard, beside):
            if isinstance(rows, BadRows):
                beside.set_aside.append(rows)
            else:
                yield rows


def _in_one_memory(dump: Dump, computing: Computing, device: Device, *, streams: bool) -> bool:
    """Whether shards know of each other's rows: where they must, and where that finds an id that came twice soonest.
    One that is computed on a GPU does not, because it is read anew where its batch is too large for that."""
    reader = dump.reader
    if reader.counts_rows or dump.is_here or (streams and reader.leaves_out_repeated):
        return True
    stops = not reader.leaves_out_repeated
    return stops and device.type == "cpu" and computing.engine_for(dump).shares_memory


@dataclass(frozen=True)
class ShardResult(Generic[R]):
    """What was made of a shard, and what its reading left beside that."""

    value: R
    beside: ShardNotes = field(default_factory=ShardNotes)


def scan(
    dump: Dump, computing: Computing, work: Callable[[Shard], ShardResult[R]], log: BadRowLog | None = None
) -> Iterator[tuple[Shard, R]]:
    """What `work` makes of each shard, in the dump's order.  log: where what is set aside goes, if anywhere."""
    portioned = RetriedSmaller(work)
    results = running(dump, computing).map(dump.shards, portioned)
    ids = IdsAcrossShards(dump)
    for shard, result in zip(dump.shards, results, strict=True):
        repeated = ids.add(shard, result.beside.met)
        if len(repeated):
            result = portioned.knowing(repeated)(shard)
        if log is not None:
            for set_aside in result.beside.set_aside:
                log.add(shard, set_aside)
        yield shard, result.value


def running(dump: Dump, computing: Computing, *, streams: bool = False) -> Engine:
    """The engine for a dump, which is about to be read by it: `--debug` says by which."""
    computing.warn(dump, streams=streams)
    engine = computing.engine_for(dump, streams=streams)
    _LOG.debug("Reading %s bytes in %s parts by %s.", f"{dump.n_bytes:,}", f"{len(dump.shards):,}", engine.named)
    return engine


@dataclass
class IdsAcrossShards:
    """Looks for an id that two shards met, where neither knew of the other's."""

    dump: Dump
    _seen: SeenIds = field(default_factory=SeenIds)

    def add(self, shard: Shard, met: Keys | None) -> Keys:
        """The ids of the next shard: those that came before, whose rows are to be left out; a DataError, as one process
        that reads all shards would raise it, where there should be none."""
        repeated = np.zeros(0, np.uint64) if met is None else met[self._seen.repeated(met)]
        if not len(repeated) or self.dump.reader.leaves_out_repeated:
            return repeated
        state = self.dump.reader.state()
        for before in self.dump.shards[: shard.index + 1]:
            for _ in self.dump.reader.checked(before, devices.DEFAULT_BATCH_TOKENS["cpu"], state):
                check()
        raise AssertionError(f"{shard.path}: an id came twice, and then did not")


def check_rereadable(dump: Dump) -> None:
    """Refuse standard input where one reading is not enough."""
    if dump.stdin is not None:
        raise UsageError(
            "This takes more than one pass, and standard input can be read only once.", "Save it to a file first."
        )
