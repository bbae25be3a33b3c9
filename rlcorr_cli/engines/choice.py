"""Which engine: the one that is named, or the one that is faster for the dump at hand.

A worker thread holds the interpreter lock for a share of its time, so more threads than one over that share are no
faster, and a process needs START_SECONDS of its core before its first shard.  With W seconds of work and n cores,
threads take W / min(n, THREADS_THAT_HELP), processes W / n + START_SECONDS.  The three figures need only be right to a
factor: near the break-even one is as good as the other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rlcorr_cli.engines.in_order import Engine
from rlcorr_cli.reading.batch import Shard

THREADS_THAT_HELP = 5.0
"""One over the share of a worker thread's time under the interpreter lock."""
START_SECONDS = 0.4
"""Of a core, to start an interpreter and what it imports; on a CPU, which needs no torch."""
BYTES_PER_SECOND = 9e7
"""Of Parquet, which one core reads and measures."""
R = TypeVar("R")


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
