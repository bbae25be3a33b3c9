"""A curve over one free bound: sums by bucket of the units' values, and the numbers at any threshold.

A unit is inside where its distance is at most the threshold: |value| of a two-sided bound, the value itself of an upper
one, its negative of a lower one.  Points of the curve are bucket edges, where the sums are exact; in between the one
bucket that the threshold cuts must be read again (`Candidates`).
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, Bins, FloatBits
from rlcorr_cli.totals.comparison import DEGREES as PLAN_DEGREES, LOGS
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.tail import rank_of_share

CAPPED = "capped."
"""What names of sums begin with that a bound on the weights multiplies."""
DEGREES: Mapping[str, int] = {**PLAN_DEGREES, **dict.fromkeys(LOGS, 1), "ratio": 0, "ratio_squared": 0}
"""Sum -> the power of a scale on the weights that it goes with."""
Side = Literal["both", "low", "high"]
Places = int | NDArray[np.int64]


def distances(values: Floats, side: Side) -> Floats:
    """How far each value lies out."""
    return {"both": np.abs(values), "high": values, "low": -values}[side]


@frozen
class Candidates:
    """The units of one group of buckets: their distances in ascending order, and their part in every sum by name.

    by_batch: those of each training batch, where they are told apart."""

    distances: Floats
    columns: Mapping[str, Floats]
    by_batch: Mapping[Any, "Candidates"] = field(default_factory=dict[Any, "Candidates"])

    @classmethod
    def of(cls, values: Floats, columns: Mapping[str, Floats], side: Side) -> "Candidates":
        """Of units in any order."""
        out = distances(values, side)
        order = np.argsort(out, kind="stable")
        return cls(out[order], {name: column[order] for name, column in columns.items()})

    def inside(self, threshold: float) -> dict[str, float]:
        """The sums of those inside a threshold."""
        n = int(np.searchsorted(self.distances, threshold, side="right"))
        with np.errstate(over="ignore", invalid="ignore"):
            return {name: float(column[:n].sum()) for name, column in self.columns.items()}


@frozen(eq=False)
class UnitTotals:
    """Units, of which a bound may reach those in `moving`, by bucket of their value with their part in every sum.

    n_always, always: units that stay as they are whatever the bound (a gate is shut), and their part in the same sums.
    n_never: units that are outside whatever the bound (another one has them at zero).
    """

    moving: Binned[FloatBits]
    n_always: int
    always: Mapping[str, float]
    n_never: int

    @property
    def n_units(self) -> int:
        """All units."""
        return int(self.moving.counts.sum()) + self.n_always + self.n_never

    def __add__(self, other: Self) -> Self:
        return replace(
            self,
            moving=self.moving + other.moving,
            n_always=self.n_always + other.n_always,
            always={name: value + other.always[name] for name, value in self.always.items()},
            n_never=self.n_never + other.n_never,
        )


@frozen(eq=False)
class Curve:
    """totals: of all units.  side: of the bound.  outside: what units outside it are: dropped (a rejection, or weights
    that are zeroed) or capped at the bound."""

    totals: UnitTotals
    side: Side
    outside: Literal["dropped", "capped"] = "dropped"

    @cached_property
    def _groups(self) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
        """(largest distance, smallest distance, first bucket) of each group of equal ones, and the buckets' order."""
        near, far = FLOAT_BITS.ends(self.totals.moving.bins)
        ends = np.stack([distances(near, self.side), distances(far, self.side)])
        reach, least = ends.max(axis=0), ends.min(axis=0)
        order = np.argsort(reach, kind="stable")
        starts = np.flatnonzero(np.diff(reach[order], prepend=-np.inf) > 0)
        return reach[order][starts], least[order][starts], starts, order

    @property
    def thresholds(self) -> Floats:
        """The edges at which the curve is exact, ascending."""
        return self._groups[0]

    @cached_property
    def n_inside(self) -> NDArray[np.int64]:
        """Units inside each threshold."""
        _, _, starts, order = self._groups
        return self.totals.n_always + np.cumsum(np.add.reduceat(self.totals.moving.counts[order], starts))

    @property
    def n_units(self) -> int:
        """All units."""
        return self.totals.n_units

    @cached_property
    def _cumulated(self) -> Mapping[str, Floats]:
        """Each sum over the groups up to every one, beginning with none: [G + 1] by name."""
        _, _, starts, order = self._groups
        with np.errstate(over="ignore", invalid="ignore"):  # advantages whose squares no float holds
            return {
                name: np.concatenate([[0.0], np.cumsum(np.add.reduceat(column[order], starts))])
                for name, column in self.totals.moving.sums.items()
            }

    def at(self, place: Places) -> dict[str, Any]:
        """Every sum at a threshold of the curve, or at several; place -1: below the first."""
        return self.past(place, self.reaches[place + 1])

    def cut(self, place: int, threshold: float, candidates: Candidates) -> dict[str, Any]:
        """Every sum at a threshold inside a group, whose units are the candidates."""
        return self.past(place - 1, threshold, candidates)

    def past(self, place: Places, threshold: Any, candidates: Candidates | None = None) -> dict[str, Any]:
        """Every sum at a threshold: of the groups up to a place, and of the candidates beyond them that are inside."""
        inside = {name: sums[place + 1] for name, sums in self._cumulated.items()}
        if candidates is not None:
            inside |= {name: inside[name] + value for name, value in candidates.inside(threshold).items()}
        plain = {name: value + self.totals.always.get(name, 0.0) for name, value in inside.items()}
        if self.outside == "dropped":
            return plain
        names = [name for name in plain if not name.startswith(CAPPED)]
        with np.errstate(over="ignore", invalid="ignore"):
            bound = np.exp(-threshold if self.side == "low" else threshold)
            outside = {name: self._cumulated[CAPPED + name][-1] - inside[CAPPED + name] for name in names}
            # Nothing of nothing, however far the bound.
            return {
                name: plain[name] + np.where(outside[name] == 0, 0.0, outside[name] * bound ** DEGREES[name])
                for name in names
            }

    def sample_sizes(self, first: str, second: str) -> Floats:
        """`ess` at every place from -1 on; 0 where there is none."""
        sums = self.at(np.arange(-1, len(self.thresholds)))
        with np.errstate(all="ignore"):
            sizes = sums[first] ** 2 / (self.n_units * sums[second])
        return np.where(np.isfinite(sizes), sizes, 0.0)

    @cached_property
    def reaches(self) -> Floats:
        """The threshold of every place from -1 on: below the first, its group's smallest distance."""
        return np.concatenate([self._groups[1][:1], self.thresholds])

    def reach(self, place: int) -> float:
        """The threshold of a place."""
        return float(self.reaches[place + 1])

    def least(self, place: int) -> float:
        """The smallest distance that a unit of a group may have; inf past the last."""
        least = self._groups[1]
        return float(least[place]) if place < len(least) else math.inf

    def bins(self, place: int) -> Bins:
        """The buckets of a group."""
        _, _, starts, order = self._groups
        end = starts[place + 1] if place + 1 < len(starts) else len(order)
        return self.totals.moving.bins[order[starts[place] : end]]


@frozen(eq=False)
class NormalizedCurve(Curve):
    """The curve where weights are divided by their training batch's mean.

    totals: of all batches; batches: each one's curve.  means: what its weights are divided by; None where it is their
    own bound that moves, and the mean with it.
    """

    _: KW_ONLY
    batches: Mapping[Any, Curve]
    means: Mapping[Any, float] | None

    def past(self, place: Places, threshold: Any, candidates: Candidates | None = None) -> dict[str, Any]:
        """Every sum at a threshold, added up over batches, each divided by its own mean."""
        by_batch = {} if candidates is None else candidates.by_batch
        # Buckets, and so the edges of all batches, are the same: one that a batch lacks is its last before.
        edges = np.concatenate([[-np.inf], self.thresholds])[place + 1]
        added: dict[str, Any] = {}
        for batch, curve in self.batches.items():
            own = np.searchsorted(curve.thresholds, edges, side="right") - 1
            sums = curve.past(own, threshold, by_batch.get(batch))
            mean = sums["weight"] / curve.n_units if self.means is None else self.means[batch]
            mean = np.where(mean == 0, 1.0, mean)
            for name, value in sums.items():
                added[name] = added.get(name, 0.0) + value / mean ** DEGREES[name]
        return added


def ess(sums: Mapping[str, float], n_units: int, first: str, second: str) -> float | None:
    """(sum w)^2 / (n sum w^2), where n are all units; None of no weight, and of what float64 cannot hold."""
    squares = float(sums[second])
    square = float(sums[first]) * float(sums[first])
    if not squares or not math.isfinite(squares) or not math.isfinite(square):
        return None
    return square / (n_units * squares)


def place_of_share(curve: Curve, share: float) -> tuple[int, int]:
    """The group that holds the ceil(share n)-th smallest distance, and which one of the group's it is, from 1.

    The place past the last one where no bounds keep so many.
    """
    wanted = rank_of_share(share, curve.n_units)
    place = int(np.searchsorted(curve.n_inside, wanted))
    # Where what no bound moves is share enough, the unit that is nearest.
    return place, max(wanted - (int(curve.n_inside[place - 1]) if place else curve.totals.n_always), 1)
