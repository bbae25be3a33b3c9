"""Engines: apply one function to many shards, results in shard order.

Shards are independent and results add, so an engine decides only where the work runs.  Work is a value: a frozen
dataclass that is called with a shard, so that an engine can send it to another process.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.engines import interrupt

R = TypeVar("R")
AHEAD = 2
"""Shards per worker that may be under way or wait to be taken: memory stays flat, and workers wait for nobody."""
HELD = 2
"""Results of one shard that may wait to be taken, where they stream."""
_WORKER = threading.local()


class Cancelled(Exception):
    """A worker stopped early because the run is over; never seen by a user."""


class Engine(Protocol):
    """Maps work over shards; results come in shard order, and the first failure ends the run.

    shares_memory: whether all work sees one memory, so that one shard's work knows what another's has met.
    """

    @property
    def shares_memory(self) -> bool:
        """Whether there is one memory."""
        ...

    @property
    def named(self) -> str:
        """What it is, in words: '2 threads'."""
        ...

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        ...

    def stream(self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]]) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results, to be used up before the next is taken."""
        ...

    def sized(self, n_bytes: int) -> "Engine":
        """The engine for a dump of so many bytes: itself, unless it is one that chooses."""
        ...

    def local(self, threads: int | None = None) -> "Engine":
        """An engine over threads of this process, which share its memory; one starts shards in order, each when the one
        before it is done.  None for as many as this engine has workers."""
        ...

    def close(self) -> None:
        """End what was started for this run; the engine is used no more."""
        ...


def belongs_to(cancelled: threading.Event) -> None:
    """For an engine to say in a worker thread: which run it works for."""
    _WORKER.cancelled = cancelled


def check() -> None:
    """Called by work between batches: stop when its run is over, or a signal came."""
    interrupt.check()
    cancelled: threading.Event | None = getattr(_WORKER, "cancelled", None)
    if cancelled is not None and cancelled.is_set():
        raise Cancelled
