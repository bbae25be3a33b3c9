"""Which engine: the one that is named, or the one that is faster for the dump at hand.

A worker thread holds the interpreter lock for a share of its time, so more threads than one over that share are no
faster, and a process needs START_SECONDS of its core before its first shard.  With W seconds of work and n cores,
threads take W / min(n, THREADS_THAT_HELP), processes W / n + START_SECONDS.  The three figures need only be right to a
factor: near the break-even one is as good as the other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.engines.engine import Engine
from rlcorr_cli.engines.threads import ThreadEngine

THREADS_THAT_HELP = 5.0
"""One over the share of a worker thread's time under the interpreter lock."""
START_SECONDS = 2.5
"""Of a core, to start an interpreter and what it imports; measured while that was torch, too."""
BYTES_PER_SECOND = 9e7
"""Of Parquet, which one core reads and measures."""
R = TypeVar("R")


def processes_pay(n_bytes: int, workers: int) -> bool:
    """Whether processes are the faster way through so many bytes."""
    seconds = n_bytes / BYTES_PER_SECOND
    return seconds / min(workers, THREADS_THAT_HELP) > seconds / workers + START_SECONDS


class AutoEngine:
    """Threads, or processes where they pay.  processes: makes the latter, when they do for the first time."""

    shares_memory = False

    def __init__(self, workers: int, processes: Callable[[], Engine]) -> None:
        self.workers = workers
        self._make, self._threads = processes, ThreadEngine(workers)
        self._processes: Engine | None = None

    @property
    def named(self) -> str:
        """As it is asked for."""
        return "auto"

    def sized(self, n_bytes: int) -> Engine:
        """The engine for so many bytes."""
        if not processes_pay(n_bytes, self.workers):
            return self._threads
        self._processes = self._processes or self._make()
        return self._processes

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        return self._for(shards).map(shards, work)

    def stream(self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]]) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results, to be used up before the next is taken."""
        return self._for(shards).stream(shards, work)

    def local(self, threads: int | None = None) -> ThreadEngine:
        """Threads of this process."""
        return self._threads.local(threads)

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.close()

    def _for(self, shards: Sequence[Shard]) -> Engine:
        return self.sized(sum(shard.n_bytes for shard in shards))
