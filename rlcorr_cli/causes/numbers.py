"""Arithmetic that every rule of a diagnosis shares, on sums.

Quotients without NaN, weighted quantiles, jackknife errors, and straight lines of d on u or v; the grid that a column
lies on near 0; and what makes each of these once.
"""

from collections.abc import Callable
from functools import wraps
from math import exp, isfinite, sqrt
from typing import TypeVar

import numpy as np

from rlcorr_cli.causes.gap import LINE_SUMS
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats

Of = TypeVar("Of")
Value = TypeVar("Value")


def once(function: Callable[[Of], Value]) -> Callable[[Of], Value]:
    """A function of one object, worked out once for each and kept on it, as a cached property is."""
    key = f"{function.__module__}.{function.__name__}"

    @wraps(function)
    def kept(of: Of) -> Value:
        if key not in vars(of):
            vars(of)[key] = function(of)
        return vars(of)[key]

    return kept


def ratio(numerator: float, denominator: float, empty: float = 0.0) -> float:
    """numerator / denominator, or `empty` where that is no finite number."""
    if denominator == 0:
        return empty
    quotient = float(numerator) / float(denominator)
    return quotient if isfinite(quotient) else empty


def ratios(numerators: Floats, denominators: Floats) -> Floats:
    """numerators / denominators, 0 where a denominator is 0."""
    return np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators != 0)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The first of sorted values at which the running sum of weights, not all 0, reaches a share of it."""
    order = np.argsort(values, kind="stable")
    running = np.cumsum(weights[order])
    at = int(np.searchsorted(running, share * running[-1]))
    return float(values[order][min(at, len(order) - 1)])


def jackknife(statistic: Callable[[Floats], float], groups: Floats) -> float:
    """The standard error of a statistic of sums.  groups: as `without_each` takes them."""
    return float(jackknife_error(np.array([statistic(sums) for sums in without_each(groups)])))


def without_each(groups: Floats) -> Floats:
    """The sums without one group at a time: f64[k, ...] for the k groups that have any count, none below two.

    groups: f64[G, ...], the sums by group, whose [..., 0] are counts.
    """
    counts = groups.reshape(len(groups), -1, groups.shape[-1])[:, :, 0].sum(axis=1)
    some = groups[counts > 0]
    return some.sum(axis=0) - some if len(some) > 1 else some[:0]


def jackknife_error(without: Floats) -> Floats:
    """sqrt((k - 1) / k sum (theta - their mean)^2) of a statistic's k values without one group each, [k, ...]; 0 of
    none."""
    k = len(without)
    return np.sqrt((k - 1) / k * ((without - without.mean(axis=0)) ** 2).sum(axis=0)) if k else np.zeros(())


def typical(mean_x: float) -> float:
    """The typical |r| for a mean of x = ln|r|."""
    # For a normal r this mean lies 0.635 below the logarithm of its standard deviation.
    return exp(mean_x + 0.635)


N, X, D, X2, D2, XD = range(len(LINE_SUMS))


@frozen(kw_only=True)
class Line:
    """slope of d on x, with its error; r2: its share of d's variance; match: corr(x, x +- d)^2, of the two log-odds;
    spread: the standard deviation of x."""

    slope: float
    error: float
    r2: float
    match: float
    spread: float
    n: int


NO_LINE = Line(slope=0.0, error=0.0, r2=0.0, match=0.0, spread=0.0, n=0)


def line_of(groups: Floats, *, on_train: bool = False) -> Line:
    """Of f64[GROUPS, LINE_SUMS].  on_train: x is v, whose counterpart is u = v - d; else u, and v = u + d."""
    sums = groups.sum(axis=0)
    if sums[N] < 3:
        return NO_LINE
    var_x, var_d, cov = _moments(sums)
    sign = -1 if on_train else 1
    # corr(x, y)^2 of y = x +- d, from x's and d's moments alone.
    cov_xy = var_x + sign * cov
    var_y = max(0.0, var_x + 2 * sign * cov + var_d)
    return Line(
        slope=ratio(cov, var_x),
        error=jackknife(_slope, groups),
        r2=min(1.0, ratio(cov * cov, var_x * var_d)),
        match=min(1.0, ratio(cov_xy * cov_xy, var_x * var_y)),
        spread=sqrt(var_x),
        n=int(sums[N]),
    )


def _slope(sums: Floats) -> float:
    var_x, _, cov = _moments(sums)
    return ratio(cov, var_x)


def _moments(sums: Floats) -> tuple[float, float, float]:
    n = max(float(sums[N]), 1.0)
    var_x = float(sums[X2]) / n - (float(sums[X]) / n) ** 2
    var_d = float(sums[D2]) / n - (float(sums[D]) / n) ** 2
    # What rounding leaves of equal values is no variance.
    if var_x <= 1e-12 * max(1.0, float(sums[X2]) / n):
        return 0.0, max(0.0, var_d), 0.0
    return var_x, max(0.0, var_d), float(sums[XD]) / n - float(sums[X]) * float(sums[D]) / n**2


NO_LOGP = 1e30
"""Farther from 0 than any log-prob."""
NEAR_STEPS, FEWEST, MOST, TIES = 4, 3, 16, 4
"""A column is on a grid near 0 where its values within NEAR_STEPS times the first one are of so few levels, fewest and
most, with so many tokens at each, and the second one lies half as far from the first as that from 0, or farther."""


def first_step(log_probs: Floats) -> float:
    """How far the value nearest to 0 lies from it, in nats, where a column is on a grid there; else 0.0.

    A log-softmax in bf16 leaves steps of up to 1/8 in log-probs, the logarithm of probabilities in bf16 steps of 1/256
    in these: what lies nearer to 0 was rounded to 0.  Log-probs that were rounded to bf16 themselves have smaller steps
    the nearer they are to 0.
    """
    below = log_probs - (log_probs >= 0) * log_probs.dtype.type(NO_LOGP)  # which is faster than to pick them
    levels, n = np.unique(below[below >= NEAR_STEPS * below.max(initial=-np.inf)], return_counts=True)
    if not FEWEST <= len(levels) <= MOST or n.mean() < TIES or levels[-2] > 1.499 * levels[-1]:
        return 0.0
    return -float(levels[-1])
