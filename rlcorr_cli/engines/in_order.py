"""Work on many shards at a time, its results in the order of the shards.

Shards are independent and results add, so an engine decides only where the work runs.  Work is a value: a frozen
dataclass that is called with a shard, so that an engine can send it to another process.  `in_order` is the loop of
every engine: it begins a window of shards, hands out the first one's results, and begins another when they are used up,
so that memory stays flat however many shards there are, and workers wait for nobody.

Where a shard is begun is the engine's: here by a thread, which puts its results into a queue of that shard and waits
while HELD are in it.  Worker processes (`processes`) have such a thread each, whose work is to ask its process; a task
on Ray (`ray_tasks`) needs none.  The first failure ends a run, when its shard's turn has come; work that is under way
elsewhere then asks (`check`) between its batches whether its run is over, and stops.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Full, Queue
from typing import Generic, TypeVar

from rlcorr_cli.engines import interrupt
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Shard

R = TypeVar("R")
AHEAD = 2
"""Shards per worker that may be under way or wait to be taken."""
HELD = 2
"""Results of one shard that may wait to be taken, where they stream."""
_WORKER = threading.local()


class Cancelled(Exception):
    """A worker stopped early because the run is over; never seen by a user."""


class Engine(ABC):
    """Applies work to shards; results come in shard order, and the first failure ends the run.

    threads: as many of this process as would do its work.  shares_memory: whether all work sees one memory, so that one
    shard's work knows what another's has met.
    """

    shares_memory = False

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    @property
    @abstractmethod
    def named(self) -> str:
        """What it is, in words: '2 threads'."""

    @abstractmethod
    def run(
        self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]], *, ahead: int
    ) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results.  ahead: shards per worker under way or yet to be taken,
        where results may wait here."""

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        for results in self.run(shards, OneResult(work), ahead=AHEAD):
            yield from results

    def stream(self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]]) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results, which may be large; to be used up before the next is
        taken."""
        return self.run(shards, work, ahead=1)

    def sized(self, n_bytes: int) -> "Engine":
        """The engine for a dump of so many bytes: itself, unless it is one that chooses."""
        return self

    def local(self, threads: int | None = None) -> "ThreadEngine":
        """Threads of this process, which share its memory; one starts shards in order, each when the one before it is
        done.  None for as many as would do this engine's work."""
        return ThreadEngine(threads or self.threads)

    def close(self) -> None:  # noqa: B027  # threads end with the reading that they were started for
        """End what was started for this run; the engine is used no more."""


class ThreadEngine(Engine):
    """Threads of this process: Parquet decoding and arithmetic on arrays leave the interpreter lock."""

    shares_memory = True

    @property
    def named(self) -> str:
        """'2 threads'."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    def run(
        self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]], *, ahead: int
    ) -> Generator[Iterator[R]]:
        """A thread is at one shard at a time."""
        return by_threads(shards, work, self.threads, ahead=ahead)


def in_order(shards: Sequence[Shard], begin: Callable[[Shard], R], window: int) -> Iterator[R]:
    """What comes of each shard, in order.  begin: starts work and returns at once; window: how many are begun before
    the first is taken."""
    under_way: deque[R] = deque()
    for shard in shards:
        under_way.append(begin(shard))
        if len(under_way) >= window:
            yield under_way.popleft()
    while under_way:
        yield under_way.popleft()


def by_threads(
    shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]], threads: int, *, ahead: int
) -> Generator[Iterator[R]]:
    """Each shard's results, made by threads of this process."""
    # One queue per shard, taken in shard order: a thread that runs ahead fills its own queue and then waits, so what is
    # held is HELD results per thread, however unequal the shards are.
    cancelled = threading.Event()
    # Each thread of the pool knows which run it works for.
    told = (_WORKER, "cancelled", cancelled)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="rlcorr", initializer=setattr, initargs=told)

    def begin(shard: Shard) -> Iterator[R]:
        queue: Queue[R | _Last] = Queue(HELD)
        pool.submit(_feed, shard, work, queue)
        return _drained(queue, cancelled)

    try:
        yield from in_order(shards, begin, ahead * threads)
    finally:
        cancelled.set()
        pool.shutdown(wait=False, cancel_futures=True)


def check() -> None:
    """Called by work between batches: stop when its run is over, or a signal came."""
    interrupt.check()
    cancelled: threading.Event | None = getattr(_WORKER, "cancelled", None)
    if cancelled is not None and cancelled.is_set():
        raise Cancelled


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@frozen
class OneResult(Generic[R]):
    """Work that makes one result of a shard, as work that streams."""

    work: Callable[[Shard], R]

    def __call__(self, shard: Shard) -> Iterator[R]:
        """The only result."""
        yield self.work(shard)


@frozen
class _Last:
    """What follows a shard's results: nothing, or what went wrong."""

    error: BaseException | None


def _feed(shard: Shard, work: Callable[[Shard], Iterator[R]], queue: "Queue[R | _Last]") -> None:
    try:
        for result in work(shard):
            _put(result, queue)
        _put(_Last(None), queue)
    except BaseException as error:
        _put(_Last(error), queue)


def _put(item: R, queue: "Queue[R]") -> None:
    while True:
        check()
        try:
            return queue.put(item, timeout=0.1)
        except Full:
            continue


def _drained(queue: "Queue[R | _Last]", cancelled: threading.Event) -> Iterator[R]:
    while True:
        item = queue.get()
        if not isinstance(item, _Last):
            yield item
        elif item.error is None:
            return
        else:
            cancelled.set()  # who handles the error may hold on to this run for long
            raise item.error
