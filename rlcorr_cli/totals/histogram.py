"""Histogram: counts by float bucket, which add exactly, whatever the order or the partition."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, Bins, Counts, FloatBits, added_up
from rlcorr_cli.totals.exact import Floats

HISTOGRAM_RELATIVE_ERROR = 2.0**-8
"""Half a bucket, relative to its nearer edge: what a quantile may be off by (its error bound in reports)."""


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
    def of_counts(cls, dense: NDArray[np.int64]) -> "Histogram":
        """From i64[65536] counts by bucket."""
        buckets = np.flatnonzero(dense != 0)  # of booleans, which takes a quarter of the time
        return cls(buckets.astype(np.uint16), dense[buckets])

    @classmethod
    def total(cls, histograms: Sequence["Histogram"]) -> "Histogram":
        """The sum of at least one."""
        bins, counts = (
            np.concatenate(columns) for columns in zip(*((h.bins, h.counts) for h in histograms), strict=True)
        )
        added, totals, _ = added_up(bins, counts, {})
        return cls(added, totals)

    @property
    def buckets(self) -> Bins:
        """Its bins, u16[K] ascending and distinct."""
        return self.bins

    def _replaced(self, bins: Bins, counts: Counts, sums: Mapping[str, Floats]) -> "Histogram":
        return Histogram(bins, narrowed(counts))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values."""
        return {"buckets": self.buckets.tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Histogram":
        """What `to_dict` wrote; as many counts as buckets, or it is a ValueError."""
        return cls(np.array(data["buckets"], np.uint16), np.array(data["counts"], np.int64))

    @cached_property
    def by_value(self) -> tuple[Floats, Counts]:
        """Bucket midpoints in ascending order, and their counts."""
        near, far = self.binning.ends(self.buckets)
        middle = np.where(np.abs(near) < 1e-37, 0.0, (near + far) / 2)
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


class Histograms:
    """The histograms of many groups, whose quantiles are read at once, f64[G]."""

    def __init__(self, histograms: Sequence[Histogram]) -> None:
        sizes = np.array([len(histogram.bins) for histogram in histograms], np.int64)
        buckets = np.concatenate([histogram.bins for histogram in histograms])
        counts = np.concatenate([histogram.counts for histogram in histograms])
        ends = np.cumsum(sizes)
        starts = ends - sizes
        # Values in ascending order: the negative buckets, of which the last is the lowest, then the others.
        negative = buckets >= 1 << 15
        negative_before = np.concatenate([[0], np.cumsum(negative)])
        n_negative = negative_before[ends] - negative_before[starts]
        places = np.arange(len(buckets))
        places = np.where(negative, np.repeat(starts + ends - 1, sizes) - places, places + np.repeat(n_negative, sizes))
        near, far = FLOAT_BITS.ends(buckets)
        self._values, ordered = np.empty(len(buckets)), np.empty(len(buckets), np.int64)
        self._values[places] = np.where(np.abs(near) < 1e-37, 0.0, (near + far) / 2)
        ordered[places] = counts
        self._ranks = np.cumsum(ordered)
        self._before = np.concatenate([[0], self._ranks])[starts]
        self._totals = np.concatenate([[0], self._ranks])[ends] - self._before

    def quantile(self, q: float) -> Floats:
        """The value of each at rank ceil(q * n), as `Histogram.quantile` has it; NaN of no values."""
        ranks = np.maximum(1, np.ceil(q * self._totals)).astype(np.int64)
        places = np.searchsorted(self._ranks, self._before + ranks)
        known = np.append(self._values, np.nan)[np.minimum(places, len(self._values))]
        return np.where(self._totals > 0, known, np.nan)
