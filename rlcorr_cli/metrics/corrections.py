"""Metrics of a plan: rollout_is_* of its weights, rollout_rs_* of its rejections, kept_* of what they leave.

`weights.py` and `rejections.py` have the rows; `canonical` puts their values beside those of the diagnostics.
"""

from typing import TYPE_CHECKING

from rlcorr_cli.metrics.advantages import ADVANTAGES, PREFIX
from rlcorr_cli.metrics.diagnostics import diagnostics, evaluate
from rlcorr_cli.metrics.drift import DRIFT
from rlcorr_cli.metrics.rejections import ALL_REJECTIONS, EACH_REJECTION, KEPT, VETO
from rlcorr_cli.metrics.weights import FACTOR, KEPT_SIZE, OOB, WEIGHTS, Weights
from rlcorr_cli.plans.plan import Budget, Plan, Rejection
from rlcorr_cli.plans.statistics import STATISTICS
from rlcorr_cli.totals.families import StatisticFamily, Values

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers


def canonical(numbers: "Numbers", plan: Plan) -> Values:
    """Every metric of a plan's summary under rlcorr's own names."""
    values = diagnostics(numbers)
    if numbers.has("drift.ratio"):
        values |= {metric.name: evaluate(metric, numbers) for metric in DRIFT}
    if numbers.has(f"{PREFIX}rows"):
        values |= {metric.name: evaluate(metric, numbers) for metric in ADVANTAGES}
    values |= weight_metrics(numbers, plan)
    values |= rejection_metrics(numbers, plan)
    return values


def weight_metrics(numbers: "Numbers", plan: Plan) -> Values:
    """rollout_is_*: raw weights before bounds, applied ones after (divided by the batch mean if the plan says so)."""
    if plan.weighting is None:
        return {}
    token_scope, normed = plan.weighting.scope == "token", plan.normalizes
    raw, bounded = (
        StatisticFamily(numbers, "weight.", token_scope, 1.0),
        StatisticFamily(numbers, "applied.", token_scope, 1.0),
    )
    applied = StatisticFamily(numbers, "normed.", token_scope, 1.0) if normed else bounded
    weights = Weights(raw, bounded, applied, plan.weighting.bounds)
    counts_kept = bool(plan.rules) and not normed and numbers.has("applied.kept")  # older totals have no such sum
    rows = [*WEIGHTS, *((KEPT_SIZE,) if counts_kept else ())]
    rows += [*((OOB,) if plan.weighting.outside == "zero" else ()), *((FACTOR,) if normed else ())]
    return {row.name: row.value(weights) for row in rows}


def rejection_metrics(numbers: "Numbers", plan: Plan) -> Values:
    """rollout_rs_* of each rejection and of all together, the veto's two shares, and what is kept."""
    if not plan.rules:
        return {}
    values: Values = {}
    for rejection in plan.rules:
        values |= _each_rejection(numbers, rejection)
    lost = StatisticFamily(numbers, "rs.", True, 0.0)
    values |= {row.name: row.value(lost) for row in ALL_REJECTIONS}
    veto = next((rejection for rejection in plan.rejections if rejection.is_veto), None)
    if veto is not None:
        family = StatisticFamily(numbers, f"rs.{veto.name}.", False, 1.0)
        values |= {row.name: row.value(family) for row in VETO}
    kept = numbers.under("kept.")
    values |= {row.name: row.value(kept) for row in KEPT}
    return values | {f"kept_{name}": value for name, value in diagnostics(kept).items()}


def _each_rejection(numbers: "Numbers", rejection: Rejection | Budget) -> Values:
    where_equal = STATISTICS[rejection.statistic].where_equal
    family = StatisticFamily(numbers, f"rs.{rejection.name}.", rejection.scope == "token", where_equal)
    return {f"rollout_rs_{rejection.name}_{row.name}": row.value(family, rejection.bounds) for row in EACH_REJECTION}
