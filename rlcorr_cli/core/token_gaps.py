"""What each token contributes to GapTotals, and the sums of it.  The names are those of `totals/gap`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlcorr_cli.core.arrays import Array, as_floats, bin_sums, namespace
from rlcorr_cli.core.statistics import EXP_LIMIT, k3
from rlcorr_cli.totals import gap
from rlcorr_cli.totals.histogram import Floats

RATIO_LIMIT = 20.0
"""What |l| is held to before exp, so that no token rules a mean of ratios."""
LEAST_E = 1e-5
GRADED_E = 1e-4


@dataclass(frozen=True)
class TokenGaps:
    """Of each token, [V] on the device: see the names in totals/gap."""

    log_ratio: Array
    b: Array

    @property
    def xp(self) -> Any:
        """The namespace of these."""
        return namespace(self.b)

    @cached_property
    def a(self) -> Array:
        """log p_train."""
        return self.b + self.log_ratio

    @cached_property
    def k3(self) -> Array:
        """Schulman's estimate of KL(rollout || train)."""
        return k3(self.xp.clip(self.log_ratio, -EXP_LIMIT, EXP_LIMIT))

    @cached_property
    def e(self) -> Array:
        """1 - min(p, q)."""
        return -self.xp.expm1(self.xp.minimum(self.a, self.b))

    @cached_property
    def x(self) -> Array:
        """ln|r|, held."""
        r = abs(self.log_ratio / self.xp.clip(self.e, LEAST_E, None))
        return self.xp.clip(self.xp.log(r), *gap.X_RANGE)

    @cached_property
    def u(self) -> Array:
        """logit p."""
        return _logit(self.b)

    @cached_property
    def v(self) -> Array:
        """logit q."""
        return _logit(self.a)

    @cached_property
    def d(self) -> Array:
        """v - u."""
        return self.v - self.u

    @cached_property
    def inside(self) -> Array:
        """Whether b < 0 and both |u| and |v| are small enough."""
        return (self.b < 0) & (abs(self.u) < gap.FARTHEST) & (abs(self.v) < gap.FARTHEST)

    @cached_property
    def graded(self) -> Array:
        """Whether e is large enough for r."""
        return self.e > GRADED_E

    @cached_property
    def surprise(self) -> Array:
        """The bin of u."""
        xp, u = self.xp, self.u
        device = {} if xp is np else {"device": u.device}
        bins = xp.searchsorted(xp.asarray(gap.SURPRISE_EDGES, dtype=xp.float64, **device), u, side="right") - 1
        bins = xp.where(bins < 0, gap.BELOW, bins)
        bins = xp.where(u >= gap.SURPRISE_EDGES[-1], gap.ABOVE, bins)
        return xp.where(self.b >= 0, gap.CERTAIN, bins)

    @cached_property
    def gap_columns(self) -> tuple[Array, Array, Array]:
        """What GAP_SUMS add up."""
        return self.xp.ones_like(self.log_ratio), self.log_ratio * self.log_ratio, self.k3

    @cached_property
    def size_columns(self) -> tuple[Array, Array, Array]:
        """Whether x counts, x where it does, and its square."""
        graded = as_floats(self.graded)
        x = self.x * graded
        return graded, x, x * x

    def sums(self, at: Array, n: int) -> Floats:
        """TOKEN_SUMS of the tokens at each of 0 .. n - 1: f64[n, K]."""
        inside = as_floats(self.inside)
        held, expm1 = self.xp.clip(self.log_ratio, -RATIO_LIMIT, RATIO_LIMIT), self.xp.expm1
        u, d = self.u * inside, self.d * inside
        every, squares, k3 = self.gap_columns
        columns = (
            *(every, self.log_ratio, squares, k3, expm1(held), expm1(-held), self.e * self.e),
            *(as_floats(self.log_ratio > 0), as_floats(self.log_ratio != 0)),
            *(inside, u, d, u * u, u * d, d * d),
            *self.size_columns,
        )
        return sums_at(at, n, columns)

    def chosen(self, tokens: Array) -> "TokenGaps":
        """Those of some tokens; what is known of all is not computed again."""
        part = TokenGaps(self.log_ratio[tokens], self.b[tokens])
        for name in ("a", "k3", "e", "x", "u", "v", "d", "inside", "graded", "surprise"):
            part.__dict__[name] = getattr(self, name)[tokens]
        return part

    def spread_bin(self) -> Array:
        """The bin of d."""
        xp = self.xp
        steps = xp.log(abs(self.d) / gap.SPREAD_LEAST) / math.log(gap.SPREAD_FACTOR)
        steps = xp.astype(xp.clip(xp.floor(steps), -1, gap.SPREAD_STEPS - 1) + 1, xp.int64)
        return gap.SPREAD_STEPS + xp.where(self.d < 0, -steps, steps)

    def certain_bin(self) -> Array:
        """The bin of ln(-a), with N_CERTAIN added where b < 0."""
        xp = self.xp
        steps = xp.floor((xp.log(-xp.clip(self.a, None, 0.0)) - gap.CERTAIN_LEAST) / gap.CERTAIN_STEP)
        bins = xp.astype(xp.clip(steps + 1, 0, gap.N_CERTAIN - 1), xp.int64)
        return xp.astype(self.b < 0, xp.int64) * gap.N_CERTAIN + bins


def _logit(logp: Array) -> Array:
    """log(p / (1 - p)) of held log-probs."""
    xp = namespace(logp)
    held = xp.clip(logp, *gap.LOGP_RANGE)
    return held - xp.log(-xp.expm1(held))


def sums_at(at: Array, n: int, columns: Sequence[Array]) -> Floats:
    """Sums of columns [V] at each of 0 .. n - 1: f64[n, K] on the host."""
    return np.stack([bin_sums(at, n, column) for column in columns], axis=-1)
