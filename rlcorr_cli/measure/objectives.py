"""Tokens + Corrected + Objective -> the loss and the gradient's coefficient of every token, and their sums.

A training batch's loss and coefficients are these over its divisor, kept or valid tokens or sequences; the divisor is
known only where all of the batch has been seen, so it is not in any number here.  What adds is added per sequence
first, as everywhere.  Formulas: `plans/objective.py`.
"""

import math
from dataclasses import replace

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array, Segments, namespace, product
from rlcorr_cli.measure.correct import Corrected
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.totals.flat import Floats

CHANGE_LIMIT = 20.0
"""d is clamped to this on either side before r = e^d, and a clamped token has no gradient."""
MEAN_CHANGE_LIMIT = 10.0
"""The same from above of the mean d that GSPO takes."""
RATIO_CAP = 20.0
"""DPPO's ratio is at most this."""
SAPO_TAU = (1.0, 1.05)
"""SAPO's steepness where A > 0, and elsewhere."""
VESPO_K_LAMBDA = ((2.0, 3.0), (3.0, 2.0))
"""VESPO's k and lambda where A >= 0, and elsewhere."""
VESPO_LOG_LIMITS = (math.log(1e-8), 20.0)
"""Between which VESPO takes the log of a sequence's ratio."""


@frozen
class TokenTerms:
    """L and D of every token, f64[V], and where they are a clip's, bool[V]."""

    loss: Array
    slope: Array
    clipped: Array
    dual_clipped: Array


@frozen(kw_only=True)
class TokenLosses:
    """z w L and z w D of every token without the batch's divisor, f64[V], 0 where rejected; bool[V] where clipped, of
    kept tokens alone.  keep: bool[V]; n_kept: f64[B]."""

    loss: Array
    coef: Array
    clipped: Array
    dual_clipped: Array
    keep: Array
    n_kept: Floats


def token_losses(tokens: Tokens, corrected: Corrected, objective: Objective) -> TokenLosses:
    """The objective of corrected tokens, whose advantages must be there."""
    weights = token_weights(tokens.rows, corrected) if objective.takes_weights else None
    return _losses(tokens, objective, change=_change(tokens, objective), weights=weights, keep=corrected.keep)


def objective_columns(tokens: Tokens, corrected: Corrected, objective: Objective) -> tuple[Columns, dict[str, Floats]]:
    """The sums per sequence that `metrics/objective.py` reads, and by name what the largest are kept of: M, the sum of
    |coefficient| of each sequence, f64[B].

    uncorrected: the same objective with nothing weighted or rejected; in bypass mode reinforce's.  twice: the ratio
    counted twice, in d = theta - b and in the weights; only where there are weights.  average: with the other way to
    take means, of tokens in place of sequences or the other way round.
    """
    own = token_losses(tokens, corrected, objective)
    rows, advantages = tokens.rows, _advantages(tokens)
    magnitude = abs(own.coef)
    mass = rows.sum(magnitude)
    squares = rows.sum(own.coef * own.coef)
    columns = Columns(
        sums={
            "loss": rows.sum(own.loss),
            "clipped": rows.count(own.clipped),
            "dual_clipped": rows.count(own.dual_clipped),
            "kept_tokens": own.n_kept,
            "kept_sequences": (own.n_kept > 0).astype(np.float64),
            "coef": rows.sum(own.coef),
            "abs": mass,
            "square": squares,
            "positive": rows.sum(tokens.xp.where(advantages > 0, magnitude, 0.0)),
            "negative": rows.sum(tokens.xp.where(advantages < 0, magnitude, 0.0)),
            "mass_square": mass**2,
        },
        maxs={"abs": rows.max(magnitude)},
    )
    reference = uncorrected(tokens, objective)
    columns |= _beside(rows, own, reference).prefixed("uncorrected.")
    columns |= _sequence_weighted(tokens, own, reference)
    if corrected.weighted is not None:
        columns |= _beside(rows, own, counted_twice(tokens, corrected, objective)).prefixed("twice.")
    # What takes a sequence's coefficients to those of the other average: a mean within sequences first, or none.
    is_mean_of_means = objective.aggregation == "seq-mean-token-mean"
    scale = own.n_kept if is_mean_of_means else (objective.loss_constant or 1.0) / own.n_kept.clip(min=1)
    average = {"loss": columns.sums["loss"] * scale, "square": squares * scale**2, "dot": squares * scale}
    columns |= Columns(sums=average).prefixed("average.")
    return columns.prefixed("objective."), {"objective.mass": mass}


def uncorrected(tokens: Tokens, objective: Objective) -> TokenLosses:
    """The objective with nothing weighted or rejected; in bypass mode, where PPO's ratio corrects, reinforce's."""
    plain = replace(objective, name="reinforce", dual_clip=None, beta=None) if objective.mode == "bypass" else objective
    return _losses(tokens, plain, change=_change(tokens, objective), weights=None, keep=None)


def counted_twice(tokens: Tokens, corrected: Corrected, objective: Objective) -> TokenLosses:
    """The mistake of a ratio theta over rollout with the plan's weights on top of it: what the weights correct, the
    ratio already does."""
    clipping = (
        replace(objective, name="ppo", clip_low=0.2, clip_high=0.2) if objective.name == "reinforce" else objective
    )
    change = tokens.between("total").log_ratio
    return _losses(tokens, clipping, change=change, weights=token_weights(tokens.rows, corrected), keep=corrected.keep)


def token_weights(rows: Segments, corrected: Corrected) -> Array | None:
    """The applied weight of every token before any batch mean, f64[V]; None where the plan weights nothing."""
    weighted = corrected.weighted
    if weighted is None:
        return None
    return weighted.applied if weighted.weighting.scope == "token" else rows.spread(weighted.applied)


def terms(tokens: Tokens, objective: Objective, change: Array, keep: Array | None = None) -> TokenTerms:
    """L and D of every token.  change: d = theta - old, f64[V].  keep: whose mean GSPO takes; None for all."""
    xp, advantages = tokens.xp, _advantages(tokens)
    match objective.name:
        case "reinforce":
            never = _nowhere(advantages)
            return TokenTerms(-advantages * _current(tokens), -advantages, never, never)
        case "cispo":
            ratio = xp.exp(xp.clip(change, -CHANGE_LIMIT, CHANGE_LIMIT))
            inside = _clip(ratio, objective)
            weight = inside * advantages
            return TokenTerms(-weight * _current(tokens), -weight, inside != ratio, _nowhere(ratio))
        case "gspo":
            # Of d over the sequence's kept tokens, at each of its tokens; 0 where none is kept.
            rows, kept = tokens.rows, change if keep is None else xp.where(keep, change, 0.0)
            n_kept = rows.sizes if keep is None else rows.count(keep).clip(min=1)
            mean = rows.spread(rows.sum(kept) / n_kept)
            ratio = xp.exp(xp.clip(mean, None, MEAN_CHANGE_LIMIT))
            return _ppo(ratio, mean > MEAN_CHANGE_LIMIT, advantages, objective)
        case "dppo":
            ratio = xp.clip(xp.exp(xp.clip(change, -CHANGE_LIMIT, CHANGE_LIMIT)), None, RATIO_CAP)
            moved = xp.exp(_current(tokens)) - xp.exp(_current(tokens) - change)
            passed = xp.where(advantages > 0, moved > objective.clip_high, moved < -objective.clip_low)
            weight = xp.where(passed, 0.0, ratio * advantages)
            return TokenTerms(-weight * _current(tokens), -weight, passed, _nowhere(ratio))
        case "sapo":
            ratio = xp.exp(xp.clip(change, -CHANGE_LIMIT, CHANGE_LIMIT))
            steepness = xp.where(advantages > 0, SAPO_TAU[0], SAPO_TAU[1])
            gate = 1 / (1 + xp.exp(-steepness * (ratio - 1)))
            slope = xp.where(abs(change) > CHANGE_LIMIT, 0.0, -advantages * 4 * gate * (1 - gate) * ratio)
            return TokenTerms(-advantages * 4 / steepness * gate, slope, _nowhere(ratio), _nowhere(ratio))
        case "vespo":
            # phi = e^lambda W^k e^(-lambda W), by the sign of A; 1 at W = 1.
            rows, limited = tokens.rows, xp.clip(change, -CHANGE_LIMIT, CHANGE_LIMIT)
            kept = limited if keep is None else xp.where(keep, limited, 0.0)
            log_ratio = rows.spread(rows.sum(kept).clip(*VESPO_LOG_LIMITS))
            power, decay = (xp.where(advantages >= 0, *pair) for pair in zip(*VESPO_K_LAMBDA, strict=True))
            weight = xp.exp(decay + power * log_ratio - decay * xp.exp(log_ratio)) * advantages
            return TokenTerms(-weight * _current(tokens), -weight, _nowhere(weight), _nowhere(weight))
        case "dro":
            assert objective.beta is not None
            loss = objective.beta * change * change / 2 - advantages * _current(tokens)
            return TokenTerms(loss, objective.beta * change - advantages, _nowhere(loss), _nowhere(loss))
        case "ppo":
            ratio = xp.exp(xp.clip(change, -CHANGE_LIMIT, CHANGE_LIMIT))
            return _ppo(ratio, abs(change) > CHANGE_LIMIT, advantages, objective)


def _ppo(ratio: Array, limited: Array, advantages: Array, objective: Objective) -> TokenTerms:
    """The larger of both branches, and at most the dual clip's where A < 0.

    The gradient is that of the branch that is strictly larger; where both are equal the ratio lies inside the clip, and
    either branch's is -A r.
    """
    xp = namespace(ratio)
    plain, clipped = -advantages * ratio, -advantages * _clip(ratio, objective)
    loss, is_clipped = xp.maximum(plain, clipped), clipped > plain
    is_dual = _nowhere(ratio)
    if objective.dual_clip is not None:
        ceiling = -advantages * objective.dual_clip
        is_dual = (advantages < 0) & (loss > ceiling)
        loss = xp.where(is_dual, ceiling, loss)
    flat = is_clipped | is_dual | limited
    return TokenTerms(loss, xp.where(flat, 0.0, plain), is_clipped, is_dual)


def _losses(
    tokens: Tokens, objective: Objective, *, change: Array, weights: Array | None, keep: Array | None
) -> TokenLosses:
    """Each token's terms under its weight, 0 where rejected, averaged within its sequence where the objective does."""
    rows = tokens.rows
    of_token = terms(tokens, objective, change, keep)
    keep = ~_nowhere(change) if keep is None else keep
    n_kept = rows.count(keep)
    # A rejected token may have an infinite weight: chosen away, not multiplied by 0.
    factor = tokens.xp.where(keep, tokens.xp.ones_like(change) if weights is None else weights, 0.0)
    if objective.aggregation == "seq-mean-token-mean":
        factor = factor / rows.spread(n_kept.clip(min=1))
    elif objective.loss_constant is not None:
        factor = factor / objective.loss_constant
    return TokenLosses(
        loss=product(of_token.loss, factor),
        coef=product(of_token.slope, factor),
        clipped=of_token.clipped & keep,
        dual_clipped=of_token.dual_clipped & keep,
        keep=keep,
        n_kept=n_kept,
    )


def _beside(rows: Segments, own: TokenLosses, other: TokenLosses) -> Columns:
    """The loss of other coefficients, their squares, and their products with the plan's own."""
    return Columns(
        sums={
            "loss": rows.sum(other.loss),
            "square": rows.sum(other.coef * other.coef),
            "dot": rows.sum(product(other.coef, own.coef)),
        }
    )


def _sequence_weighted(tokens: Tokens, own: TokenLosses, reference: TokenLosses) -> Columns:
    """The same of the reference under e^S, as logs: S may be far beyond what float64 can exponentiate.

    A product may have either sign, and a log has none: those of the positive and of the negative sequences add apart.
    """
    rows, log_weight = tokens.rows, tokens.log_ratio_sum
    dot = rows.sum(product(reference.coef, own.coef))
    with np.errstate(divide="ignore"):
        logs = {
            "sequence_is.square": np.log(rows.sum(reference.coef * reference.coef)) + 2 * log_weight,
            "sequence_is.positive": np.log(dot.clip(min=0)) + log_weight,
            "sequence_is.negative": np.log((-dot).clip(min=0)) + log_weight,
        }
    return Columns(logs=logs)


def _nowhere(values: Array) -> Array:
    """False of each value."""
    xp = namespace(values)
    return xp.zeros_like(values, dtype=xp.bool)


def _clip(ratio: Array, objective: Objective) -> Array:
    return namespace(ratio).clip(ratio, 1 - objective.clip_low, 1 + objective.clip_high)


def _change(tokens: Tokens, objective: Objective) -> Array:
    """d = theta - old: 0 in a dump of two policies, whose current one is the old; in bypass mode theta - b."""
    if objective.mode == "bypass":
        return tokens.log_ratio
    return tokens.xp.zeros_like(tokens.log_ratio) if tokens.current_change is None else tokens.current_change


def _current(tokens: Tokens) -> Array:
    """theta, f64[V]."""
    return tokens.rollout_logp + tokens.log_ratio if tokens.current_logp is None else tokens.current_logp


def _advantages(tokens: Tokens) -> Array:
    assert tokens.advantages is not None, "an objective needs advantages"
    return tokens.advantages
