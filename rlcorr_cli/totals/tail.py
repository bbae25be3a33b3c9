"""The upper tail of a weight, and its Pareto shape: whether a mean of such weights can be trusted.

Source: Vehtari, Simpson, Gelman, Yao, Gabry 2024, "Pareto smoothed importance sampling"; the fit is Zhang and Stephens
2009.  Equal to arviz-stats 0.8 `psislw(-log_weights)`, whatever the split of the weights.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcorr_cli.totals.exact import floats_from_list, floats_to_list
from rlcorr_cli.totals.histogram import Floats

WHOLE_SIZE = 16_384
"""Log-weights kept of a whole dump: exact up to 29.8 million weights."""
GROUP_SIZE = 2_048
"""Of each group: exact up to 465 thousand."""


@dataclass(frozen=True, eq=False)
class Tail:
    """The largest of n log-weights, at most `size` of them, in no order; + keeps the largest `size` of both."""

    largest: Floats
    n: int
    size: int

    @classmethod
    def empty(cls, size: int) -> "Tail":
        """No weights: the identity of +."""
        return cls(np.zeros(0), 0, size)

    @classmethod
    def of(cls, log_weights: Floats, size: int) -> "Tail":
        """Of some log-weights."""
        return cls(largest(log_weights, size), len(log_weights), size)

    def __add__(self, other: "Tail") -> "Tail":
        if self.size != other.size:
            raise ValueError("tails of different sizes do not add")
        return Tail(largest(np.concatenate([self.largest, other.largest]), self.size), self.n + other.n, self.size)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tail)
            and (self.n, self.size) == (other.n, other.size)
            and np.array_equal(np.sort(self.largest), np.sort(other.largest))
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly."""
        return {"largest": floats_to_list(self.largest), "n": self.n, "size": self.size}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Tail":
        """What `to_dict` wrote."""
        return cls(floats_from_list(data["largest"]), data["n"], data["size"])

    def cut(self, size: int) -> "Tail":
        """The same with fewer kept."""
        return Tail(largest(self.largest, size), self.n, size)

    @property
    def pareto_k(self) -> float | None:
        """Shape of the generalised Pareto distribution fitted to the tail, the prior of PSIS in it.

        None of a tail under 5 weights, of one that is all equal, and where a quarter of it equals the weight below it.
        """
        n_tail = min(_tail_length(self.n), self.size - 1)
        if n_tail < 5:
            return None
        ordered = np.sort(self.largest)[-n_tail - 1 :]
        if not ordered[-1] > ordered[1]:
            return None
        weights = np.exp(ordered - ordered[-1])
        return _fitted_shape(weights[1:] - weights[0])

    @property
    def limit(self) -> float | None:
        """The largest shape at which the mean of n weights can be trusted: min(1 - 1 / log10 n, 0.7)."""
        return min(1 - 1 / math.log10(self.n), 0.7) if self.n > 1 else None


def largest(values: Floats, size: int) -> Floats:
    """The largest `size` values, in no order."""
    return values.copy() if len(values) <= size else np.partition(values, len(values) - size)[-size:].copy()


def _tail_length(n: int) -> int:
    return math.floor(3 * math.sqrt(n)) if n > 225 else n // 5


def _fitted_shape(excess: Floats) -> float | None:
    """The posterior mean of the shape k, excess ascending and >= 0: an average over a grid of b = k / sigma."""
    n = len(excess)
    quartile = float(excess[int(n / 4 + 0.5) - 1])
    if not quartile > 0:
        return None
    n_grid = 30 + int(math.sqrt(n))
    grid = 1 / excess[-1] + (1 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))) / (3 * quartile)
    with np.errstate(all="ignore"):
        shapes = np.array([np.log1p(-b * excess).mean() for b in grid])
        log_likelihood = n * (np.log(-grid / shapes) - shapes - 1)
        likelihood = np.exp(log_likelihood - log_likelihood.max())
        weights = likelihood / likelihood.sum()
        # Grid points of no weight would only add rounding; arviz leaves them out, too.
        used = weights >= 10 * np.finfo(np.float64).eps
        b = float((grid[used] * weights[used]).sum() / weights[used].sum())
        shape = float(np.log1p(-b * excess).mean())
    return (n * shape + 5) / (n + 10) if math.isfinite(shape) else None
