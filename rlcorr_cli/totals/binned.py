"""What pictures are drawn from: counts and sums in fixed bins, that add like every other total.

Scatters count tokens in the squares of a grid.  Surprise (-b), position (1 + index among a sequence's valid tokens) and
length are in octaves.
"""

from collections.abc import Mapping
from dataclasses import field
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import Binned, Grid, Octaves
from rlcorr_cli.totals.exact import Floats
from rlcorr_cli.totals.histogram import Histogram

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
            "counts": {name: _rows_to_dict(scatter) for name, scatter in self.counts.items()},
            "spread": {name: _floats_to_list(_table(self.spread[name], SUMS[name])) for name in self.spread},
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


def _rows_to_dict(scatter: Binned[Grid]) -> dict[str, list[int]]:
    return {str(i): row.tolist() for i, row in enumerate(square(scatter)) if row.any()}


def _scatter_from_dict(grid: Grid, rows: Mapping[str, list[int]]) -> Binned[Grid]:
    counts = np.zeros((grid.parts, grid.parts), np.int64)
    for i, row in rows.items():
        counts[int(i)] = row
    return Binned.of_table(grid, counts.ravel())


def _table(binned: Binned[Octaves], names: tuple[str, ...]) -> Floats:
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
