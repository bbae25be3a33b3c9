"""METRICS: totals -> the off-policy diagnostics people know, by the names verl and others log.

Each is one row with its definition and its computation (`metric.py`), in the modules put together here.  A metric of no
data is None; so is one that overflows float64.  Frameworks' own names and arithmetic live in `frameworks/`.
"""

from typing import TYPE_CHECKING

from rlcorr_cli.metrics.divergence import DIVERGENCE
from rlcorr_cli.metrics.gaps import GAPS
from rlcorr_cli.metrics.metric import Metric
from rlcorr_cli.metrics.samples import SAMPLES
from rlcorr_cli.totals.families import Value, Values, finite

if TYPE_CHECKING:
    from rlcorr_cli.totals.summary import Replicates
    from rlcorr_cli.totals.view import TotalsView

METRICS: tuple[Metric, ...] = (*DIVERGENCE, *GAPS, *SAMPLES)
"""The diagnostics of every dump, in the order reports show them."""


def diagnostics(numbers: "TotalsView") -> Values:
    """Every diagnostic of one set of tokens."""
    return {metric.name: evaluate(metric, numbers) for metric in METRICS}


def evaluate(metric: Metric, numbers: "TotalsView") -> Value:
    """A metric's value, or None where there is nothing to take it of."""
    return finite(lambda: metric.value(numbers))


def intervals(replicates: "Replicates | None") -> dict[str, tuple[float, float]]:
    """95 % bootstrap intervals of the diagnostics made of sums, by name."""
    if replicates is None:
        return {}
    import numpy as np

    from rlcorr_cli.totals.view import ResampledTotals

    numbers = ResampledTotals(replicates)
    ends: dict[str, tuple[float, float]] = {}
    with np.errstate(all="ignore"):
        for metric in (metric for metric in METRICS if metric.resampled):
            draws = np.asarray(metric.value(numbers), dtype=np.float64)
            draws = draws[np.isfinite(draws)]
            if len(draws) > 1:
                low, high = np.quantile(draws, (0.025, 0.975))
                ends[metric.name] = (float(low), float(high))
    return ends
