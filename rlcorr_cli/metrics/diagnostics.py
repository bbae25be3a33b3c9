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


def spread_of_noise(replicates: "Replicates") -> "dict[str, float]":
    """How unlike clusters are in the size of their noise, and the effective share of sequences that this leaves.

    To 4 decimals, because 200 replicates know no more.  Nothing where S is 0 everywhere, or S^2 beyond float64.

    S of a sequence has a variance v of its own; X is the sum of S^2, and B the number of sequences, of a replicate.

        overdispersion:  c = (var X / (mean X)^2) / (var B / (mean B)^2 + 2 / mean B)

    is 1 for normal S of one v, whatever the sizes of clusters, and mean v^2 / (mean v)^2 of single sequences of several
    v.  Log-normal weights whose v are drawn from a gamma distribution of mean mu and variance mu theta have the share

        mixed_seq_ess:  1 / mean e^v = (1 - theta)^(mu / theta),  mu = mean S^2,  theta = mu max(c - 1, 0),

    which is e^-mu for theta = 0, and 0 from theta = 1 on: few noisy clusters then make any mean of w^2.  mean S^2 is
    v + v^2 / 4, and so the share of alike clusters is rather too small close to the limit of what is usable.
    """
    import numpy as np

    from rlcorr_cli.totals.view import Numbers

    numbers = Numbers.of_replicates(replicates)
    with np.errstate(all="ignore"):
        sums = np.stack([numbers.sum("sequence_log_ratio_sq"), numbers.sequences])
        squares, sequences = means = sums.mean(axis=1)
        of_squares, of_sequences = (sums.std(axis=1) / means) ** 2
        overdispersion = of_squares / (of_sequences + 2 / sequences)
        mean = squares / sequences
        theta = mean * max(overdispersion - 1, 1e-9)
        share = np.exp(mean * np.log1p(-min(theta, 1)) / theta)
    found = {"overdispersion": float(overdispersion), "mixed_seq_ess": float(share)}
    return {name: round(value, 4) for name, value in found.items()} if np.isfinite(overdispersion * share) else {}
