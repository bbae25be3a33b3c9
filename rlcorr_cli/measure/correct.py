"""Tokens + Plan -> weights, what each rejection keeps, and what is left.

Each rejection is statistic -> scope -> inside bounds; the weighting is reduce -> limit -> exp -> clamp or zero.
Values live on *units*: tokens [V] at token scope, sequences [B] otherwise.  A budget's bound is a number per sequence,
found beforehand (`totals/earlier_readings.py`).
"""

from collections.abc import Mapping

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array, Segments, namespace
from rlcorr_cli.measure.statistics import LINEAR, OF_PROBABILITIES, STATISTICS
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import LEVELS, Bounds, Budget, Plan, Rejection, Scope, Weighting
from rlcorr_cli.totals.limits import log

MAX_WEIGHT = float(np.finfo(np.float32).max)
"""The largest weight that is not infinite to a trainer, 3.4e38: trainers and filtered datasets hold float32."""


@frozen(kw_only=True)
class Weighted:
    """IS weights over units.  log_raw: reduced l, unlimited.  raw: e^(limited).  applied: after the bounds, not yet
    divided by a batch mean (normalising is a scale, applied once totals are known).  gate_mask: bool, where the gate is
    open; None: everywhere."""

    weighting: Weighting
    log_raw: Array
    raw: Array
    applied: Array
    gate_mask: Array | None = None


@frozen(kw_only=True)
class Rejected:
    """One rejection or budget over units: the statistic, in its unit, and what it keeps.

    keep: units that lose nothing.  log_value: for ratios, the reduced l before the limit; else None.  gate_mask: as in
    Weighted, but bool [V] where the gate is of tokens.
    """

    rejection: Rejection | Budget
    value: Array
    log_value: Array | None
    keep: Array
    gate_mask: Array | None = None

    def on_tokens(self, rows: Segments) -> Array:
        """The tokens that it keeps, bool [V]."""
        if self.rejection.scope == "token":
            return self.keep
        kept = rows.spread(self.keep)
        return kept | ~self.gate_mask if self.rejection.gates_tokens and self.gate_mask is not None else kept


@frozen
class Corrected:
    """A plan's verdict on some tokens.  keep: bool [V], all applied rejections ANDed; None when the plan has none."""

    plan: Plan
    weighted: Weighted | None
    rejected: tuple[Rejected, ...]
    keep: Array | None


@np.errstate(all="ignore")  # beyond float64 a weight is inf
def correct(tokens: Tokens, plan: Plan, budget_bounds: Mapping[str, np.ndarray] | None = None) -> Corrected:
    """Weights and rejections of a plan, each rejection on the original mask.

    budget_bounds: budget -> its bound, f64[B].
    """
    weighting, limit = plan.weighting, plan.log_ratio_limit
    weighted = None if weighting is None else weigh(pair(tokens, weighting, plan), weighting, limit)
    rejected = tuple(reject(pair(tokens, rejection, plan), rejection, plan) for rejection in plan.rejections)
    rejected += tuple(_spend(tokens, budget, plan, (budget_bounds or {})[budget.name]) for budget in plan.budgets)
    keep = None
    for part in rejected:
        on_tokens = part.on_tokens(tokens.rows)
        if not part.rejection.applied:
            on_tokens = on_tokens | True
        keep = on_tokens if keep is None else keep & on_tokens
    return Corrected(plan, weighted, rejected, keep)


def pair(tokens: Tokens, record: Weighting | Rejection | Budget, plan: Plan) -> Tokens:
    """The tokens with the two policies that a record looks at, each limited where the plan limits it first."""
    between = tokens.between(record.of)
    return between.limited_first(plan.log_ratio_limit) if plan.limit_on == "first" else between


def weigh(tokens: Tokens, weighting: Weighting, limit: float | None) -> Weighted:
    """w = e^(l reduced by scope, then limited), then clamped to the bounds or zeroed outside them (inclusive).

    Where the gate is shut the weight is 1, before and after the bounds.
    """
    scope = LEVELS[weighting.scope]
    log_raw = reduce_log_ratio(tokens, scope)
    raw = tokens.limited_rho(limit) if scope == "token" else np.exp(_limit(log_raw, limit))
    xp, low, high, applied = namespace(raw), weighting.bounds.low, weighting.bounds.high, raw
    if weighting.infinite == "zero":
        applied = xp.where(raw > MAX_WEIGHT, 0.0, raw)
    if weighting.outside == "cap":
        low = None
    if (low, high) != (None, None):
        is_zeroed = weighting.outside == "zero"
        applied = xp.where(inside(applied, low, high), applied, 0.0) if is_zeroed else xp.clip(applied, low, high)
    gate_mask = tokens.gate_mask(weighting.gate, scope == "token")
    if gate_mask is not None:
        log_raw, raw, applied = log_raw * gate_mask, xp.where(gate_mask, raw, 1.0), xp.where(gate_mask, applied, 1.0)
    return Weighted(weighting=weighting, log_raw=log_raw, raw=raw, applied=applied, gate_mask=gate_mask)


def reject(tokens: Tokens, rejection: Rejection, plan: Plan) -> Rejected:
    """One rejection's statistic and the units inside its bounds.

    Ratios are compared in log space, log low <= l <= log high, so that a product of 10,000 tokens needs no e^S.
    Where the gate is shut everything is kept, whatever its statistic.  Where the gate is of tokens, a sequence outside
    its bounds is kept if it is shut for each of them.
    """
    log_value = None
    if rejection.statistic == "ratio":
        log_value, log_limited = _log_linear(tokens, rejection.scope, plan)
        ratio = tokens.limited_rho(plan.log_ratio_limit) if rejection.scope == "token" else np.exp(log_limited)
        value, keep = ratio, _inside_log(log_limited, rejection.bounds)
    else:
        value = statistic(tokens, rejection, plan)
        keep = inside(value, rejection.bounds.low, rejection.bounds.high)
    gate_mask = tokens.gate_mask(rejection.gate, rejection.scope == "token" or rejection.gates_tokens)
    shut: Array | None = None if gate_mask is None else ~gate_mask
    if shut is not None and rejection.gates_tokens:
        shut = tokens.rows.count(shut) == tokens.rows.sizes
    return Rejected(
        rejection=rejection,
        value=value,
        log_value=log_value,
        keep=keep if shut is None else keep | shut,
        gate_mask=gate_mask,
    )


def keeps(
    tokens: Tokens, rule: Rejection | Budget, plan: Plan, budget_bounds: Mapping[str, np.ndarray] | None = None
) -> Array:
    """What one rule of a plan keeps: `correct`'s, without what is only reported of it; over its units, or over tokens
    where its gate is of these."""
    if isinstance(rule, Budget):
        return _spend(tokens, rule, plan, (budget_bounds or {})[rule.name]).keep
    between = pair(tokens, rule, plan)
    if rule.gates_tokens:
        return reject(between, rule, plan).on_tokens(tokens.rows)
    if rule.statistic != "ratio" or rule.gate != "any":
        return reject(between, rule, plan).keep
    return _inside_log(_log_linear(between, rule.scope, plan)[1], rule.bounds)


def compared_values(tokens: Tokens, rejection: Rejection, plan: Plan) -> Array:
    """What a rejection compares with its bounds, over its units: the limited log of a ratio, else the statistic."""
    if rejection.statistic == "ratio":
        return _log_linear(tokens, rejection.scope, plan)[1]
    return statistic(tokens, rejection, plan)


def _spend(tokens: Tokens, budget: Budget, plan: Plan, budget_bounds: np.ndarray) -> Rejected:
    value = budgeted(tokens, budget, plan)
    cut = tokens.rows.spread(budget_bounds)
    return Rejected(rejection=budget, value=value, log_value=None, keep=value <= cut)


def budgeted(tokens: Tokens, budget: Budget, plan: Plan) -> Array:
    """A budget's statistic of every token, [V]."""
    return statistic(pair(tokens, budget, plan), budget, plan)


def statistic(tokens: Tokens, rejection: Rejection | Budget, plan: Plan) -> Array:
    """A non-ratio statistic over its units."""
    if rejection.statistic in LINEAR:
        _, limited = _log_linear(tokens, rejection.scope, plan, negate=LINEAR[rejection.statistic] < 0)
        return limited
    if rejection.statistic in OF_PROBABILITIES:
        return _reduce(tokens.rows, OF_PROBABILITIES[rejection.statistic](tokens), rejection.scope)
    limited = tokens.limited(plan.log_ratio_limit)
    if rejection.statistic == "k3":  # as in the table, of exponentials that are there already
        return _reduce(tokens.rows, tokens.limited_rho_minus_1(plan.log_ratio_limit) - limited, rejection.scope)
    return _reduce(tokens.rows, STATISTICS[rejection.statistic](limited), rejection.scope)


def reduce_log_ratio(tokens: Tokens, scope: Scope) -> Array:
    """l over units: [V] at token scope, else [B]: S, g, or the extreme token."""
    match scope:
        case "token":
            return tokens.log_ratio
        case "seq_sum":
            return tokens.log_ratio_sum
        case "seq_mean":
            return tokens.log_ratio_sum / tokens.rows.sizes
        case "seq_min":
            return tokens.log_ratio_min
        case "seq_max":
            return tokens.log_ratio_max


_NEGATED: Mapping[Scope, Scope] = {"seq_min": "seq_max", "seq_max": "seq_min"}
"""What finds in -l what a scope finds in l, where it is not the same."""


def _log_linear(tokens: Tokens, scope: Scope, plan: Plan, negate: bool = False) -> tuple[Array, Array]:
    """(l reduced without limit, with the plan's limit), negated for k1.  Extreme tokens are never limited."""
    if negate:
        raw, limited = _log_linear(tokens, _NEGATED.get(scope, scope), plan)
        return -raw, -limited
    raw = reduce_log_ratio(tokens, scope)
    if scope in ("seq_min", "seq_max"):
        return raw, raw
    if scope != "token" and plan.limit_on != "token":
        return raw, _limit(raw, plan.log_ratio_limit)
    limited = tokens.limited(plan.log_ratio_limit)
    return raw, raw if limited is tokens.log_ratio else _reduce(tokens.rows, limited, scope)


def _reduce(rows: Segments, values: Array, scope: Scope) -> Array:
    match scope:
        case "token":
            return values
        case "seq_sum":
            return rows.sum(values)
        case "seq_mean":
            return rows.sum(values) / rows.sizes
        case "seq_max":
            return rows.max(values)
        case "seq_min":
            return rows.min(values)


def inside(values: Array, low: float | None, high: float | None) -> Array:
    """Where values lie inside their bounds, which are inclusive; None: no bound."""
    if low is None and high is None:
        xp = namespace(values)
        return xp.ones_like(values, dtype=xp.bool)
    if low is None:
        return values <= high
    return values >= low if high is None else (values >= low) & (values <= high)


def _inside_log(log_values: Array, bounds: Bounds) -> Array:
    """Ratios inside their bounds, by their logs."""
    low, high = bounds.low, bounds.high
    return inside(log_values, None if low is None else log(low), None if high is None else log(high))


def _limit(values: Array, limit: float | None) -> Array:
    return values if limit is None else namespace(values).clip(values, -limit, limit)
