"""Several questions to a store at once, answered in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")
AT_ONCE = 16
"""Files that are asked for at a time: a request takes some 20 to 100 ms, nearly all of it waiting."""


def answers(ask: Callable[[A], R], items: Iterable[A], *, at_once: int = AT_ONCE) -> Iterator[R]:
    """What `ask` gives of each item, in order; up to `at_once` of them are asked while the first is waited for.

    What an earlier item raises comes before what a later one does, as without threads.
    """
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="rlcorr-open")
    try:
        for item in items:
            waiting.append(pool.submit(ask, item))
            if len(waiting) >= at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
