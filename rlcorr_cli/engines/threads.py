"""Threads over shards: Parquet decoding and tensor arithmetic leave the interpreter lock."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Full, Queue
from typing import TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.engines.engine import AHEAD, HELD, belongs_to, check

R = TypeVar("R")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Last:
    """What follows a shard's results: nothing, or what went wrong."""

    error: BaseException | None


class ThreadEngine:
    """An Engine in this process.

    At most two shards per thread are under way or waiting to be taken, so memory stays flat.
    """

    shares_memory = True

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    @property
    def named(self) -> str:
        """'2 threads'."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    def sized(self, n_bytes: int) -> "ThreadEngine":
        """Itself."""
        return self

    def local(self, threads: int | None = None) -> "ThreadEngine":
        """Itself, or one of so many threads."""
        return self if threads is None else ThreadEngine(threads)

    def close(self) -> None:
        """Nothing: threads end with the reading that they were started for."""

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        cancelled = threading.Event()
        pool = self._pool(cancelled)
        waiting: deque[Future[R]] = deque()
        try:
            for shard in shards:
                waiting.append(pool.submit(work, shard))
                if len(waiting) >= AHEAD * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def stream(self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]]) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results, to be used up before the next is taken.

        For results that are large: a thread holds no more than HELD of them, and waits.
        """
        # One queue per shard, taken in shard order: a thread that runs ahead fills its own queue and then waits, so
        # what is held is HELD results per thread, however unequal the shards are.
        cancelled = threading.Event()
        pool = self._pool(cancelled)
        waiting: deque[Queue[R | _Last]] = deque()
        try:
            for shard in shards:
                waiting.append(Queue(HELD))
                pool.submit(_feed, shard, work, waiting[-1])
                if len(waiting) >= self.threads:
                    yield _drained(waiting.popleft(), cancelled)
            while waiting:
                yield _drained(waiting.popleft(), cancelled)
        finally:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _pool(self, cancelled: threading.Event) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(
            self.threads, thread_name_prefix="rlcorr", initializer=belongs_to, initargs=(cancelled,)
        )


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
