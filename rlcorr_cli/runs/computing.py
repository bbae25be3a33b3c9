"""Where a run computes: device, size of batches, and the engine that its shards go through.

Which engine: the one that is named, or the one that is faster for the dump at hand.  A worker thread holds the
interpreter lock for a share of its time, so more threads than one over that share are no faster, and a process needs
START_SECONDS of its core before its first shard.  With W seconds of work and n cores, threads take
W / min(n, THREADS_THAT_HELP), processes W / n + START_SECONDS.  The three figures need only be right to a factor: near
the break-even one is as good as the other.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rlcorr_cli.engines.in_order import Engine, ThreadEngine, cores
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import EngineName

if TYPE_CHECKING:
    from rlcorr_cli.engines.processes import ProcessEngine

THREADS_THAT_HELP = 5.0
"""One over the share of a worker thread's time under the interpreter lock."""
START_SECONDS = 0.4
"""Of a core, to start an interpreter and what it imports; on a CPU, which needs no torch."""
BYTES_PER_SECOND = 9e7
"""Of Parquet, which one core reads and measures."""
R = TypeVar("R")
_LOG = logging.getLogger(__name__)


def processes_pay(n_bytes: int, workers: int) -> bool:
    """Whether processes are the faster way through so many bytes."""
    seconds = n_bytes / BYTES_PER_SECOND
    return seconds / min(workers, THREADS_THAT_HELP) > seconds / workers + START_SECONDS


class AutoEngine(Engine):
    """Threads, or processes where they pay.  processes: makes the latter, when they do for the first time."""

    def __init__(self, workers: int, processes: Callable[[], Engine]) -> None:
        super().__init__(workers)
        self.workers = workers
        self._make = processes
        self._processes: Engine | None = None

    @property
    def named(self) -> str:
        """As it is asked for."""
        return "auto"

    def sized(self, n_bytes: int) -> Engine:
        """The engine for so many bytes."""
        if not processes_pay(n_bytes, self.workers):
            return self.local()
        self._processes = self._processes or self._make()
        return self._processes

    def run(
        self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]], *, ahead: int
    ) -> Iterator[Iterator[R]]:
        """By the engine for so many bytes as the shards have."""
        return self.sized(sum(shard.n_bytes for shard in shards)).run(shards, work, ahead=ahead)

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.close()


@frozen
class Computing:
    """Where and in what portions to compute.

    batch_tokens: None for the device's default.  warnings: what was said of workers that were asked for, since a run
    may read its dump several times; None where none were.
    """

    device: str = "cpu"
    batch_tokens: int | None = None
    engine: Engine = field(default_factory=ThreadEngine)
    warnings: set[str] | None = field(default=None, compare=False)

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
        why = _alone(dump, streams=streams)
        if not why and dump.is_piped:
            why = "standard input is read by one thread"
        elif not why and dump.is_here and not isinstance(self.engine, ThreadEngine | AutoEngine):
            why = "a table in memory is read by threads of this process"
        if why and self.warnings is not None and why not in self.warnings:
            self.warnings.add(why)
            _LOG.warning("The workers that were asked for do not share the work: %s.", why)


def _alone(dump: Dump, *, streams: bool) -> str:
    """Why one thread must read a dump; empty where it need not."""
    if dump.reader.limit is not None:
        return "under a limit one thread counts the rows"
    if (streams or dump.is_here) and dump.reader.leaves_out_repeated:
        return "one thread looks for ids that come twice, to leave out their later rows"
    return ""


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
    # How many GPUs there are to share the work, 0 where it is done on none or on a certain one.
    gpus = 0 if engine == "ray" else devices.gpus(device)
    chosen: Engine
    if engine == "ray":
        from rlcorr_cli.engines.ray_tasks import RayEngine

        on_gpus = devices.resolve(device).type == "cuda"
        if on_gpus and device != "cuda":
            raise UsageError(f"Ray gives each worker a GPU, so ⟦device {device}⟧ names none.", "Write ⟦device cuda⟧.")
        chosen = RayEngine(workers, ray_address, prepare=prepare_worker, on_gpus=on_gpus)
    elif engine == "threads" or (engine == "auto" and gpus == 1):
        chosen = ThreadEngine(workers or cores())
    else:
        make = partial(_processes, workers or gpus or cores(), gpus)
        chosen = AutoEngine(workers or cores(), make) if engine == "auto" and gpus < 2 else make()
    try:
        asked = engine in ("processes", "ray") or (workers or 1) > 1
        yield Computing(device, batch_tokens, chosen, set() if asked else None)
    finally:
        chosen.close()


def _processes(workers: int, gpus: int) -> "ProcessEngine":
    """A process for each GPU, or for each core."""
    from rlcorr_cli.engines.processes import ProcessEngine

    environments = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in devices.visible_gpus(gpus)] or [{}]
    return ProcessEngine(workers, prepare_worker, environments)


def prepare_worker() -> None:
    """What a worker process does before a shard."""
    from rlcorr_cli.reading.parquet import use_jemalloc

    devices.keep_freed_memory()
    use_jemalloc()
