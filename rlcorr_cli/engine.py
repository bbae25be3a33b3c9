"""Engines: apply one function to many shards, results in shard order.

Shards are independent and results add, so an engine decides only where the work runs.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from rlcorr_cli.batch import Shard

R = TypeVar("R")


class Cancelled(Exception):
    """A worker stopped early because the run is over; never seen by a user."""


class Engine(Protocol):
    """Maps work over shards; results come in shard order."""

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        ...


class LocalEngine:
    """Threads over shards: Parquet decoding and tensor arithmetic leave the interpreter lock.

    At most `ahead` shards per thread are under way or waiting to be taken, so memory stays flat.
    """

    def __init__(self, threads: int, ahead: int = 2) -> None:
        self.threads = threads
        self.ahead = ahead
        self.cancelled = threading.Event()

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """Results in shard order; the first failure ends the run."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="rlcorr")
        waiting: deque[Future[R]] = deque()
        try:
            for shard in shards:
                waiting.append(pool.submit(work, shard))
                if len(waiting) >= self.ahead * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            self.cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def check(self) -> None:
        """Called by work between batches: stop when the run is over."""
        if self.cancelled.is_set():
            raise Cancelled
