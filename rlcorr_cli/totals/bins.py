"""Binned: counts and sums over bins, the one accumulator behind histograms, budget searches and pictures.

A binning is a small value that says what its bins are: float32s by their top 16 bits, parts of octaves, or the squares
of a grid.  None has more than 65,536 bins, so that bin numbers are u16 and sorting them is a radix sort.  A Histogram
is one of counts alone by float bucket, which add exactly, whatever the order or the partition.

BinnedTotals are what pictures are drawn from.  Scatters count tokens in the squares of a grid.  Surprise (-b), position
(1 + index among a sequence's valid tokens) and length are in octaves.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats, Ints, check_counts, first_of_each

Bins = NDArray[np.uint16]
Counts = NDArray[np.integer[Any]]
"""Whole numbers of any width; what is added up is i64."""


@frozen
class FloatBits:
    """Bins of equal top 16 bits as float32: sign, exponent and 7 bits of the mantissa."""

    n: ClassVar[int] = 1 << 16

    def bins_of(self, values: NDArray[Any]) -> Bins:
        """The bin of each value; of values >= 0 the bins are in the values' own order."""
        with np.errstate(over="ignore"):
            return values.astype(np.float32).view(np.uint16)[1::2]

    def ends(self, bins: Bins) -> tuple[Floats, Floats]:
        """Either end of each bin, the one nearer to 0 first; what float32 does not hold is at its largest number."""
        bits = bins.astype(np.uint32) << 16
        largest = np.finfo(np.float32).max
        with np.errstate(invalid="ignore"):  # the bin of infinity ends at no number
            ends = [pattern.view(np.float32).astype(np.float64) for pattern in (bits, bits + np.uint32(1 << 16))]
        near, far = (np.clip(end, -largest, largest) for end in ends)
        return near, np.where(np.isnan(far), near, far)

    def middles(self, bins: Bins) -> Floats:
        """The middle of each bin; of those next to 0, which hold it, 0."""
        near, far = self.ends(bins)
        return np.where(np.abs(near) < 1e-37, 0.0, (near + far) / 2)


@frozen
class Octaves:
    """Bins from 2^first to 2^last, `parts` (a power of 2) of equal width to each octave.

    What lies below the first or above the last falls into that one.
    """

    first: int
    last: int
    parts: int

    @property
    def n(self) -> int:
        """How many bins."""
        return (self.last - self.first) * self.parts

    @property
    def shift(self) -> int:
        """How many low bits of a float32 a bin leaves out."""
        return 23 - (self.parts.bit_length() - 1)

    @property
    def origin(self) -> int:
        """The float32 bits of 2^first, shifted."""
        return (127 + self.first) << (23 - self.shift)

    @property
    def edges(self) -> Floats:
        """n + 1 edges."""
        bits = (np.arange(self.n + 1, dtype=np.int64) + self.origin) << self.shift
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)

    def centres(self, bins: Bins) -> Floats:
        """The geometric mean of each bin's ends."""
        edges = self.edges
        return np.sqrt(edges[:-1] * edges[1:])[bins]


@frozen
class Grid:
    """Squares of equal size over [low, high] x [low, high], `parts` along either axis; bin i * parts + j.

    What lies outside falls into the nearest square.
    """

    low: float
    high: float
    parts: int

    @property
    def n(self) -> int:
        """How many bins."""
        return self.parts**2

    @property
    def edges(self) -> Floats:
        """parts + 1 edges along either axis."""
        return np.linspace(self.low, self.high, self.parts + 1)


FLOAT_BITS = FloatBits()
BinningT = TypeVar("BinningT", bound=FloatBits | Octaves | Grid)


_NO_SUMS: Mapping[str, Floats] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Binned(Generic[BinningT]):
    """Counts and sums of what falls into each bin.

    bins: u16[K], ascending and distinct; counts: whole numbers [K]; sums: f64[K] by name.  + is the union of the bins:
    counts add exactly in any order or partition, sums to rounding.  It refuses another binning and other sums.
    """

    binning: BinningT
    bins: Bins
    counts: Counts
    sums: Mapping[str, Floats] = field(default_factory=lambda: _NO_SUMS)

    def __post_init__(self) -> None:
        if any(column.shape != self.bins.shape for column in (self.counts, *self.sums.values())):
            raise ValueError("there must be one count and one sum for each bin")

    def check_unpacked(self) -> None:
        """A ValueError of bins that do not ascend or are none of the binning's, of counts below 0, and of sums that are
        not finite."""
        if np.any(np.diff(self.bins.astype(np.int64)) <= 0) or np.any(self.bins >= self.binning.n):
            raise ValueError("bins are not in order, or there are not so many")
        if not all(np.all(np.isfinite(column)) for column in self.sums.values()):
            raise ValueError("a sum over a bin is not finite")
        check_counts(self.counts)

    @classmethod
    def of_values(cls, binning: BinningT, bins: Bins, values: Mapping[str, Floats]) -> "Binned[BinningT]":
        """One value of each name for every number binned; bins: which bin each falls into, in any order."""
        if len(bins) > binning.n // 2:  # a table of all bins takes less than sorting
            tables = {name: np.bincount(bins, column, binning.n) for name, column in values.items()}
            return cls.of_table(binning, np.bincount(bins, minlength=binning.n), tables)  # pyrefly: ignore
        return Binned(binning, *added_up(bins, np.ones(len(bins), np.int64), values))

    @classmethod
    def of_table(
        cls, binning: BinningT, counts: Counts, sums: Mapping[str, Floats] | None = None
    ) -> "Binned[BinningT]":
        """From counts and sums of all bins, [n] each; a bin without a count is left out."""
        (bins,) = np.nonzero(counts)
        named = {name: column[bins] for name, column in (sums or {}).items()}
        return Binned(binning, bins.astype(np.uint16), counts[bins], named)

    def table(self, column: NDArray[Any]) -> NDArray[Any]:
        """One of its columns over all bins, [n]: 0 where nothing was binned."""
        whole = np.zeros(self.binning.n, column.dtype)
        whole[self.bins] = column
        return whole

    def __add__(self, other: Self) -> Self:
        if self.binning != other.binning or self.sums.keys() != other.sums.keys():
            raise ValueError("totals over different bins, or of different sums, do not add")
        if not len(self.bins) or not len(other.bins):
            return self if len(self.bins) else other
        bins, counts, sums = added_up(
            np.concatenate([self.bins, other.bins]),
            np.concatenate([self.counts, other.counts]),
            {name: np.concatenate([column, other.sums[name]]) for name, column in self.sums.items()},
        )
        return self._replaced(bins, counts, sums)

    def _replaced(self, bins: Bins, counts: Counts, sums: Mapping[str, Floats]) -> Self:
        return replace(self, bins=bins, counts=counts, sums=sums)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Binned)
            and self.binning == other.binning
            and np.array_equal(self.bins, other.bins)
            and np.array_equal(self.counts, other.counts)
            and self.sums.keys() == other.sums.keys()
            and all(np.array_equal(column, other.sums[name]) for name, column in self.sums.items())
        )


def added_up(bins: Bins, counts: Counts, sums: Mapping[str, Floats]) -> tuple[Bins, Counts, dict[str, Floats]]:
    """Distinct bins in ascending order, and each column added up over equal ones."""
    if not len(bins):
        return bins, counts, dict(sums)
    order = np.argsort(bins, kind="stable")  # a radix sort on 16 bits
    ordered = bins[order]
    starts = first_of_each(ordered)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float64 a sum is inf, and its metric null
        added = {name: np.add.reduceat(column[order], starts) for name, column in sums.items()}
    return ordered[starts], np.add.reduceat(counts[order], starts, dtype=np.int64), added


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
    def counting(cls, pieces: Iterable[NDArray[Any]]) -> "Histogram":
        """Of all values of some arrays; so many at a time as a processor's cache holds."""
        dense = np.zeros(FLOAT_BITS.n, np.int64)
        for values in pieces:
            for first in range(0, len(values), COUNTED_AT_ONCE):
                some = values[first : first + COUNTED_AT_ONCE]
                dense += np.bincount(FLOAT_BITS.bins_of(some), minlength=FLOAT_BITS.n)
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

    @cached_property
    def ranks(self) -> Counts:
        """How many values lie in each of these buckets and those before it."""
        return np.cumsum(self.by_value[1])

    def quantile(self, q: float) -> float | None:
        """The value at rank ceil(q * n), to HISTOGRAM_RELATIVE_ERROR; None of no values."""
        n = int(self.ranks[-1]) if len(self.bins) else 0
        if not n:
            return None
        rank = max(1, math.ceil(q * n))
        return float(self.by_value[0][np.searchsorted(self.ranks, rank)])


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


SCATTER = 64
"""Bins along either axis of a scatter."""
DEEPEST = -16.0
"""Log-probs below this fall into a scatter's first bin."""
GRIDS = {"probability": Grid(0.0, 1.0, SCATTER), "log_probability": Grid(DEEPEST, 0.0, SCATTER)}
SURPRISE = Octaves(-10, 5, 2)
POSITION = Octaves(0, 20, 2)
LENGTH = Octaves(0, 20, 2)
AXES = {"surprise": SURPRISE, "position": POSITION, "length": LENGTH}
MOMENTS = ("sum", "sum_of_squares")
SUMS = {"surprise": MOMENTS, "position": MOMENTS, "length": (*MOMENTS, "tokens", "kept_tokens")}
"""Axis -> the sums in its bins, in the order of the JSON form."""
HISTOGRAMS = ("weights", "loads", "kept_weights", "gradient")
LATER_HISTOGRAMS = frozenset({"kept_weights", "gradient"})
"""Those that reports of older releases do not hold."""


@frozen(eq=False)
class BinnedTotals:
    """Totals in bins.

    counts: tokens by probability and by log_probability, rollout first.  spread: by surprise, position and length, how
    many and the log-ratio's sums (of lengths: sequences and S), and by length the tokens before rejections and those
    that they keep.  histograms: weights (applied, of every token, before any batch mean), kept_weights (of kept
    tokens), loads (what each sequence's kept tokens weigh together) and gradient (the same times their |advantage|;
    empty without advantages).
    """

    counts: Mapping[str, Binned[Grid]] = field(default_factory=dict[str, Binned[Grid]])
    spread: Mapping[str, Binned[Octaves]] = field(default_factory=dict[str, Binned[Octaves]])
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])

    def check_unpacked(self) -> None:
        """A ValueError of other bins, sums or histograms than these totals have; any of the three may be left out."""
        binnings = {name: binned.binning for name, binned in {**self.counts, **self.spread}.items()}
        expected = {**(GRIDS if self.counts else {}), **(AXES if self.spread else {})}
        sums = {name: set(binned.sums) for name, binned in self.spread.items()}
        if (
            binnings != expected
            or any(names != set(SUMS[name]) for name, names in sums.items())
            or (self.histograms and self.histograms.keys() != set(HISTOGRAMS))
        ):
            raise ValueError("pictures are of other bins, sums or histograms")

    def __add__(self, other: "BinnedTotals") -> "BinnedTotals":
        if not self.spread or not other.spread:
            return self if self.spread else other
        return BinnedTotals(
            {name: mine + other.counts[name] for name, mine in self.counts.items()},
            {name: mine + other.spread[name] for name, mine in self.spread.items()},
            {name: mine + other.histograms[name] for name, mine in self.histograms.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which reports have: whole tables, but for the rows of a scatter without a count."""
        return {
            "counts": {
                name: {str(i): row.tolist() for i, row in enumerate(square(scatter)) if row.any()}
                for name, scatter in self.counts.items()
            },
            "spread": {name: _floats_to_list(_spread_table(self.spread[name], SUMS[name])) for name in self.spread},
            "histograms": {name: histogram_to_list(histogram) for name, histogram in self.histograms.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BinnedTotals":
        """What `to_dict` wrote; anything else is a LookupError or ValueError."""
        tables = {name: np.array(table, np.float64) for name, table in data["spread"].items()}
        if not tables and not data["counts"]:
            return cls()
        shapes = {name: table.shape for name, table in tables.items()}
        if shapes != {name: (1 + len(SUMS[name]), axis.n) for name, axis in AXES.items()}:
            raise ValueError(f"bins of another shape: {shapes}")
        histograms = set(data["histograms"])
        if set(data["counts"]) != set(GRIDS) or not set(HISTOGRAMS) - LATER_HISTOGRAMS <= histograms <= set(HISTOGRAMS):
            raise LookupError("counts are missing")
        return cls(
            {name: _scatter_from_dict(GRIDS[name], rows) for name, rows in data["counts"].items()},
            {name: _spread_from_table(name, table) for name, table in tables.items()},
            {name: histogram_from_list(data["histograms"].get(name, [[], []])) for name in HISTOGRAMS},
        )


def square(scatter: Binned[Grid]) -> NDArray[np.int64]:
    """A scatter's counts as a square, i64[parts, parts]."""
    return scatter.table(scatter.counts).reshape(scatter.binning.parts, -1)


def _scatter_from_dict(grid: Grid, rows: Mapping[str, list[int]]) -> Binned[Grid]:
    counts = np.zeros((grid.parts, grid.parts), np.int64)
    for i, row in rows.items():
        counts[int(i)] = row
    return Binned.of_table(grid, counts.ravel())


def _spread_table(binned: Binned[Octaves], names: tuple[str, ...]) -> Floats:
    """Counts and sums of all bins, f64[1 + K, n]."""
    columns = binned.counts.astype(np.float64), *(binned.sums[name] for name in names)
    return np.stack([binned.table(column) for column in columns])


def _floats_to_list(values: Floats) -> list[Any]:
    """Numbers, nested as the array is; what is not finite is text ("inf", "-inf", "nan")."""
    if values.ndim > 1:
        return [_floats_to_list(row) for row in values]
    return [value if isfinite(value) else str(value) for value in values.tolist()]


def _spread_from_table(axis: str, table: Floats) -> Binned[Octaves]:
    numbers, *sums = table
    with np.errstate(invalid="ignore"):
        counts = numbers.astype(np.int64)
    if not np.array_equal(counts, numbers):
        raise ValueError(f"counts by {axis} are not whole numbers")
    return Binned.of_table(AXES[axis], counts, dict(zip(SUMS[axis], sums, strict=True)))


def histogram_to_list(histogram: Histogram) -> list[list[int]]:
    """Buckets and counts."""
    return [histogram.bins.tolist(), histogram.counts.tolist()]


def histogram_from_list(data: list[list[int]]) -> Histogram:
    """What `histogram_to_list` wrote; as many counts as buckets, or it is a ValueError."""
    return Histogram(np.array(data[0], np.uint16), np.array(data[1], np.int64))
