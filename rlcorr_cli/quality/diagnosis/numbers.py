"""Arithmetic that every rule of a diagnosis shares: quotients without NaN, weighted medians, jackknife errors."""

from collections.abc import Callable
from math import exp, isfinite, sqrt

import numpy as np

from rlcorr_cli.totals.histogram import Floats


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
    return jackknife_error(np.array([statistic(sums) for sums in without_each(groups)]))


def without_each(groups: Floats) -> Floats:
    """The sums without one group at a time: f64[k, ...] for the k groups that have any count, none below two.

    groups: f64[G, ...], the sums by group, whose [..., 0] are counts.
    """
    counts = groups.reshape(len(groups), -1, groups.shape[-1])[:, :, 0].sum(axis=1)
    some = groups[counts > 0]
    return some.sum(axis=0) - some if len(some) > 1 else some[:0]


def jackknife_error(without: Floats) -> float:
    """sqrt((k - 1) / k sum (theta - their mean)^2) of a statistic's k values without one group each; 0.0 of none."""
    k = len(without)
    return sqrt((k - 1) / k * float(((without - without.mean()) ** 2).sum())) if k else 0.0


def typical(mean_x: float) -> float:
    """The typical |r| for a mean of x = ln|r|."""
    # For a normal r this mean lies 0.635 below the logarithm of its standard deviation.
    return exp(mean_x + 0.635)
