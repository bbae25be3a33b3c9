"""Engines: apply one function to many shards, results in shard order.

Shards are independent and results add, so an engine decides only where the work runs.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Full, Queue
from typing import Protocol, TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.engines import interrupt

R = TypeVar("R")
HELD = 2
"""Results of one shard that may wait to be taken, where they stream."""


class Cancelled(Exception):
    """A worker stopped early because the run is over; never seen by a user."""


@dataclass(frozen=True)
class _Last:
    """What follows a shard's results: nothing, or what went wrong."""

    error: BaseException | None


class Engine(Protocol):
    """Maps work over shards; results come in shard order."""

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        ...


class LocalEngine:
    """Threads over shards: Parquet decoding and tensor arithmetic leave the interpreter lock.

    At most two shards per thread are under way or waiting to be taken, so memory stays flat.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.cancelled = threading.Event()

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """Results in shard order; the first failure ends the run."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="rlcorr")
        waiting: deque[Future[R]] = deque()
        try:
            for shard in shards:
                waiting.append(pool.submit(work, shard))
                if len(waiting) >= 2 * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            self.cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def stream(self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]]) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results, to be used up before the next is taken.

        For results that are large: a thread holds no more than HELD of them, and waits.
        """
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="rlcorr")
        waiting: deque[Queue[R | _Last]] = deque()
        try:
            for shard in shards:
                waiting.append(Queue(HELD))
                pool.submit(self._feed, shard, work, waiting[-1])
                if len(waiting) >= self.threads:
                    yield self._drained(waiting.popleft())
            while waiting:
                yield self._drained(waiting.popleft())
        finally:
            self.cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _feed(self, shard: Shard, work: Callable[[Shard], Iterator[R]], queue: "Queue[R | _Last]") -> None:
        try:
            for result in work(shard):
                self._put(result, queue)
            self._put(_Last(None), queue)
        except BaseException as error:
            self._put(_Last(error), queue)

    def _put(self, item: R, queue: "Queue[R]") -> None:
        while True:
            self.check()
            try:
                return queue.put(item, timeout=0.1)
            except Full:
                continue

    def _drained(self, queue: "Queue[R | _Last]") -> Iterator[R]:
        while True:
            item = queue.get()
            if not isinstance(item, _Last):
                yield item
            elif item.error is None:
                return
            else:
                self.cancelled.set()  # who handles the error may hold on to this run for long
                raise item.error

    def check(self) -> None:
        """Called by work between batches: stop when the run is over, or a signal came."""
        interrupt.check()
        if self.cancelled.is_set():
            raise Cancelled
