"""Where a budget's bound falls: totals per bucket first, then the values of the one bucket that holds it.

Ascending, the mean of the first k values only grows with k, so the budget is kept by the largest k whose mean is
below it.  Counts and sums by float bucket (16 bits, as in `summary.Histogram`) say in which bucket that k lies; a
second reading brings just that bucket's values.  Both add, so shards, threads and batches do not matter.

Source: M2PO, AReaL's actor.m2_threshold: strict, and where not even one value is below, the smallest stays.  AReaL
looks at a micro-batch and at an arbitrary one of equal values; here it is the training batch, and all of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.histogram import Floats, bucket_of, gathered


@dataclass(frozen=True, eq=False)
class Buckets:
    """How many values fall into each bucket, and their sum: u16[K] ascending, i64[K], f64[K]."""

    buckets: NDArray[np.uint16]
    counts: NDArray[np.int64]
    sums: Floats

    @classmethod
    def of(cls, values: Floats) -> "Buckets":
        """The buckets of some values >= 0."""
        return cls._added(bucket_of(values), np.ones(len(values), np.int64), values)

    def __add__(self, other: "Buckets") -> "Buckets":
        return self._added(
            np.concatenate([self.buckets, other.buckets]),
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.sums, other.sums]),
        )

    @classmethod
    def _added(cls, buckets: NDArray[np.uint16], counts: NDArray[np.int64], sums: Floats) -> "Buckets":
        return cls(*gathered(buckets, counts, sums)) if len(buckets) else cls(buckets, counts, sums)


@dataclass(frozen=True)
class Crossing:
    """The bucket in which the mean reaches the budget, and what lies below it.  bucket: None where it never does, and
    what lies below is not looked at."""

    bucket: int | None
    n_below: int
    sum_below: float


def crossing(totals: Buckets, mean_below: float) -> Crossing:
    """Where, ascending, the mean first is no longer below the budget."""
    counts, sums = np.cumsum(totals.counts), np.cumsum(totals.sums)
    over = np.flatnonzero(~(sums < mean_below * counts))
    if not len(over):
        return Crossing(None, 0, 0.0)
    i = int(over[0])
    return Crossing(int(totals.buckets[i]), int(counts[i - 1]) if i else 0, float(sums[i - 1]) if i else 0.0)


def cut(at: Crossing, values: Iterable[Floats], mean_below: float) -> tuple[float, bool]:
    """The largest value that stays (inf where all do), and whether the budget is kept: not where even the smallest
    value is too large.  values: those of the crossing's bucket."""
    if at.bucket is None:
        return np.inf, True
    ordered = np.sort(np.concatenate([*values, np.zeros(0)]))
    counts, sums = at.n_below + np.arange(1, len(ordered) + 1), at.sum_below + np.cumsum(ordered)
    stay = int(np.count_nonzero(sums < mean_below * counts))
    # Equal values stay or go together.
    stay = int(np.searchsorted(ordered, ordered[stay], side="left")) if stay < len(ordered) else stay
    if stay:
        return float(ordered[stay - 1]), True
    return (float(np.nextafter(ordered[0], 0.0)), True) if at.n_below else (float(ordered[0]), False)
