"""Histogram: counts by float bucket, which add exactly, whatever the order or the partition."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, Bins, Counts, FloatBits
from rlcorr_cli.totals.exact import Floats, check_counts
from rlcorr_cli.totals.lists import Columns, Ints, Lists, Stretches, first_of_each, joined_columns, starts_of

HISTOGRAM_RELATIVE_ERROR = 2.0**-8
"""Half a bucket, relative to its nearer edge: what a quantile may be off by (its error bound in reports)."""


CHECKED_AT_ONCE = 4096
"""Groups of a file whose histograms are looked through in one step."""


COUNTED_AT_ONCE = 1 << 17


class Histogram(Binned[FloatBits]):  # pyrefly: ignore[bad-class-definition]  # only its base is a dataclass
    """A Binned of counts alone over float32 prefixes, here called buckets, from which quantiles are read."""

    # What is cached is of a few; of groups there may be 100,000, whose counts are narrow for the same reason.
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

    def _replaced(self, bins: Bins, counts: Counts, sums: Mapping[str, Floats]) -> "Histogram":
        return Histogram(bins, narrowed(counts))

    @cached_property
    def by_value(self) -> tuple[Floats, Counts]:
        """Bucket midpoints in ascending order, and their counts."""
        middle = FLOAT_BITS.middles(self.bins)
        order = np.argsort(middle, kind="stable")
        return middle[order], self.counts[order].astype(np.int64)

    def quantile(self, q: float) -> float | None:
        """The value at rank ceil(q * n), to HISTOGRAM_RELATIVE_ERROR; None of no values."""
        total = int(self.counts.sum())
        if total == 0:
            return None
        values, counts = self.by_value
        rank = max(1, math.ceil(q * total))
        return float(values[np.searchsorted(np.cumsum(counts), rank)])


def narrowed(counts: Counts) -> Counts:
    """The same numbers in the narrowest type that holds them."""
    return counts.astype(np.min_scalar_type(counts.max(initial=0)))


@frozen(kw_only=True, eq=False)
class Histograms(Lists):
    """The histograms of G groups, whose columns are buckets u16, ascending in each group, and their counts."""

    kinds = ("u", "iu")

    @classmethod
    def of_rows(cls, values: NDArray[Any], lengths: Ints, group_of: Ints, n_groups: int) -> "Histograms":
        """Of the values of some rows, one row's after the other's.  lengths, group_of: of each row, i64[B]."""
        if len(group_of) and (group_of == group_of[0]).all():
            alone = cls.of_each([Histogram.counting(values)])
            return alone.total([alone], None, group_of[:1], n_groups)
        buckets = FLOAT_BITS.bins_of(values)
        n = np.zeros(n_groups, np.int64)
        np.add.at(n, group_of, lengths)
        rows = Stretches.of_rows((buckets, np.ones(len(values), np.uint8)), lengths)
        return cls(n=n, stretches=rows.merged(group_of, n_groups, _added))

    @classmethod
    def of_each(cls, histograms: Sequence[Histogram]) -> "Histograms":
        """Of groups that have these."""
        columns = joined_columns([(each.bins, narrowed(each.counts)) for each in histograms])
        lengths = np.array([len(each.bins) for each in histograms], np.int64)
        n = np.array([int(each.counts.sum()) for each in histograms], np.int64)
        return cls(n=n, stretches=Stretches.of_rows(columns, lengths))

    def reduce(self, groups: Ints, columns: Columns) -> tuple[Ints, Columns]:
        """Equal buckets of a group as one."""
        return _added(groups, columns)

    def check_lists(self) -> None:
        """A ValueError of buckets that do not ascend, and of counts that are not of as many values."""
        for first in range(0, len(self), CHECKED_AT_ONCE):
            some = slice(first, first + CHECKED_AT_ONCE)
            (buckets, counts), lengths = self.stretches.at(some).flat, self.lengths[some]
            group_of = np.repeat(np.arange(len(lengths)), lengths)
            if buckets.dtype != np.uint16 or np.any(np.diff((group_of << 16) + buckets) <= 0):
                raise ValueError("a histogram's buckets are not in order")
            check_counts(counts)
            # What is part of others may have none of its own.
            stored = np.bincount(group_of, counts, minlength=len(lengths))
            if np.any((stored != self.n[some]) & (lengths > 0)):
                raise ValueError("a histogram has other counts than values")

    def __getitem__(self, group: int) -> Histogram:
        return Histogram(*self.stretches.columns_of(group))

    @cached_property
    def _ascending(self) -> tuple[Floats, Ints]:
        """The middles of all buckets, ascending in each group, and how many values there are up to each."""
        buckets, counts = self.stretches.flat
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        # Negative buckets come last, and of these the last is the lowest.
        negative = buckets >= 1 << 15
        negative_before = np.concatenate([[0], np.cumsum(negative)])
        n_negative = negative_before[ends] - negative_before[starts]
        places = np.arange(len(buckets))
        places = np.where(
            negative,
            np.repeat(starts + ends - 1, self.lengths) - places,
            places + np.repeat(n_negative, self.lengths),
        )
        values, ordered = np.empty(len(buckets)), np.empty(len(buckets), np.int64)
        values[places] = FLOAT_BITS.middles(buckets)
        ordered[places] = counts
        return values, np.cumsum(ordered)

    def quantile(self, q: float) -> Floats:
        """The value of each group at rank ceil(q * n), as `Histogram.quantile` has it; NaN of no values."""
        values, ranks = self._ascending
        before = starts_of(self.n)
        places = np.searchsorted(ranks, before + np.maximum(1, np.ceil(q * self.n)).astype(np.int64))
        known = np.append(values, np.nan)[np.minimum(places, len(values))]
        return np.where(self.n > 0, known, np.nan)


def _added(groups: Ints, columns: Columns) -> tuple[Ints, Columns]:
    buckets, counts = columns
    if not len(buckets):
        return groups, columns
    if groups[0] == groups[-1]:
        dense = np.bincount(buckets, None if counts.max() == 1 else counts, minlength=1 << 16).astype(np.int64)
        (there,) = np.nonzero(dense)
        return np.full(len(there), groups[0]), (there.astype(np.uint16), narrowed(dense[there]))
    keys = (groups << 16) + buckets
    order = np.argsort(keys)
    starts = first_of_each(keys[order])
    added = keys[order[starts]]
    summed = np.add.reduceat(counts[order].astype(np.int64), starts)
    return added >> 16, ((added & 0xFFFF).astype(np.uint16), narrowed(summed))
