"""From a report's totals to what is drawn: densities, means and spreads by bin, Lorenz curves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcorr_cli.present.figures import style
from rlcorr_cli.report.report import Report
from rlcorr_cli.totals.binned import Octaves
from rlcorr_cli.totals.histogram import Floats, Histogram

FEWEST = 20
"""Bins with fewer values are not drawn: their spread says nothing."""


class Missing(Exception):
    """A picture that cannot be drawn of this report; the message says why, in a sentence."""


@dataclass(frozen=True)
class Profile:
    """Of the bins that hold enough: centres, counts, mean and std of a quantity."""

    centre: Floats
    count: Floats
    mean: Floats
    std: Floats


def rebinned(histogram: Histogram, edges: Floats) -> Floats:
    """Counts between edges, f64[K]: a bucket's values are taken to lie evenly over it.  Their sum is exact."""
    if not len(histogram.buckets):
        return np.zeros(len(edges) - 1)
    bits = histogram.buckets.astype(np.uint32) << 16
    near, far = (one.view(np.float32).astype(np.float64) for one in (bits, bits + np.uint32(1 << 16)))
    low, high = np.minimum(near, far), np.maximum(near, far)
    counts = histogram.counts.astype(np.float64)
    width = np.maximum(high - low, 1e-300)
    total = np.zeros(len(edges))
    for i, edge in enumerate(edges):
        total[i] = (counts * np.clip((edge - low) / width, 0.0, 1.0)).sum()
    return np.diff(total)


def profile(table: Floats, bins: Octaves, fewest: int = FEWEST) -> Profile:
    """Mean and std by bin of a table of counts, sums and sums of squares."""
    n, sums, squares = table[:3]
    use = n >= fewest if (n >= fewest).any() else n > 0
    edges = bins.edges
    n, sums, squares = n[use], sums[use], squares[use]
    mean = sums / n
    variance = squares / n - mean**2
    # What is left of a constant by cancellation is no spread.
    std = np.sqrt(np.where(variance > 1e-12 * squares / n, variance, 0.0))
    return Profile(np.sqrt(edges[:-1] * edges[1:])[use], n, mean, std)


@dataclass(frozen=True)
class Lorenz:
    """sequences, weight: cumulative shares from the lightest on, from (0, 0) to (1, 1).  top: what the heaviest 1 % of
    sequences carry (at least one)."""

    sequences: Floats
    weight: Floats
    top: float


def lorenz(loads: Histogram) -> Lorenz:
    """Who carries the weight, of the sequences' total weights; to the buckets' 0.4 %."""
    values, counts = loads.by_value
    total = float((values * counts).sum())
    if not total > 0:
        raise Missing("No sequence carries any weight: everything is rejected or weighs nothing.")
    n = np.concatenate([[0], np.cumsum(counts)])
    weight = np.concatenate([[0.0], np.cumsum(values * counts)]) / total
    top = max(1.0, 0.01 * n[-1])
    return Lorenz(n / n[-1], weight, float(1 - np.interp(n[-1] - top, n, weight)))


@dataclass(frozen=True)
class Course:
    """Metrics along one ordered column: places f64[G], and values by metric, NaN where there is none."""

    name: str
    places: Floats
    values: dict[str, Floats]


def course(report: Report, metrics: Sequence[str]) -> Course:
    """The groups of a report in the order of their one numeric key."""
    groups = [group for group in report.groups if len(group.key) == 1]
    if not groups:
        raise Missing("There is nothing to follow: the report is not grouped by one column; add --group-by step.")
    name = next(iter(groups[0].key))
    placed = [(float(group.key[name]), group) for group in groups if _is_number(group.key[name])]
    if len(placed) < len(groups):
        raise Missing(f"The groups have no order to follow: not every {style.label(name)} is a number.")
    placed.sort(key=lambda one: one[0])
    values = {
        metric: np.array([np.nan if (v := group.values.get(metric)) is None else v for _, group in placed])
        for metric in metrics
    }
    return Course(name, np.array([place for place, _ in placed]), values)


def _is_number(value: object) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and np.isfinite(float(str(value)))
    except ValueError:
        return False


def lags(report: Report) -> tuple[Floats, Floats, Floats]:
    """step - policy_version of each group, its k3_kl, its tokens."""
    rows = [
        (
            float(group.key["step"]) - float(group.key["policy_version"]),
            group.values.get("k3_kl"),
            group.counts["tokens"],
        )
        for group in report.groups
        if {"step", "policy_version"} <= set(group.key)
        and _is_number(group.key["step"])
        and _is_number(group.key["policy_version"])
    ]
    known = [(lag, k3, n) for lag, k3, n in rows if k3 is not None]
    if not known:
        raise Missing("Staleness needs groups by step and policy_version, both numbers; add --group-by for each.")
    lag, k3, n = zip(*known, strict=True)
    return np.array(lag), np.array(k3, np.float64), np.array(n, np.float64)
