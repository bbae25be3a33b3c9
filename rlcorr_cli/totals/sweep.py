"""A curve over one free bound: sums by bucket of the units' values, and the numbers at any threshold.

A unit is inside where its distance is at most the threshold: |value| of a two-sided bound, the value itself of an upper
one, its negative of a lower one.  Points of the curve are bucket edges, where the sums are exact; in between the one
bucket that the threshold cuts must be read again (`Candidates`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, Bins, FloatBits
from rlcorr_cli.totals.comparison import DEGREES as PLAN_DEGREES
from rlcorr_cli.totals.comparison import LOGS
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.tail import rank_of_share

CAPPED = "capped."
"""What names of sums begin with that a bound on the weights multiplies."""
DEGREES: Mapping[str, int] = {**PLAN_DEGREES, **dict.fromkeys(LOGS, 1), "ratio": 0, "ratio_squared": 0}
"""Sum -> the power of a scale on the weights that it goes with."""
Side = Literal["both", "low", "high"]


def distances(values: Floats, side: Side) -> Floats:
    """How far each value lies out."""
    return {"both": np.abs(values), "high": values, "low": -values}[side]


@dataclass(frozen=True)
class Candidates:
    """The units of one group of buckets: their distances in ascending order, and their part in every sum by name."""

    distances: Floats
    columns: Mapping[str, Floats]

    @classmethod
    def of(cls, values: Floats, columns: Mapping[str, Floats], side: Side) -> "Candidates":
        """Of units in any order."""
        out = distances(values, side)
        order = np.argsort(out, kind="stable")
        return cls(out[order], {name: column[order] for name, column in columns.items()})


@dataclass(frozen=True, eq=False)
class Curve:
    """totals: of all units, by bucket.  side: of the bound.  outside: what units outside it are: dropped (a rejection,
    or weights that are zeroed) or capped at the bound."""

    totals: Binned[FloatBits]
    side: Side
    outside: Literal["dropped", "capped"] = "dropped"

    @cached_property
    def _groups(self) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
        """(largest distance, smallest distance, first bucket) of each group of equal ones, and the buckets' order."""
        near, far = FLOAT_BITS.ends(self.totals.bins)
        ends = np.stack([distances(near, self.side), distances(far, self.side)])
        reach, least = ends.max(axis=0), ends.min(axis=0)
        order = np.argsort(reach, kind="stable")
        starts = np.flatnonzero(np.concatenate([[True], np.diff(reach[order]) > 0]))
        return reach[order][starts], least[order][starts], starts, order

    @property
    def thresholds(self) -> Floats:
        """The edges at which the curve is exact, ascending."""
        return self._groups[0]

    @cached_property
    def n_inside(self) -> NDArray[np.int64]:
        """Units inside each threshold."""
        _, _, starts, order = self._groups
        return np.cumsum(np.add.reduceat(self.totals.counts[order], starts))

    @property
    def n_units(self) -> int:
        """All units."""
        return int(self.totals.counts.sum())

    @cached_property
    def _cumulated(self) -> Mapping[str, Floats]:
        """Each sum over the groups up to every one, beginning with none: [G + 1] by name."""
        _, _, starts, order = self._groups
        with np.errstate(over="ignore", invalid="ignore"):  # advantages whose squares no float holds
            return {
                name: np.concatenate([[0.0], np.cumsum(np.add.reduceat(column[order], starts))])
                for name, column in self.totals.sums.items()
            }

    def at(self, place: int) -> dict[str, float]:
        """Every sum at a threshold of the curve; place -1: below the first."""
        inside = {name: float(sums[place + 1]) for name, sums in self._cumulated.items()}
        return self._with_caps(inside, self.reach(place))

    def cut(self, place: int, threshold: float, candidates: Candidates) -> dict[str, float]:
        """Every sum at a threshold inside a group, whose units are the candidates."""
        n = int(np.searchsorted(candidates.distances, threshold, side="right"))
        inside = {
            name: float(sums[place] + candidates.columns[name][:n].sum()) for name, sums in self._cumulated.items()
        }
        return self._with_caps(inside, threshold)

    def reach(self, place: int) -> float:
        """The threshold of a place; below the first, its group's smallest distance."""
        return float(self.thresholds[place]) if place >= 0 else float(self._groups[1][0])

    def least(self, place: int) -> float:
        """The smallest distance that a unit of a group may have; inf past the last."""
        least = self._groups[1]
        return float(least[place]) if place < len(least) else math.inf

    def bins(self, place: int) -> Bins:
        """The buckets of a group."""
        _, _, starts, order = self._groups
        end = starts[place + 1] if place + 1 < len(starts) else len(order)
        return self.totals.bins[order[starts[place] : end]]

    def _with_caps(self, inside: Mapping[str, float], threshold: float) -> dict[str, float]:
        """Sums of what is inside, and of what is outside at the bound's weight."""
        plain = {name: value for name, value in inside.items() if not name.startswith(CAPPED)}
        if self.outside == "dropped":
            return plain
        bound = math.exp(-threshold if self.side == "low" else threshold)
        for name in plain:
            outside = float(self._cumulated[CAPPED + name][-1]) - inside[CAPPED + name]
            plain[name] += outside * bound ** DEGREES[name]
        return plain


def ess(sums: Mapping[str, float], n_units: int, first: str, second: str) -> float | None:
    """(sum w)^2 / (n sum w^2), where n are all units; None of no weight, and of what float64 cannot hold."""
    squares = sums[second]
    square = sums[first] * sums[first]
    if not squares or not math.isfinite(squares) or not math.isfinite(square):
        return None
    return square / (n_units * squares)


def place_of_share(curve: Curve, share: float) -> tuple[int, int]:
    """The group that holds the ceil(share n)-th smallest distance, and which one of the group's it is, from 1."""
    wanted = rank_of_share(share, curve.n_units)
    place = int(np.searchsorted(curve.n_inside, wanted))
    return place, wanted - (int(curve.n_inside[place - 1]) if place else 0)
