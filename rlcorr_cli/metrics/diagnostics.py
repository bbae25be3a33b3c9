"""METRICS: totals -> the off-policy diagnostics people know, by the names verl and others log.

Each is one row with its definition and its computation (`metric.py`): first those of `divergence.py`, then SAMPLES
here, which are what is left of the sample, how log-ratios are distributed, lengths and rewards.  A metric of no data is
None; so is one that overflows float64.  DiagnosticSettings are the two fixed numbers inside them that a user may set.
Frameworks' own names and arithmetic live in `frameworks/`.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics import interval
from rlcorr_cli.metrics.divergence import DIVERGENCE
from rlcorr_cli.metrics.metric import Metric, draws, evaluated, full_share, zero_nats, zero_share
from rlcorr_cli.totals.limits import FEWEST_IN_TAIL, LARGEST_SHAPE

if TYPE_CHECKING:
    from rlcorr_cli.totals.flat import Floats
    from rlcorr_cli.totals.totals import Replicates
    from rlcorr_cli.totals.view import Numbers, Value, Values

CHI2_LIMIT = 20.0
"""chi2_token and chi2_seq clamp the log-ratio (the sum, for a sequence) to +-20, as verl does."""


@frozen
class DiagnosticSettings:
    """extreme_ratio: a token is extreme when |l| > log of this (AReaL: 2).  clip_low, clip_high: PPO's clips (0.2)."""

    extreme_ratio: float = 2.0
    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        if not 1 < self.extreme_ratio < math.inf:
            finite = "" if self.extreme_ratio < math.inf else " and finite"
            what = f"⟦extreme_ratio⟧ must be above 1{finite}, got {self.extreme_ratio:g}."
            raise UsageError(what, "2.0 is the default.")


RETENTION_BANDS: tuple[tuple[float, float], ...] = ((0.999, 1.002), (0.99, 1.01), (0.95, 1.05))
"""Ratio bands whose share of tokens and sequences is reported (MaxText)."""
QUANTILES = {"p01": 0.001, "p1": 0.01, "p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def _effective_share(log_sum: Any, log_sum_sq: Any, count: Any) -> Any:
    """(sum w)^2 / (count sum w^2), from logs."""
    import numpy as np

    return np.exp(2 * log_sum - log_sum_sq) / count


def _log_ratio_quantile(name: str, q: float, measured: tuple[float, float, float]) -> Metric:
    def value(n: "Numbers") -> Any:
        import numpy as np

        middle = n.histogram("log_ratio").quantile(q)
        # A bucket's middle may lie outside the data at either end; the extremes are known exactly.
        return None if middle is None else np.minimum(np.maximum(middle, n.min("log_ratio")), n.max("log_ratio"))

    return zero_nats(
        name=f"log_ratio_{name}",
        formula=f"{100 * q:g}% quantile of l over tokens",
        can_be_negative=True,
        meaning=f"{100 * q:g}% of the tokens have a smaller log-ratio than this. It comes from a histogram that adds "
        "exactly.",
        worry="The outer quantiles of one side are far larger than the other's: some tokens are shifted, which is no "
        "noise.",
        measured=measured,
        value=value,
        resampled=False,
    )


def _retention(low: float, high: float, measured: "tuple[_Triple, _Triple]") -> tuple[Metric, Metric]:
    band, source = f"{low}_{high}", "MaxText's retention bands"
    return (
        full_share(
            name=f"retention_token_{band}",
            formula=f"share of tokens with {low} <= rho <= {high}",
            meaning="The share that a rejection of tokens with these bounds would keep.",
            measured=measured[0],
            source=source,
            value=lambda n: n.per_token(f"retained_{band}"),
            has_interval=False,
        ),
        full_share(
            name=f"retention_geo_{band}",
            formula=f"share of sequences with {low} <= e^g <= {high}",
            meaning="The share that a geometric rejection of sequences with these bounds would keep.",
            measured=measured[1],
            source=source,
            value=lambda n: n.per_sequence(f"retained_geo_{band}"),
            has_interval=False,
        ),
    )


def _pareto(scope: str, weight: str, count: str, tail: str) -> tuple[Metric, ...]:
    """The shape of the tail of raw weights at a scope, its error, and the largest that is to be trusted at its size."""
    source = "Vehtari et al., Pareto Smoothed Importance Sampling (2024)"
    units = "tokens" if scope == "token" else "sequences"
    return (
        Metric(
            name=f"pareto_k_{scope}",
            formula=f"shape of the generalised Pareto distribution that fits the upper tail of {weight}",
            unit="none",
            meaning="How heavy the tail of raw weights is. Above its limit, no mean of them can be trusted.",
            worry=f"Above pareto_k_{scope}_limit, which is lower for fewer {units} and {LARGEST_SHAPE:g} at most: a "
            "few raw weights at this scope dominate; truncate or reject.",
            source=source,
            note=f"Null with fewer than 25 {units}. With fewer than {5 * FEWEST_IN_TAIL}, no rule, verdict or "
            f"recommendation uses it: {FEWEST_IN_TAIL - 1} tail values are too few, as pareto_k_{scope}_se shows.",
            value=lambda n: n.tail(tail).pareto_k,
            resampled=False,
            refuses="sequences" if scope == "seq" else "",
        ),
        Metric(
            name=f"pareto_k_{scope}_se",
            formula=f"(1 + pareto_k_{scope}) / sqrt(min({count} / 5, 3 sqrt {count}))",
            unit="none",
            meaning=f"How far pareto_k_{scope} may be off by chance: its standard error, which depends on the number "
            "of tail values.",
            note=f"Null if pareto_k_{scope} is null.",
            source="Smith, Estimating tails of probability distributions (1987)",
            value=lambda n: n.tail(tail).pareto_k_error,
            resampled=False,
        ),
        Metric(
            name=f"pareto_k_{scope}_limit",
            formula=f"min(1 - 1 / log10 {count}, {LARGEST_SHAPE:g})",
            unit="none",
            meaning=f"The largest pareto_k_{scope} to trust at this sample size: 0.5 for 100, 0.67 for 1,000. If the "
            f"shape is within pareto_k_{scope}_se of it, either side is possible (`rlcorr help reading`).",
            note=f"Null with fewer than {5 * FEWEST_IN_TAIL} {units}; pareto_k_{scope} is not used then.",
            source=source,
            value=lambda n: n.tail(tail).limit,
            resampled=False,
        ),
    )


_Triple = tuple[float, float, float]
_RETAINED: tuple[tuple[_Triple, _Triple], ...] = (
    ((0.133, 0.125, 1.0), (0.188, 0.125, 1.0)),
    ((0.356, 0.295, 1.0), (0.953, 0.656, 1.0)),
    ((0.775, 0.623, 1.0), (1.0, 1.0, 1.0)),
)
_QUANTILES: tuple[_Triple, ...] = (
    (-0.248, -0.431, -2.01e-05),
    (-0.136, -0.292, -1.05e-05),
    (-0.0808, -0.159, -6.15e-06),
    (-7.65e-05, 0.000325, 0.0),
    (0.0769, 0.131, 5.98e-06),
    (0.127, 0.233, 1.05e-05),
    (0.223, 0.341, 1.72e-05),
)
_KISH = "Kish's effective sample size"

SAMPLES: tuple[Metric, ...] = (
    full_share(
        name="seq_ess",
        formula="(sum e^S)^2 / (B sum e^(2 S))",
        meaning="The share of the sequences that would be effective under raw sequence weights.",
        worry="At 1 / B: a single sequence has all the weight.",
        measured=(0.707, 0.439, 1.0),
        source=_KISH,
        value=lambda n: _effective_share(n.log("sequence_ratio"), n.log("sequence_ratio_sq"), n.sequences),
        resampled=False,
        shown={"terminal": 9, "figures": 7, "course": 3, "groups": 4, "kept": 5},
        figure="effective share of sequences",
        refuses="sequences",
    ),
    full_share(
        name="token_ess",
        formula="(sum rho)^2 / (N sum rho^2)",
        meaning="The share of the tokens that would be effective under raw token weights.",
        worry="Below 0.9: some tokens are far out (`inspect --worst`), or the policies are far apart.",
        measured=(0.998, 0.992, 1.0),
        source=_KISH,
        value=lambda n: _effective_share(n.log("rho"), n.log("rho_sq"), n.tokens),
        fewest_clusters=20,
        shown={"terminal": 8, "figures": 6},
        figure="effective share of tokens",
    ),
    *_pareto("token", "rho", "N", "token"),
    *_pareto("seq", "e^S", "B", "sequence"),
    *(
        _log_ratio_quantile(name, q, measured)
        for (name, q), measured in zip(QUANTILES.items(), _QUANTILES, strict=True)
    ),
    zero_share(
        name="extreme_token_fraction",
        formula="share of tokens with |l| > log of --extreme-ratio (2)",
        meaning="How many tokens are at least twice as likely under one policy as under the other.",
        worry="More than rounding explains: look at these tokens with `inspect --worst`.",
        measured=(0.0, 0.0002, 0.0),
        source="AReaL issue 1207",
        value=lambda n: n.per_token("extreme"),
        has_interval=False,
        shown={"terminal": 10, "diff": 6},
    ),
    *(
        metric
        for (low, high), measured in zip(RETENTION_BANDS, _RETAINED, strict=True)
        for metric in _retention(low, high, measured)
    ),
    Metric(
        name="length_mean",
        formula="N / B",
        unit="tokens",
        meaning="The mean number of valid tokens of the sequences that have any.",
        worry="kept_length_mean far from it: the plan prefers short or long sequences.",
        value=lambda n: n.tokens / n.sequences,
        shown={"kept": 1},
    ),
    Metric(
        name="reward_mean",
        can_be_negative=True,
        formula="mean reward of the sequences that have valid tokens and rewards",
        unit="the reward's own",
        meaning="The mean reward of the dump.",
        worry="kept_reward_mean far from it: the plan selects by reward.",
        value=lambda n: n.sum("reward") / n.sum("rewarded"),
        shown={"groups": 9, "kept": 2},
    ),
)

METRICS: tuple[Metric, ...] = (*DIVERGENCE, *SAMPLES)
"""The diagnostics of every dump, in the order reports show them."""


def diagnostics(numbers: "Numbers") -> "Values":
    """Every diagnostic of one set of tokens."""
    return evaluated(METRICS, numbers)


def metric_intervals(values: "Mapping[str, Value]", replicates: "Replicates | None") -> dict[str, interval.Interval]:
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
