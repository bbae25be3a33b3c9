"""What each token contributes to GapTotals, and the sums of it.  The names are those of `totals/gap`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rlcorr_cli.core.elementwise import expm1
from rlcorr_cli.core.ragged import to_numpy
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

    log_ratio: Tensor
    b: Tensor

    @cached_property
    def a(self) -> Tensor:
        """log p_train."""
        return self.b + self.log_ratio

    @cached_property
    def k3(self) -> Tensor:
        """Schulman's estimate of KL(rollout || train)."""
        return k3(self.log_ratio.clamp(-EXP_LIMIT, EXP_LIMIT))

    @cached_property
    def e(self) -> Tensor:
        """1 - min(p, q)."""
        return -expm1(torch.minimum(self.a, self.b))

    @cached_property
    def x(self) -> Tensor:
        """ln|r|, held."""
        r = (self.log_ratio / self.e.clamp(min=LEAST_E)).abs()
        return torch.log(r).clamp(*gap.X_RANGE)

    @cached_property
    def u(self) -> Tensor:
        """logit p."""
        return _logit(self.b)

    @cached_property
    def v(self) -> Tensor:
        """logit q."""
        return _logit(self.a)

    @cached_property
    def d(self) -> Tensor:
        """v - u."""
        return self.v - self.u

    @cached_property
    def inside(self) -> Tensor:
        """Whether b < 0 and both |u| and |v| are small enough."""
        return (self.b < 0) & (self.u.abs() < gap.FARTHEST) & (self.v.abs() < gap.FARTHEST)

    @cached_property
    def graded(self) -> Tensor:
        """Whether e is large enough for r."""
        return self.e > GRADED_E

    @cached_property
    def surprise(self) -> Tensor:
        """The bin of u."""
        edges = torch.tensor(gap.SURPRISE_EDGES, dtype=torch.float64, device=self.u.device)
        bins = torch.bucketize(self.u, edges, right=True) - 1
        bins = torch.where(bins < 0, gap.BELOW, bins)
        bins = torch.where(self.u >= gap.SURPRISE_EDGES[-1], gap.ABOVE, bins)
        return torch.where(self.b >= 0, gap.CERTAIN, bins)

    @cached_property
    def gap_columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """What GAP_SUMS add up."""
        return torch.ones_like(self.log_ratio), self.log_ratio.square(), self.k3

    @cached_property
    def size_columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whether x counts, x where it does, and its square."""
        graded = self.graded.double()
        x = self.x * graded
        return graded, x, x * x

    def sums(self, at: Tensor, n: int) -> Floats:
        """TOKEN_SUMS of the tokens at each of 0 .. n - 1: f64[n, K]."""
        inside = self.inside.double()
        held = self.log_ratio.clamp(-RATIO_LIMIT, RATIO_LIMIT)
        u, d = self.u * inside, self.d * inside
        every, squares, k3 = self.gap_columns
        columns = (
            *(every, self.log_ratio, squares, k3, expm1(held), expm1(-held), self.e.square()),
            *((self.log_ratio > 0).double(), (self.log_ratio != 0).double()),
            *(inside, u, d, u * u, u * d, d * d),
            *self.size_columns,
        )
        return sums_at(at, n, columns)

    def chosen(self, tokens: Tensor) -> "TokenGaps":
        """Those of some tokens; what is known of all is not computed again."""
        part = TokenGaps(self.log_ratio[tokens], self.b[tokens])
        for name in ("a", "k3", "e", "x", "u", "v", "d", "inside", "graded", "surprise"):
            part.__dict__[name] = getattr(self, name)[tokens]
        return part

    def spread_bin(self) -> Tensor:
        """The bin of d."""
        steps = torch.log(self.d.abs() / gap.SPREAD_LEAST) / math.log(gap.SPREAD_FACTOR)
        steps = (torch.floor(steps).clamp(-1, gap.SPREAD_STEPS - 1) + 1).long()
        return gap.SPREAD_STEPS + torch.where(self.d < 0, -steps, steps)

    def certain_bin(self) -> Tensor:
        """The bin of ln(-a), with N_CERTAIN added where b < 0."""
        steps = torch.floor((torch.log(-self.a.clamp(max=0)) - gap.CERTAIN_LEAST) / gap.CERTAIN_STEP)
        bins = (steps + 1).clamp(0, gap.N_CERTAIN - 1).long()
        return (self.b < 0).long() * gap.N_CERTAIN + bins


def _logit(logp: Tensor) -> Tensor:
    """log(p / (1 - p)) of held log-probs."""
    held = logp.clamp(*gap.LOGP_RANGE)
    return held - torch.log(-expm1(held))


def sums_at(at: Tensor, n: int, columns: Sequence[Tensor]) -> Floats:
    """Sums of columns [V] at each of 0 .. n - 1: f64[n, K] on the host."""
    # Without a token bincount counts in integers, weights or not.
    return to_numpy(torch.stack([torch.bincount(at, column, n) for column in columns], dim=-1).double())


def counts_at(at: Tensor, n: int) -> Floats:
    """How many at each of 0 .. n - 1: f64[n] on the host."""
    return to_numpy(torch.bincount(at, minlength=n)).astype(np.float64)
