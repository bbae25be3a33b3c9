"""What a statistic has one value for, a token or a sequence, and what is added up of it over each sequence."""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.totals.histogram import Floats

Ends = tuple[float | None, float | None]
"""A statistic's bounds, low and high; None for none."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of a statistic x over each sequence's tokens, [B]: sums of x, (x - centre)^2 and x^2, the least and largest x."""

    sum: Floats
    deviation: Floats
    square: Floats
    low: Floats
    high: Floats

    def beyond(self, ends: Ends) -> NDArray[np.bool_]:
        """Sequences with anything below or above its bounds."""
        return (outside_of(self.low, ends)[0] + outside_of(self.high, ends)[1]) > 0

    def with_some(self, sequences: NDArray[np.bool_], others: "Spread") -> "Spread":
        """The same but for some sequences, whose numbers are in `others` one after another."""
        pairs = {field.name: (getattr(self, field.name), getattr(others, field.name)) for field in fields(self)}
        return Spread(**{name: _with_some(mine, sequences, theirs) for name, (mine, theirs) in pairs.items()})


@dataclass(frozen=True)
class Units:
    """What a statistic has one value for: every token ([V]), or every sequence ([B]).  Results are [B], on the host."""

    ragged: Ragged
    token_scope: bool

    @property
    def tokens(self) -> Floats | float:
        """How many tokens a unit stands for, as far as its counts do not say so already."""
        return 1.0 if self.token_scope else self.ragged.sizes

    def spread(self, x: Tensor, centre: float) -> Spread:
        """Of x over a sequence's tokens; a sequence's own value counts once per token."""
        if not self.token_scope:
            values, n = to_numpy(x), self.ragged.sizes
            squares = {"deviation": (values - centre) ** 2 * n, "square": values**2 * n}
            return Spread(sum=values * n, **squares, low=values, high=values)
        ragged = self.ragged
        square = ragged.sum_of(torch.square, x)
        deviation = square if centre == 0 else ragged.sum_of(_squared_distance, x, centre)
        total, low, high = map(to_numpy, (ragged.sum(x), ragged.min(x), ragged.max(x)))
        return Spread(sum=total, deviation=deviation, square=square, low=low, high=high)

    def some(self, sequences: NDArray[np.bool_]) -> "tuple[Units, Tensor]":
        """Of some sequences, bool [B], and which units these are."""
        ragged, tokens = self.ragged.some(sequences)
        at = tokens if self.token_scope else torch.from_numpy(np.flatnonzero(sequences)).to(ragged.device)
        return Units(ragged, self.token_scope), at

    def outside(self, x: Tensor, ends: Ends) -> tuple[Floats, Floats]:
        """Units below and above their bounds; none where there is no bound."""
        if not self.token_scope:
            return outside_of(to_numpy(x), ends)
        low, high = ends
        counts = self.ragged.counts(x, () if low is None else (low,), () if high is None else (high,))
        none = np.zeros(self.ragged.n_sequences)
        return none if low is None else counts[0], none if high is None else counts[-1]

    def any_of(self, marked: Tensor) -> NDArray[np.bool_]:
        """Sequences with any unit that is marked; marked: bool over units."""
        return to_numpy(self.ragged.sum(marked.double()) if self.token_scope else marked) > 0

    def broadcast(self, x: Tensor) -> Tensor:
        """A value for every token."""
        return x if self.token_scope else self.ragged.broadcast(x)


def outside_of(values: Floats, ends: Ends) -> tuple[Floats, Floats]:
    """1 where a value lies below, and where above, its bounds; 0 elsewhere and without a bound."""
    low, high = ends
    below = np.zeros_like(values) if low is None else (values < low).astype(np.float64)
    return below, np.zeros_like(values) if high is None else (values > high).astype(np.float64)


def as_decided(keep: Tensor, x: Tensor, ends: Ends) -> Tensor:
    """A value inside the bounds where x is kept, and one beyond the nearer bound elsewhere.

    A ratio is judged by its log, and within rounding of a bound its e^l need not lie on the same side.
    """
    low, high = ends
    middle = math.inf if high is None else -math.inf if low is None else (low + high) / 2
    inside_value = high if high is not None else low
    assert inside_value is not None
    beyond = torch.where(x < middle, torch.full_like(x, -math.inf), torch.full_like(x, math.inf))
    return torch.where(keep, torch.full_like(x, inside_value), beyond)


def _squared_distance(x: Tensor, centre: float, *, out: Tensor) -> None:
    torch.sub(x, centre, out=out).square_()


def _with_some(column: Floats, sequences: NDArray[np.bool_], values: Floats) -> Floats:
    changed = column.copy()
    changed[sequences] = values
    return changed
