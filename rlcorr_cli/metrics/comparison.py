"""What each plan leaves of a batch and what it costs, beside no correction at all: the columns of `compare`.

Rows are read from `ComparedTotals`, of a whole dump, a group or all bootstrap replicates.  Formulas in the letters of
the project; f is a plan's applied weight times 1 where it keeps a token and 0 elsewhere, q = (1 - e^a)^2, A = 1 where a
dump has no advantages, and A_f is the mean of A weighted by f_i, A_IS that weighted by e^S.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlcorr_cli.metrics.advantages import (
    FEWEST_EFFECTIVE,
    beyond_rounding,
    effective_sequences,
    moments,
    variance_over_sequences,
)
from rlcorr_cli.metrics.interval import WIDEST, Interval, intervals
from rlcorr_cli.metrics.metric import Metric, draws, evaluated, full_share, unit_ratio
from rlcorr_cli.plans.plan import Plan

if TYPE_CHECKING:
    from rlcorr_cli.totals.comparison import ComparedTotals
    from rlcorr_cli.totals.totals import Replicates
    from rlcorr_cli.totals.view import Value, Values


def _info(totals: "ComparedTotals") -> Any:
    """0 of a plan that leaves nothing, whose own formula is 0 / 0."""
    import numpy as np

    squares = totals.plan["score_squared"]
    left = totals.plan["score"] ** 2 / np.where(squares == 0, 1.0, squares)
    return left / totals.reference["score"]


def _worth(totals: "ComparedTotals") -> Any:
    seq_tv = totals.diagnostics["seq_tv"] / totals.diagnostics["sequences"]
    return _info(totals) * (1 if totals.corrects_mismatch else 1 - seq_tv)


def _length(totals: "ComparedTotals") -> Any:
    mean_length = totals.diagnostics["tokens"] / totals.diagnostics["sequences"]
    return totals.plan["f_tokens"] / totals.plan["f"] / mean_length


def _top(totals: "ComparedTotals") -> Any:
    assert totals.mass is not None
    return totals.mass.largest_hundredth / totals.plan["mass"]


def advantages_differ(totals: "ComparedTotals") -> bool:
    """Whether the sequences have advantages that are not all equal: without them, nobody sees who earns more."""
    return totals.diagnostics["sequences"] > 0 and _variance(totals) > 0


def _variance(totals: "ComparedTotals") -> float:
    return float(variance_over_sequences(totals.diagnostics["sequences"], totals.reference.__getitem__))


def _shift_and_error(totals: "ComparedTotals") -> tuple[float, float]:
    """The shift and its standard error, from F_i (A_i - A_f) - W_i (A_i - A_IS) with F = f and W = e^S of mean 1."""
    own, variance = totals.plan, _variance(totals)
    assert totals.logs is not None
    if variance == 0 or effective_sequences(totals.logs.__getitem__) < FEWEST_EFFECTIVE:
        return math.nan, math.nan
    logs = totals.logs.__getitem__
    _, a_is, _ = moments("ratio", 1, logs)
    ww, ww_a, ww_square = moments("ratio_squared", 2, logs)
    fw, fw_a, fw_square = moments("f_ratio", 1, logs)
    f = own["f"]
    a_f = own["f_advantage"] / f
    ff_squares = (own["f_squared_advantage_squared"] + a_f**2 * own["f_squared"]) / f**2
    ww_squares = ww_square + a_is**2 * ww
    ff_spread = ff_squares - 2 * a_f * own["f_squared_advantage"] / f**2
    ww_spread = ww_squares - 2 * a_is * ww_a
    fw_spread = (fw_square - (a_f + a_is) * fw_a + a_f * a_is * fw) / f
    # Rounding is all that is left where f is e^S to a factor.
    spread = beyond_rounding(ff_spread - 2 * fw_spread + ww_spread, ff_squares + ww_squares)
    return (a_f - a_is) / math.sqrt(variance), math.sqrt(spread / variance)


KEPT, KEPT_SEQUENCES, INFO, WORTH, SHIFT, SHIFT_SE, LENGTH, K3_LEFT, ESS, TOP = COMPARISON = (
    Metric(
        name="kept",
        formula="share of tokens with f > 0",
        unit="share",
        meaning="The share of the tokens that stays in the loss.",
        value=lambda totals: totals.plan["kept"] / totals.diagnostics["tokens"],
    ),
    Metric(
        name="kept_sequence_fraction",
        formula="share of sequences with tokens of f > 0",
        unit="share",
        meaning="The share of the sequences of which any token stays in the loss.",
        value=lambda totals: totals.plan["kept_sequences"] / totals.diagnostics["sequences"],
    ),
    Metric(
        name="info",
        formula="(sum A^2 f q)^2 / (sum A^2 q * sum A^2 f^2 q)",
        unit="share",
        meaning="How much of the batch is still used, as a share of its sequences: the squared cosine of the plan's "
        "coefficients with those of no correction.",
        worry="Far below 1: the correction costs most of the batch.",
        value=_info,
    ),
    Metric(
        name="worth",
        formula="info, times (1 - seq_tv) where no weight of the mismatch acts on every token",
        unit="share",
        meaning="info, lowered by what the gap may cost if the plan does not correct it. Plans are ranked by it. It "
        "is a lower bound and a heuristic, not an estimate.",
        value=_worth,
    ),
    Metric(
        name="shift",
        formula="(A_f - A_IS) / sd A",
        unit="standard deviations",
        meaning="How much more the plan prefers sequences of high advantage than true sequence weights do.",
        worry="Its size is above three standard errors: the plan changes what the batch rewards.",
        note=f"Null if the true sequence weights have fewer than {FEWEST_EFFECTIVE:g} effective sequences.",
        value=lambda totals: _shift_and_error(totals)[0],
        resampled=False,
    ),
    Metric(
        name="shift_se",
        formula="standard error of shift, from F_i (A_i - A_f) - W_i (A_i - A_IS), F_i, W_i the shares of f_i, e^S",
        unit="standard deviations",
        meaning="How far shift may be off by chance.",
        value=lambda totals: _shift_and_error(totals)[1],
        resampled=False,
    ),
    unit_ratio(
        name="length",
        formula="(sum f_i n_i / sum f_i) / mean n",
        meaning="Whether the plan prefers long sequences (above 1) or short ones.",
        value=_length,
    ),
    Metric(
        name="k3_left",
        formula="k3 per kept token",
        unit="nats",
        meaning="How far apart the policies are on the tokens that the plan keeps.",
        value=lambda totals: totals.plan["k3"] / totals.plan["kept"],
        resampled=False,
    ),
    full_share(
        name="ess",
        formula="(sum w)^2 / (U sum w^2), of applied weights",
        meaning="The effective sample size of the plan's weights, before its rejections.",
        value=lambda totals: totals.plan["weight"] ** 2 / (totals.plan["units"] * totals.plan["weight_squared"]),
    ),
    Metric(
        name="top_1pct",
        formula="share of sum |A f| in the ceil(B / 100) sequences that have the most of it",
        unit="share",
        meaning="Whether a few sequences dominate the gradient.",
        value=_top,
        resampled=False,
    ),
)
"""The columns of a plan, in the order of the JSON report."""


def compared_values(totals: "ComparedTotals") -> "Values":
    """Every column of one plan; None where there is nothing to take it of."""
    return evaluated(COMPARISON, totals)


def compared_intervals(
    values: "Mapping[str, Value]", replicates: "Replicates", diagnostics: "Replicates", plan: Plan
) -> dict[str, Interval]:
    """95% intervals of the columns of these values that are made of sums, by name."""
    from rlcorr_cli.totals.comparison import ComparedTotals

    drawn = draws(COMPARISON, ComparedTotals.resampled(replicates, diagnostics, plan))
    kept = drawn[KEPT_SEQUENCES.name]
    # What is told of the kept alone is told of as many clusters as keep something.
    few_kept = kept.std() > WIDEST * kept.mean()
    metrics = [metric for metric in COMPARISON if not (few_kept and metric is LENGTH)]
    return intervals(metrics, values, drawn, replicates.clusters.n)
