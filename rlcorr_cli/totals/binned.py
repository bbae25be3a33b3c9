"""What pictures are drawn from: counts and sums in fixed bins, that add like every other total.

Bins are of two kinds.  Octave bins split [0, inf) into parts of equal width in log2, PARTS to an octave, from the bits
of a float32; what lies below the first or above the last falls into that one.  Scatter bins are squares of equal size.
An axis in the first kind is surprise (-b), position (1 + index among a sequence's valid tokens) or length.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.exact import floats_from_list, floats_to_list
from rlcorr_cli.totals.histogram import Floats, Histogram

SCATTER = 64
"""Bins along either axis of a scatter."""
DEEPEST = -16.0
"""Log-probs below this fall into a scatter's first bin."""


@dataclass(frozen=True)
class Octaves:
    """Bins from 2^first to 2^last, `parts` (a power of 2) to each octave."""

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


SURPRISE = Octaves(-10, 5, 2)
POSITION = Octaves(0, 20, 2)
LENGTH = Octaves(0, 20, 2)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Totals in bins.

    counts: probability and log_probability i64[SCATTER, SCATTER], rollout first.  spread: surprise, position and length
    f64[3, n]: how many, sum of the log-ratio, sum of its square (of lengths: sequences and S), and for length two rows
    more, sequences and tokens that rejections leave: tokens, kept tokens.  histograms: weights (applied, of every
    token, before any batch mean) and loads (what each sequence's kept tokens weigh together).
    """

    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])
    spread: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])

    def __add__(self, other: "Pictures") -> "Pictures":
        if not self.spread or not other.spread:
            return self if self.spread else other
        return Pictures(
            {name: mine + other.counts[name] for name, mine in self.counts.items()},
            {name: mine + other.spread[name] for name, mine in self.spread.items()},
            {name: mine + other.histograms[name] for name, mine in self.histograms.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; rows of a scatter without a count are left out."""
        return {
            "counts": {
                name: {str(i): row.tolist() for i, row in enumerate(table) if row.any()}
                for name, table in self.counts.items()
            },
            "spread": {name: floats_to_list(table) for name, table in self.spread.items()},
            "histograms": {name: histogram_to_list(one) for name, one in self.histograms.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Pictures":
        """What `to_dict` wrote; anything else is a LookupError or ValueError."""
        counts: dict[str, NDArray[np.int64]] = {}
        for name, rows in data["counts"].items():
            counts[name] = np.zeros((SCATTER, SCATTER), np.int64)
            for i, row in rows.items():
                counts[name][int(i)] = row
        spread = {name: floats_from_list(table) for name, table in data["spread"].items()}
        if not spread and not counts:
            return cls()
        shapes = {name: table.shape for name, table in spread.items()}
        if shapes != {"surprise": (3, SURPRISE.n), "position": (3, POSITION.n), "length": (5, LENGTH.n)}:
            raise ValueError(f"bins of another shape: {shapes}")
        if set(counts) != {"probability", "log_probability"} or set(data["histograms"]) != {"weights", "loads"}:
            raise LookupError("counts are missing")
        return cls(counts, spread, {name: histogram_from_list(one) for name, one in data["histograms"].items()})


def histogram_to_list(one: Histogram) -> list[list[int]]:
    """Buckets and counts."""
    return [one.buckets.tolist(), one.counts.tolist()]


def histogram_from_list(data: list[list[int]]) -> Histogram:
    """What `histogram_to_list` wrote."""
    return Histogram.from_dict({"buckets": data[0], "counts": data[1]})
