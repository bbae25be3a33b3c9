"""How large the gaps of single tokens are, in log-probs and in probabilities.  Rows of METRICS, in their order."""

from typing import TYPE_CHECKING, Any

from rlcorr_cli.metrics.metric import Metric, std
from rlcorr_cli.totals.families import variance

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers


def _pearson(n: "Numbers") -> Any:
    """Correlation of e^a with e^b; nothing where a column is constant (to rounding)."""
    import numpy as np

    p, q = n.per_token("rollout_prob"), n.per_token("train_prob")
    var_p = variance(p, n.per_token("rollout_prob_sq"))
    var_q = variance(q, n.per_token("train_prob_sq"))
    constant = (var_p == 0) | (var_q == 0)
    scale = np.sqrt(np.where(constant, 1.0, var_p)) * np.sqrt(np.where(constant, 1.0, var_q))
    return np.where(constant, np.nan, (n.per_token("prob_product") - p * q) / scale)


def _largest_gap(n: "Numbers") -> Any:
    import numpy as np

    return np.maximum(-n.min("log_ratio"), n.max("log_ratio"))


_PROBS = "verl's rollout probability metrics"

GAPS: tuple[Metric, ...] = (
    Metric(
        name="log_ratio_mean",
        formula="tok l",
        unit="nats",
        ideal=0.0,
        can_be_negative=True,
        meaning="The mean log-ratio, which is minus kl.",
        measured=(-0.00103, -0.00439, -1.06e-08),
        value=lambda n: n.per_token("log_ratio"),
    ),
    Metric(
        name="log_ratio_std",
        formula="population std of l over tokens",
        unit="nats",
        ideal=0.0,
        meaning="The width of the histogram of log-ratios: the size of the noise between the policies.",
        worry="k3_kl far above half its square: not noise, but a few tokens far out.",
        measured=(0.0479, 0.0905, 3.7e-06),
        value=lambda n: std(n, "log_ratio", "log_ratio_sq"),
    ),
    Metric(
        name="logprob_abs_diff_mean",
        formula="tok |l|",
        unit="nats",
        ideal=0.0,
        meaning="The mean distance of the two log-probs of a token.",
        measured=(0.0318, 0.0556, 2.39e-06),
        value=lambda n: n.per_token("abs_log_ratio"),
    ),
    Metric(
        name="logprob_abs_diff_std",
        formula="population std of |l| over tokens",
        unit="nats",
        ideal=0.0,
        meaning="How unequal the distances of log-probs are.",
        worry="Many times logprob_abs_diff_mean: a few tokens carry the gap.",
        measured=(0.0358, 0.0716, 2.82e-06),
        value=lambda n: std(n, "abs_log_ratio", "log_ratio_sq"),
        has_interval=False,
    ),
    Metric(
        name="logprob_abs_diff_max",
        formula="max |l|",
        unit="nats",
        ideal=0.0,
        meaning="The largest distance of the two log-probs of any token.",
        worry="Above 10: look at that token with `inspect --worst`; masks and fill values end up here.",
        measured=(0.332, 1.65, 2.69e-05),
        value=_largest_gap,
        resampled=False,
    ),
    Metric(
        name="prob_abs_diff_mean",
        formula="tok |e^a - e^b|",
        unit="probability",
        ideal=0.0,
        meaning="The mean distance of the two probabilities of a token.",
        worry="verl's guide calls less than 0.005 good.",
        measured=(0.00651, 0.01, 4.75e-07),
        source=_PROBS,
        value=lambda n: n.per_token("abs_prob_gap"),
    ),
    Metric(
        name="prob_abs_diff_std",
        formula="population std of |e^a - e^b| over tokens",
        unit="probability",
        ideal=0.0,
        meaning="How unequal the distances of probabilities are.",
        measured=(0.00917, 0.0147, 6.71e-07),
        source=_PROBS,
        value=lambda n: std(n, "abs_prob_gap", "prob_gap_sq"),
        has_interval=False,
    ),
    Metric(
        name="prob_abs_diff_max",
        formula="max |e^a - e^b|",
        unit="probability",
        ideal=0.0,
        meaning="The largest distance of the two probabilities of any token.",
        worry="Near 1: a token is certain under one policy and impossible under the other.",
        measured=(0.0933, 0.15, 6.19e-06),
        source=_PROBS,
        value=lambda n: n.max("abs_prob_gap"),
        resampled=False,
    ),
    Metric(
        name="prob_pearson",
        can_be_negative=True,
        formula="Pearson correlation of e^a with e^b over tokens",
        unit="none",
        ideal=1.0,
        meaning="How well the two policies agree on which tokens are likely.",
        worry="Below 0.99, more than the precision of an engine explains it; near 0 the columns are misaligned.",
        measured=(1.0, 0.999, 1.0),
        source=_PROBS,
        value=_pearson,
    ),
    Metric(
        name="token_mult_prob_error",
        formula="tok e^|l|",
        unit="ratio",
        ideal=1.0,
        meaning="The mean factor between the two probabilities of a token, whichever is the larger.",
        worry="Far above 1 + logprob_abs_diff_mean: one token with a huge gap dominates it.",
        measured=(1.03, 1.06, 1.0),
        source="NeMo-RL",
        value=lambda n: n.per_token("mult_error"),
    ),
)
