"""The step that a truncated rollout leaves: b = 0 exactly where a lies above a bound, and nowhere else."""

from dataclasses import dataclass
from math import exp, expm1, sqrt

import numpy as np

from rlcorr_cli.totals.gap import CERTAIN_LEAST, CERTAIN_STEP, N_CERTAIN, GapTotals

WIDE = 1.82
"""Tokens that speak for or against a bound c have a > 1.82 c: up to 0.6 in ln(-a) beyond it."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """cut: tokens with b = 0 and a < -.001, of n, unsure of which have b < 0.  bound: P = e^c with its interval, errors
    E at it, judged tokens.  least_left: m, what the surest token of b < 0 leaves to all others, over its own
    probability."""

    cut: int
    n: int
    unsure: int
    bound: float
    interval: tuple[float, float]
    errors: int
    judged: int
    least_left: float


def step_of(totals: GapTotals) -> Step | None:
    """None where no token has b = 0 and a < -.001."""
    certain, unsure = totals.certain
    cut = int(certain[1:].sum())
    if not cut:
        return None
    # ln(-a) at the lower ends of bins 1, 2, ...: a bound there has the bins before it above it.
    edges = CERTAIN_LEAST + CERTAIN_STEP * np.arange(N_CERTAIN - 1)
    errors = np.cumsum(unsure)[:-1] + certain[::-1].cumsum()[::-1][1:]
    least = errors.min()
    near = np.flatnonzero(errors <= least + 2 * sqrt(least + 1))
    best = np.flatnonzero(errors == least)
    middle = edges[best[len(best) // 2]]
    wide = int(np.searchsorted(edges, middle + np.log(WIDE)))
    return Step(
        cut=cut,
        n=int(totals.certain.sum()),
        unsure=int(unsure.sum()),
        bound=exp(-exp(middle)),
        interval=(exp(-exp(edges[near[-1]])), exp(-exp(edges[near[0]]))),
        errors=int(least),
        judged=cut + int(unsure[1:wide].sum()),
        least_left=expm1(-totals.largest_unsure) if np.isfinite(totals.largest_unsure) else 0.0,
    )
