"""Work that goes on in smaller portions where a GPU's memory runs out.

How much a batch takes depends on the plan, on what else is on the GPU, and on how many workers share it; so it is
tried, and a shard whose batch does not fit is begun anew with batches of half the tokens.  That takes a shard that is
read by itself: one that shares with others what it has met would meet its own rows again.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rlcorr_cli.errors import DataError
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.totals.row_keys import Keys

R = TypeVar("R")
LEAST_TOKENS = 1 << 14
"""A batch of no more is not made smaller: what fills the GPU then is something else."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetriedSmaller(Generic[R]):
    """Work on a shard, tried again with smaller batches.  work: a dataclass with a ShardReading, `reading`."""

    work: Callable[[Shard], R]

    def __call__(self, shard: Shard) -> R:
        """What the work makes of the shard."""
        return _tried(self.work, lambda work: work(shard))

    def knowing(self, ids: Keys) -> "RetriedSmaller[R]":
        """The same work, to which rows with these ids have come before."""
        work: Any = self.work
        return RetriedSmaller(replace(work, reading=replace(work.reading, known=ids)))


@dataclass(frozen=True)
class RetriedSmallerStream(Generic[R]):
    """The same of work whose results stream: it begins anew as long as none is out."""

    work: Callable[[Shard], Iterator[R]]

    def __call__(self, shard: Shard) -> Iterator[R]:
        """What the work makes of the shard."""

        def begun(work: Callable[[Shard], Iterator[R]]) -> tuple[list[R], Iterator[R]]:
            results = work(shard)
            return [result for _, result in zip(range(1), results, strict=False)], results

        first, others = _tried(self.work, begun)
        yield from first
        try:
            yield from others
        except devices.out_of_memory() as error:
            raise _full() from error


def _tried(work: Any, run: Callable[[Any], R]) -> R:
    while True:
        try:
            return run(work)
        except devices.out_of_memory() as error:
            if work.reading.state is not None or work.reading.batch_tokens <= LEAST_TOKENS:
                raise _full() from error
        # Here, because the error's traceback holds what is on the GPU.
        devices.free()
        n_tokens = work.reading.batch_tokens
        _LOG.warning("The GPU's memory ran out at batches of %s tokens: half as many are taken.", f"{n_tokens:,}")
        work = replace(work, reading=replace(work.reading, batch_tokens=n_tokens // 2))


def _full() -> DataError:
    return DataError("The GPU's memory ran out.", "Use a smaller --batch-tokens, fewer --workers, or --device cpu.")
