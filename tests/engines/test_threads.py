"""Engines: results in shard order, the first failure ends the run, and nobody runs on after it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from limits import LIMIT_SECONDS

from rlcorr_cli.engines.in_order import HELD, ThreadEngine
from rlcorr_cli.reading.batch import Shard

SHARDS = [Shard(index=i, path=f"{i}.parquet", format="parquet", part=None, n_bytes=1) for i in range(20)]


@pytest.fixture(autouse=True)
def _workers_end() -> Iterator[None]:
    """Threads of a run that is over end by themselves; those of other tests, which wait for a silent store, later."""
    earlier = threading.enumerate()
    yield
    wait_until(
        lambda: not any(thread.name.startswith("rlcorr") for thread in threading.enumerate() if thread not in earlier)
    )


def three(shard: Shard) -> Iterator[tuple[int, int]]:
    """Three results, later shards sooner."""
    time.sleep(0.002 * (20 - shard.index))
    yield from ((shard.index, i) for i in range(3))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_streams_come_in_shard_order(threads: int) -> None:
    found = [one for results in ThreadEngine(threads).stream(SHARDS, three) for one in results]
    assert found == [(shard.index, i) for shard in SHARDS for i in range(3)]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_failure_comes_after_the_results_before_it(threads: int) -> None:
    def work(shard: Shard) -> Iterator[int]:
        yield shard.index
        if shard.index == 4:
            raise ValueError("shard 4")

    seen: list[int] = []
    streams = ThreadEngine(threads).stream(SHARDS, work)
    with pytest.raises(ValueError, match="shard 4"):
        seen.extend(one for results in streams for one in results)
    assert seen == [0, 1, 2, 3, 4]
    streams.close()


def test_no_thread_runs_far_ahead_of_who_takes_its_results() -> None:
    made = [0] * len(SHARDS)

    def work(shard: Shard) -> Iterator[int]:
        for i in range(50):
            made[shard.index] += 1
            yield i

    # Closed in any case: threads that wait to put a result hold up the end of the process.
    with closing(ThreadEngine(2).stream(SHARDS, work)) as streams:
        first = next(streams)
        assert next(first) == 0
        # Of either thread HELD wait to be taken and one more waits to be put there; and one was taken.
        most = 2 * (HELD + 1) + 1
        wait_until(lambda: sum(made) >= most)
        time.sleep(0.3)
        assert sum(made) == most


def wait_until(state: Callable[[], bool]) -> None:
    """Longer than any busy machine takes to get there."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not state():
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.005)
