"""Histogram: counts by float bucket, which add exactly, whatever the order or the partition."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, Bins, Counts, FloatBits, added_up
from rlcorr_cli.totals.exact import Floats
from rlcorr_cli.totals.lists import Ints, first_of_each

HISTOGRAM_RELATIVE_ERROR = 2.0**-8
"""Half a bucket, relative to its nearer edge: what a quantile may be off by (its error bound in reports)."""


COUNTED_AT_ONCE = 1 << 17


class Histogram(Binned[FloatBits]):  # pyrefly: ignore[bad-class-definition]  # only its base is a dataclass
    """A Binned of counts alone over float32 prefixes, here called buckets, from which quantiles are read."""

    __slots__ = ("__dict__",)

    def __init__(self, buckets: Bins, counts: Counts) -> None:
        super().__init__(FLOAT_BITS, buckets, counts)

    @classmethod
    def empty(cls) -> "Histogram":
        """No values: the identity of +."""
        return cls(np.empty(0, np.uint16), np.empty(0, np.int64))

    @classmethod
    def counting(cls, values: NDArray[Any]) -> "Histogram":
        """Of some values; so many at a time as a processor's cache holds."""
        dense = np.zeros(FLOAT_BITS.n, np.int64)
        for first in range(0, len(values), COUNTED_AT_ONCE):
            dense += np.bincount(FLOAT_BITS.bins_of(values[first : first + COUNTED_AT_ONCE]), minlength=FLOAT_BITS.n)
        return cls.of_counts(dense)

    @classmethod
    def of_counts(cls, dense: NDArray[np.int64]) -> "Histogram":
        """From i64[65536] counts by bucket."""
        buckets = np.flatnonzero(dense != 0)  # of booleans, which takes a quarter of the time
        return cls(buckets.astype(np.uint16), dense[buckets])

    @classmethod
    def total(cls, parts: "Sequence[Histogram]") -> "Histogram":
        """The sum of some."""
        bins = np.concatenate([part.bins for part in parts])
        bins, counts, _ = added_up(bins, np.concatenate([part.counts for part in parts]), {})
        return cls(bins, narrowed(counts))

    def _replaced(self, bins: Bins, counts: Counts, sums: Mapping[str, Floats]) -> "Histogram":
        return Histogram(bins, narrowed(counts))

    @property
    def n(self) -> int:
        """How many values."""
        return int(self.counts.sum())

    @property
    def n_bytes(self) -> int:
        """What its arrays take."""
        return self.bins.nbytes + self.counts.nbytes

    @cached_property
    def by_value(self) -> tuple[Floats, Counts]:
        """Bucket midpoints in ascending order, and their counts."""
        middle = FLOAT_BITS.middles(self.bins)
        order = np.argsort(middle, kind="stable")
        return middle[order], self.counts[order].astype(np.int64)

    def quantile(self, q: float) -> float | None:
        """The value at rank ceil(q * n), to HISTOGRAM_RELATIVE_ERROR; None of no values."""
        if not self.n:
            return None
        values, counts = self.by_value
        rank = max(1, math.ceil(q * self.n))
        return float(values[np.searchsorted(np.cumsum(counts), rank)])


def narrowed(counts: Counts) -> Counts:
    """The same numbers in the narrowest type that holds them."""
    return counts.astype(np.min_scalar_type(counts.max(initial=0)))


class Histograms(tuple[Histogram, ...]):
    """Those of some groups, whose quantiles are arrays."""

    @classmethod
    def counting(cls, values: NDArray[Any], sizes: Ints) -> "Histograms":
        """Of the values of each group, one group's after the other's.  sizes: how many each has, i64[G]."""
        keys = (np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes) << 16) | FLOAT_BITS.bins_of(values)
        keys.sort()
        starts = first_of_each(keys)
        ends = np.searchsorted(keys[starts], np.arange(len(sizes) + 1) << 16).tolist()
        bins, counts = keys[starts].astype(np.uint16), narrowed(np.diff(np.append(starts, len(keys))))
        return cls(Histogram(bins[first:end], counts[first:end]) for first, end in pairwise(ends))

    def quantile(self, q: float) -> Floats:
        """The quantile of each; NaN of no values."""
        return np.array([each.quantile(q) for each in self], np.float64)
