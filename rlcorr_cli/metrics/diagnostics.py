"""METRICS: totals -> the off-policy diagnostics people know, by the names verl and others log.

Each is one row with its definition and its computation (`metric.py`), in `divergence` or `samples`.  A metric of no
data is None; so is one that overflows float64.  Frameworks' own names and arithmetic live in `frameworks/`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlcorr_cli.metrics import interval
from rlcorr_cli.metrics.divergence import DIVERGENCE
from rlcorr_cli.metrics.metric import Metric, draws, evaluated
from rlcorr_cli.metrics.samples import SAMPLES

if TYPE_CHECKING:
    from rlcorr_cli.totals.exact import Floats
    from rlcorr_cli.totals.families import Value, Values
    from rlcorr_cli.totals.replicates import Replicates
    from rlcorr_cli.totals.view import Numbers

METRICS: tuple[Metric, ...] = (*DIVERGENCE, *SAMPLES)
"""The diagnostics of every dump, in the order reports show them."""


def diagnostics(numbers: "Numbers") -> "Values":
    """Every diagnostic of one set of tokens."""
    return evaluated(METRICS, numbers)


def intervals(values: "Mapping[str, Value]", replicates: "Replicates | None") -> dict[str, interval.Interval]:
    """95% intervals of the diagnostics of these values that are made of sums, by name."""
    if replicates is None:
        return {}
    metrics = [metric for metric in METRICS if metric.has_interval and metric.fewest_clusters <= replicates.clusters.n]
    return interval.intervals(metrics, values, diagnostic_draws(replicates), replicates.clusters.n)


def diagnostic_draws(replicates: "Replicates") -> "dict[str, Floats]":
    """The diagnostics made of sums in every replicate, f64[R] by name; not finite where there is no value."""
    from rlcorr_cli.totals.view import Numbers

    return draws(METRICS, Numbers.of_replicates(replicates))
