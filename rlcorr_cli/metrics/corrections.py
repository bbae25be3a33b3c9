"""Metrics of a plan: rollout_is_* of its weights, rollout_rs_* of its rejections, kept_* of what they leave.

WEIGHTS and REJECTIONS define them; `canonical` puts them beside the diagnostics of `metrics.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcorr_cli.metrics.diagnostics import DRIFT, diagnostics, evaluate
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection
from rlcorr_cli.totals.families import Moments, Value, Values

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers


def canonical(numbers: "Numbers", plan: Plan) -> Values:
    """Every metric of a plan's summary under rlcorr's own names."""
    values = diagnostics(numbers)
    if numbers.has("drift.ratio"):
        values |= {metric.name: evaluate(metric, numbers) for metric in DRIFT}
    values |= weight_metrics(numbers, plan)
    values |= rejection_metrics(numbers, plan)
    return values


@dataclass(frozen=True)
class Weights:
    """What weight formulas read.  raw: before bounds; bounded: after; applied: also divided by the batch mean, where
    the plan says so."""

    raw: Moments
    bounded: Moments
    applied: Moments
    bounds: Bounds


@dataclass(frozen=True)
class WeightMetric:
    """One rollout_is_* metric: its formula in words and how to read it."""

    name: str
    formula: str
    value: Callable[[Weights], Value]

    @property
    def unit(self) -> str:
        """Of the value."""
        return "share" if self.formula.startswith("share") or self.name == "eff_sample_size" else "ratio"


WEIGHTS: tuple[WeightMetric, ...] = (
    WeightMetric("mean", "tok w of raw weights", lambda w: w.raw.mean()),
    WeightMetric("std", "population std over tokens of raw weights", lambda w: w.raw.std()),
    WeightMetric("min", "smallest raw weight", lambda w: w.raw.low()),
    WeightMetric("max", "largest raw weight", lambda w: w.raw.high()),
    WeightMetric(
        "ratio_fraction_high",
        "share of units (tokens, or sequences) with raw w above the high bound",
        lambda w: w.raw.fraction("high", w.bounds.high is not None),
    ),
    WeightMetric(
        "ratio_fraction_low",
        "share of units with raw w below the low bound, 1 / high where there is none",
        lambda w: w.raw.fraction("low", w.bounds != Bounds()),
    ),
    WeightMetric("eff_sample_size", "(sum w)^2 / (n sum w^2) of applied weights over units", lambda w: w.applied.ess()),
    WeightMetric("seq_mean", "seq m, m = a sequence's token mean of raw w", lambda w: w.raw.seq_mean()),
    WeightMetric("seq_std", "sample std of m over sequences", lambda w: w.raw.seq_std()),
    WeightMetric("seq_min", "smallest m", lambda w: w.raw.low("seq")),
    WeightMetric("seq_max", "largest m", lambda w: w.raw.high("seq")),
    WeightMetric("seq_max_deviation", "largest |m - 1|", lambda w: w.raw.seq_max_deviation()),
    WeightMetric(
        "seq_fraction_high",
        "share of sequences with m above the high bound",
        lambda w: w.raw.seq_fraction("high", w.bounds.high is not None),
    ),
    WeightMetric(
        "seq_fraction_low",
        "share of sequences with m below the low bound, 1 / high where there is none",
        lambda w: w.raw.seq_fraction("low", w.bounds != Bounds()),
    ),
    WeightMetric("applied_mean", "tok w of weights after bounds and batch mean", lambda w: w.applied.mean()),
    WeightMetric("applied_std", "population std over tokens of those", lambda w: w.applied.std()),
    WeightMetric("applied_max", "largest of those", lambda w: w.applied.high()),
)
"""Section 2: rollout_is_*."""

OOB = WeightMetric("oob_ratio", "share of tokens whose weight was zeroed", lambda w: w.bounded.per_token("outside"))
FACTOR = WeightMetric(
    "batch_norm_factor",
    "what weights were divided by: the mean weight of the batch; none over batches with different ones",
    lambda w: w.applied.only("factor"),
)


def weight_metrics(numbers: "Numbers", plan: Plan) -> Values:
    """rollout_is_*: raw weights before bounds, applied ones after (divided by the batch mean if the plan says so)."""
    if plan.weighting is None:
        return {}
    token_scope, normed = plan.weighting.scope == "token", plan.weighting.normalize == "batch"
    raw, bounded = Moments(numbers, "weight.", token_scope, 1.0), Moments(numbers, "applied.", token_scope, 1.0)
    applied = Moments(numbers, "normed.", token_scope, 1.0) if normed else bounded
    read = Weights(raw, bounded, applied, plan.weighting.bounds)
    rows = [*WEIGHTS, *((OOB,) if plan.weighting.outside == "zero" else ()), *((FACTOR,) if normed else ())]
    return {f"rollout_is_{row.name}": row.value(read) for row in rows}


REJECTIONS: dict[str, str] = {
    "rollout_rs_masked_fraction": "valid tokens lost to all rejections together",
    "rollout_rs_seq_masked_fraction": "sequences that lose any token",
    "rollout_rs_seq_dropped_fraction": "sequences with no token left",
    "rollout_is_veto_fraction": "sequences that the veto rejects",
    "rollout_is_catastrophic_token_fraction": "tokens with l below log of the veto's bound, unlimited",
    "kept_tokens": "valid tokens left",
    "kept_sequences": "sequences with a token left",
}
"""Section 3 over all rejections together; each has rollout_rs_{name}_* of its own, see `_one_rejection`."""


def rejection_metrics(numbers: "Numbers", plan: Plan) -> Values:
    """rollout_rs_* of each rejection and of all together, the veto's two shares, and what is kept."""
    if not plan.rules:
        return {}
    values: Values = {}
    for rejection in plan.rules:
        values |= _one_rejection(numbers, rejection)
    lost = Moments(numbers, "rs.", True, 0.0)
    values["rollout_rs_masked_fraction"] = lost.per_token("masked")
    values["rollout_rs_seq_masked_fraction"] = lost.per_sequence("seq_masked")
    values["rollout_rs_seq_dropped_fraction"] = lost.per_sequence("seq_dropped")
    for rejection in (r for r in plan.rejections if r.is_veto):
        veto = Moments(numbers, f"rs.{rejection.name}.", False, 1.0)
        values.setdefault("rollout_is_veto_fraction", veto.per_sequence("seq_masked"))
        values.setdefault("rollout_is_catastrophic_token_fraction", veto.per_token("catastrophic"))
    kept = numbers.under("kept.")
    values["kept_tokens"], values["kept_sequences"] = kept.tokens, kept.sequences
    return values | {f"kept_{name}": value for name, value in diagnostics(kept).items()}


def _one_rejection(numbers: "Numbers", rejection: Rejection | Budget) -> Values:
    ratio = rejection.statistic == "ratio"
    family = Moments(numbers, f"rs.{rejection.name}.", rejection.scope == "token", 1.0 if ratio else 0.0)
    prefix = f"rollout_rs_{rejection.name}"
    return {
        f"{prefix}_mean": family.unit_mean(),
        f"{prefix}_std": family.unit_std(),
        f"{prefix}_min": family.low(),
        f"{prefix}_max": family.high(),
        f"{prefix}_fraction_high": family.fraction("high", rejection.bounds.high is not None),
        f"{prefix}_fraction_low": family.fraction("low", rejection.bounds.low is not None),
        f"{prefix}_masked_fraction": family.per_token("masked"),
        f"{prefix}_seq_masked_fraction": family.per_sequence("seq_masked"),
    }
