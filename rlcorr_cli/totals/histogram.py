"""Counts by float bucket: a histogram that adds exactly, whatever the order or the partition."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


HISTOGRAM_RELATIVE_ERROR = 2.0**-8
"""Half a bucket, relative to its nearer edge: what a quantile may be off by (its error bound in reports)."""


def bucket_of(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The top 16 bits of each value as float32; of values >= 0 these are in the values' own order."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).view(np.uint16)[1::2]


def gathered(buckets: NDArray[np.uint16], *columns: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Distinct buckets in ascending order, and each column added up over equal ones; at least one bucket."""
    order = np.argsort(buckets, kind="stable")  # a radix sort on 16 bits
    ordered = buckets[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return ordered[starts], *(np.add.reduceat(column[order], starts) for column in columns)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts per float32 prefix: a bucket is the top 16 bits (sign, exponent, 7 mantissa bits).

    buckets: u16[K] ascending and distinct; counts: i64[K] > 0.  Adding is integer addition, so it is exact in any
    order or partition.
    """

    buckets: NDArray[np.uint16]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls) -> "Histogram":
        """No values: the identity of +."""
        return cls(np.empty(0, np.uint16), np.empty(0, np.int64))

    @classmethod
    def of_counts(cls, dense: NDArray[np.int64]) -> "Histogram":
        """From i64[65536] counts by bucket."""
        buckets = np.flatnonzero(dense)
        return cls(buckets.astype(np.uint16), dense[buckets])

    def __add__(self, other: "Histogram") -> "Histogram":
        if not len(self.buckets) or not len(other.buckets):
            return self if len(self.buckets) else other
        buckets, counts = gathered(
            np.concatenate([self.buckets, other.buckets]), np.concatenate([self.counts, other.counts])
        )
        return Histogram(buckets, counts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Histogram)
            and np.array_equal(self.buckets, other.buckets)
            and np.array_equal(self.counts, other.counts)
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values."""
        return {"buckets": self.buckets.tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Histogram":
        """What `to_dict` wrote; as many counts as buckets, or it is a ValueError."""
        buckets, counts = np.array(data["buckets"], np.uint16), np.array(data["counts"], np.int64)
        if buckets.shape != counts.shape:
            raise ValueError("a histogram has as many counts as buckets")
        return cls(buckets, counts)

    @cached_property
    def by_value(self) -> tuple[Floats, NDArray[np.int64]]:
        """Bucket midpoints in ascending order, and their counts."""
        bits = self.buckets.astype(np.uint32) << 16
        edge = bits.view(np.float32).astype(np.float64)
        outer = (bits + np.uint32(1 << 16)).view(np.float32).astype(np.float64)
        middle = np.where(np.abs(edge) < 1e-37, 0.0, (edge + outer) / 2)
        order = np.argsort(middle, kind="stable")
        return middle[order], self.counts[order]

    def quantile(self, q: float) -> float | None:
        """The value at rank ceil(q * n), to HISTOGRAM_RELATIVE_ERROR; None of no values."""
        total = int(self.counts.sum())
        if total == 0:
            return None
        values, counts = self.by_value
        rank = max(1, math.ceil(q * total))
        return float(values[np.searchsorted(np.cumsum(counts), rank)])
