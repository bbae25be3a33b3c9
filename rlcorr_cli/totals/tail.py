"""The upper tail of a weight, and its Pareto shape: whether a mean of such weights can be trusted.

Source: Vehtari, Simpson, Gelman, Yao, Gabry 2024, "Pareto smoothed importance sampling"; the fit is Zhang and Stephens
2009.  Equal to arviz-stats 0.8 `psislw(-log_weights)`, whatever the split of the weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats, Ints, offsets_of
from rlcorr_cli.totals.limits import FEWEST_IN_TAIL, LARGEST_SHAPE

WHOLE_SIZE = 16_384
"""Log-weights kept of a whole dump: exact up to 29.8 million weights."""
GROUP_SIZE = 2_048
"""Of each group: exact up to 465 thousand."""
SAMPLED = 64
"""One of how many values tells where the largest begin."""
FITTED_AT_ONCE = 1 << 17
"""Numbers of one step of a fit: few enough for a processor's cache."""


@frozen
class Boundary:
    """Where a share of some values ends: the value there, the next larger one (inf past the last), how many are no
    larger, and of how many."""

    value: float
    beyond: float
    n_inside: int
    n: int


@dataclass(frozen=True, eq=False, slots=True)
class Tail:
    """The largest of n log-weights, at most `size` of them, in no order; + keeps the largest `size` of both."""

    largest: Floats
    n: int
    size: int

    def __post_init__(self) -> None:
        if self.largest.shape != (min(self.n, self.size),) or self.size < 1:
            raise ValueError("a tail needs the largest of its weights")

    def check_unpacked(self) -> None:
        """A ValueError of what is no number."""
        if np.any(np.isnan(self.largest)):
            raise ValueError("a tail holds what is no number")

    @classmethod
    def empty(cls, size: int) -> "Tail":
        """No weights: the identity of +."""
        return cls(np.zeros(0), 0, size)

    @classmethod
    def of(cls, pieces: Sequence[Any], size: int) -> "Tail":
        """Of the log-weights of some arrays of NumPy's, or of one of torch's."""
        return cls(largest(pieces, size), sum(map(len, pieces)), size)

    @classmethod
    def total(cls, parts: "Sequence[Tail]") -> "Tail":
        """The sum of some."""
        size = parts[0].size
        if any(part.size != size for part in parts):
            raise ValueError("tails of different sizes do not add")
        return cls(largest([p.largest for p in parts], size), sum(p.n for p in parts), size)

    def __add__(self, other: "Tail") -> "Tail":
        return Tail.total([self, other])

    def shortened(self, size: int) -> "Tail":
        """Of the same log-weights, with fewer of them."""
        return Tail(largest([self.largest], size), self.n, size)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tail)
            and (self.n, self.size) == (other.n, other.size)
            and np.array_equal(np.sort(self.largest), np.sort(other.largest))
        )

    @property
    def n_bytes(self) -> int:
        """What its array takes."""
        return self.largest.nbytes

    @property
    def largest_hundredth(self) -> float:
        """The sum of the largest hundredth, rounded up; NaN of none, and where more belong to it than are kept."""
        n_largest = math.ceil(self.n / 100)
        return float(largest([self.largest], n_largest).sum()) if 0 < n_largest <= len(self.largest) else math.nan

    def boundary(self, share: float) -> Boundary | None:
        """Where a share of the values ends, exactly; None where that is below the largest that are kept."""
        n_above = self.n - rank_of_share(share, self.n)
        if not 0 <= n_above < len(self.largest):
            return None
        ascending = np.sort(self.largest)
        value = float(ascending[-1 - n_above])
        larger = ascending[np.searchsorted(ascending, value, side="right") :]
        return Boundary(value, float(larger[0]) if len(larger) else math.inf, self.n - len(larger), self.n)

    @property
    def n_fitted(self) -> int:
        """How many weights the Pareto shape is fitted to: the largest 3 sqrt(n), or a fifth of few."""
        return min(math.floor(3 * math.sqrt(self.n)) if self.n > 225 else self.n // 5, self.size - 1)

    @property
    def pareto_k(self) -> float | None:
        """The Pareto shape of `pareto_shapes`; None where there is none."""
        (shape,) = pareto_shapes([self])
        return float(shape) if math.isfinite(shape) else None

    @property
    def pareto_k_error(self) -> float | None:
        """The standard error of `shape_error`; None where there is no shape."""
        shape = self.pareto_k
        return None if shape is None else float(shape_error(shape, self.n_fitted))

    @property
    def limit(self) -> float | None:
        """The largest shape at which the mean of n weights can be trusted: min(1 - 1 / log10 n, LARGEST_SHAPE).

        None where under FEWEST_IN_TAIL weights are fitted: the shape is too loose to be held against anything.
        """
        return min(1 - 1 / math.log10(self.n), LARGEST_SHAPE) if self.n_fitted >= FEWEST_IN_TAIL else None


def rank_of_share(share: float, n: int) -> int:
    """Which of n values, from the smallest, a share of them ends with: the ceil(share n)-th, from 1."""
    return max(1, math.ceil(share * n - 1e-9))


def largest(pieces: Sequence[Any], size: int) -> Floats:
    """The largest `size` of all values of some arrays of NumPy's, or of one of torch's; in no order, on the host."""
    candidates, sample = pieces, _joined([values[::SAMPLED] for values in pieces])
    rank = int(1.25 * size / SAMPLED) + 16
    if rank < len(sample) // 2:
        # As a sample tells, a few more than `size` lie above this bound; parting all takes thrice as long.
        bound = _parted(sample, rank).min()
        above = [values[values >= bound] for values in pieces]
        candidates = above if sum(map(len, above)) >= size else pieces
    kept = _parted(_joined(candidates), size)
    return kept.copy() if isinstance(kept, np.ndarray) else kept.cpu().numpy()


def _joined(pieces: Sequence[Any]) -> Any:
    """Pieces as one array."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _parted(values: Any, n: int) -> Any:
    """The n largest values, or all of fewer."""
    if n >= len(values):
        return values
    return np.partition(values, -n)[-n:] if isinstance(values, np.ndarray) else values.topk(n, sorted=False).values


class Tails(tuple[Tail, ...]):
    """Those of some groups, whose shapes are arrays."""

    @classmethod
    def of(cls, values: Floats, sizes: Ints) -> "Tails":
        """Of the values of each group, one group's after the other's.  sizes: how many each has, i64[G]."""
        ends = offsets_of(sizes).tolist()
        return cls(Tail.of([values[first:end]], GROUP_SIZE) for first, end in pairwise(ends))

    @cached_property
    def pareto_k(self) -> Floats:
        """The Pareto shape of each; NaN where there is none."""
        return pareto_shapes(self)

    @property
    def pareto_k_error(self) -> Floats:
        """The standard error of each shape; NaN where there is none."""
        return shape_error(self.pareto_k, np.array([max(tail.n_fitted, 1) for tail in self]))

    @property
    def limit(self) -> Floats:
        """The limit of each; NaN of too few weights."""
        return np.array([tail.limit for tail in self], np.float64)


def pareto_shapes(tails: Sequence[Tail]) -> Floats:
    """Shape of the generalised Pareto distribution fitted to each tail, the prior of PSIS in it.

    NaN of a tail under 5 weights, of one that is all equal, and where a quarter of it equals the weight below it.
    """
    shapes = np.full(len(tails), np.nan)
    by_length: dict[int, list[int]] = {}
    for place, tail in enumerate(tails):
        by_length.setdefault(tail.n_fitted, []).append(place)
    for length, places in by_length.items():
        if length < 5:
            continue
        n_grid = 30 + int(math.sqrt(length))
        at_once = max(1, FITTED_AT_ONCE // (length * n_grid))
        for first in range(0, len(places), at_once):
            part = places[first : first + at_once]
            ordered = np.stack([np.sort(tails[place].largest)[-length - 1 :] for place in part])
            weights = np.exp(ordered - ordered[:, -1:])
            rises = ordered[:, -1] > ordered[:, 1]
            shapes[part] = np.where(rises, _fitted_shapes(weights[:, 1:] - weights[:, :1], n_grid), np.nan)
    return shapes


def shape_error(shape: Any, n_fitted: Any) -> Any:
    """(1 + k) / sqrt(M), of a shape k that is fitted to M weights.

    That is the standard error of a maximum likelihood estimate of k beside an unknown scale (Smith 1987).  The prior
    draws the shape towards 0.5: by that it varies less, M / (M + 10) of this, and is biased where the true k lies
    elsewhere.  This holds both: with 8 to 94 weights drawn from k = 0 to 1, the root mean square distance from the true
    k was 0.5 to 1.1 times the error, and k lay within 1.96 of it in 92 to 100% of 4,000 tails each.
    """
    return (1 + shape) / np.sqrt(n_fitted)


def _fitted_shapes(excess: Floats, n_grid: int) -> Floats:
    """The posterior mean of each row's shape k, rows ascending and >= 0: an average over a grid of b = k / sigma."""
    n = excess.shape[1]
    with np.errstate(all="ignore"):
        quartiles = excess[:, int(n / 4 + 0.5) - 1]
        steps = 1 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
        grid = 1 / excess[:, -1:] + steps / (3 * quartiles[:, None])
        shapes = _means_of_log1p(grid[:, :, None] * -excess[:, None, :])
        log_likelihood = n * (np.log(-grid / shapes) - shapes - 1)
        likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        weights = likelihood / likelihood.sum(axis=1, keepdims=True)
        # Grid points of no weight would only add rounding; arviz leaves them out, too.
        weights = np.where(weights >= 10 * np.finfo(np.float64).eps, weights, 0.0)
        b = (grid * weights).sum(axis=1) / weights.sum(axis=1)
        shape = _means_of_log1p(b[:, None] * -excess)
        return np.where((quartiles > 0) & np.isfinite(shape), (n * shape + 5) / (n + 10), np.nan)


def _means_of_log1p(values: Floats) -> Floats:
    """The mean of log(1 + x) along the last axis; the values are overwritten, because they are many."""
    return np.log1p(values, out=values).mean(axis=-1)
