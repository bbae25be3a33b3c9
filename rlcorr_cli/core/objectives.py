"""Tokens + Corrected + Objective -> the loss and the gradient's coefficient of every token, and their sums.

A training batch's loss and coefficients are these over its divisor, kept or valid tokens or sequences; the divisor is
known only where all of the batch has been seen, so it is not in any number here.  What adds is added per sequence
first, as everywhere.  Formulas: `plans/objective.py`.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rlcorr_cli.core.correct import Corrected
from rlcorr_cli.core.quantities import Columns
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.totals.histogram import Floats

CHANGE_LIMIT = 20.0
"""d is clamped to this on either side before r = e^d, and a clamped token has no gradient."""
MEAN_CHANGE_LIMIT = 10.0
"""The same from above of the mean d that GSPO takes."""


@dataclass(frozen=True)
class TokenTerms:
    """L and D of every token, f64[V], and where they are a clip's, bool[V]."""

    loss: Tensor
    slope: Tensor
    clipped: Tensor
    dual_clipped: Tensor


@dataclass(frozen=True, kw_only=True)
class TokenLosses:
    """z w L and z w D of every token without the batch's divisor, f64[V], 0 where rejected; bool[V] where clipped, of
    kept tokens alone.  keep: bool[V]; n_kept: f64[B]."""

    loss: Tensor
    coef: Tensor
    clipped: Tensor
    dual_clipped: Tensor
    keep: Tensor
    n_kept: Tensor


def token_losses(tokens: Tokens, corrected: Corrected, objective: Objective) -> TokenLosses:
    """The objective of corrected tokens, whose advantages must be there."""
    weights = token_weights(tokens.ragged, corrected) if objective.takes_weights else None
    return _losses(tokens, objective, change=_change(tokens, objective), weights=weights, keep=corrected.keep)


def objective_columns(tokens: Tokens, corrected: Corrected, objective: Objective) -> tuple[Columns, dict[str, Floats]]:
    """The sums per sequence that `metrics/objective.py` reads, and by name what the largest are kept of: M, the sum of
    |coefficient| of each sequence, f64[B].

    uncorrected: the same objective with nothing weighted or rejected; in bypass mode reinforce's.  twice: the ratio
    counted twice, in d = theta - b and in the weights; only where there are weights.  average: with the other way to
    take means, of tokens in place of sequences or the other way round.
    """
    own = token_losses(tokens, corrected, objective)
    ragged, advantages = tokens.ragged, _advantages(tokens)
    magnitude = own.coef.abs()
    mass = to_numpy(ragged.sum(magnitude))
    squares = _sum(ragged, own.coef.square())
    columns = Columns(
        sums={
            "loss": _sum(ragged, own.loss),
            "clipped": _sum(ragged, own.clipped),
            "dual_clipped": _sum(ragged, own.dual_clipped),
            "kept_tokens": to_numpy(own.n_kept),
            "kept_sequences": _as_floats(to_numpy(own.n_kept) > 0),
            "coef": _sum(ragged, own.coef),
            "abs": mass,
            "square": squares,
            "positive": _sum(ragged, magnitude * (advantages > 0)),
            "negative": _sum(ragged, magnitude * (advantages < 0)),
            "mass_square": mass**2,
        },
        maxs={"abs": to_numpy(ragged.max(magnitude))},
    )
    reference = uncorrected(tokens, objective)
    columns |= _beside(ragged, own, reference).prefixed("uncorrected.")
    columns |= _sequence_weighted(tokens, own, reference)
    if corrected.weighted is not None:
        columns |= _beside(ragged, own, counted_twice(tokens, corrected, objective)).prefixed("twice.")
    scale = _other_average(objective, to_numpy(own.n_kept))
    average = {
        "loss": columns.sums["loss"] * scale,
        "square": squares * scale**2,
        "dot": squares * scale,
    }
    columns |= Columns(sums=average).prefixed("average.")
    return columns.prefixed("objective."), {"objective.mass": mass}


def uncorrected(tokens: Tokens, objective: Objective) -> TokenLosses:
    """The objective with nothing weighted or rejected; in bypass mode, where PPO's ratio corrects, reinforce's."""
    plain = replace(objective, name="reinforce", dual_clip=None) if objective.mode == "bypass" else objective
    return _losses(tokens, plain, change=_change(tokens, objective), weights=None, keep=None)


def counted_twice(tokens: Tokens, corrected: Corrected, objective: Objective) -> TokenLosses:
    """The mistake of a ratio theta over rollout with the plan's weights on top of it: what the weights correct, the
    ratio already does."""
    clipping = (
        replace(objective, name="ppo", clip_low=0.2, clip_high=0.2) if objective.name == "reinforce" else objective
    )
    change = tokens.between("total").log_ratio
    return _losses(
        tokens, clipping, change=change, weights=token_weights(tokens.ragged, corrected), keep=corrected.keep
    )


def token_weights(ragged: Ragged, corrected: Corrected) -> Tensor | None:
    """The applied weight of every token before any batch mean, f64[V]; None where the plan weights nothing."""
    weighted = corrected.weighted
    if weighted is None:
        return None
    return weighted.applied if weighted.weighting.scope == "token" else ragged.broadcast(weighted.applied)


def terms(tokens: Tokens, objective: Objective, change: Tensor, keep: Tensor | None = None) -> TokenTerms:
    """L and D of every token.  change: d = theta - old, f64[V].  keep: whose mean GSPO takes; None for all."""
    advantages = _advantages(tokens)
    match objective.name:
        case "reinforce":
            never = torch.zeros_like(advantages, dtype=torch.bool)
            return TokenTerms(-advantages * _current(tokens), -advantages, never, never)
        case "cispo":
            ratio = torch.exp(change.clamp(-CHANGE_LIMIT, CHANGE_LIMIT))
            inside = _clip(ratio, objective)
            weight = inside * advantages
            return TokenTerms(
                -weight * _current(tokens), -weight, inside != ratio, torch.zeros_like(ratio, dtype=torch.bool)
            )
        case "gspo":
            mean = _kept_mean(tokens.ragged, change, keep)
            ratio = torch.exp(mean.clamp(max=MEAN_CHANGE_LIMIT))
            return _ppo(ratio, mean > MEAN_CHANGE_LIMIT, advantages, objective)
        case "ppo":
            ratio = torch.exp(change.clamp(-CHANGE_LIMIT, CHANGE_LIMIT))
            return _ppo(ratio, change.abs() > CHANGE_LIMIT, advantages, objective)


def _ppo(ratio: Tensor, limited: Tensor, advantages: Tensor, objective: Objective) -> TokenTerms:
    """The larger of both branches, and at most the dual clip's where A < 0.

    The gradient is that of the branch that is strictly larger; where both are equal the ratio lies inside the clip, and
    either branch's is -A r.
    """
    plain, clipped = -advantages * ratio, -advantages * _clip(ratio, objective)
    loss, is_clipped = torch.maximum(plain, clipped), clipped > plain
    is_dual = torch.zeros_like(is_clipped)
    if objective.dual_clip is not None:
        ceiling = -advantages * objective.dual_clip
        is_dual = (advantages < 0) & (loss > ceiling)
        loss = torch.where(is_dual, ceiling, loss)
    flat = is_clipped | is_dual | limited
    return TokenTerms(loss, torch.where(flat, torch.zeros_like(plain), plain), is_clipped, is_dual)


def _losses(
    tokens: Tokens, objective: Objective, *, change: Tensor, weights: Tensor | None, keep: Tensor | None
) -> TokenLosses:
    """Each token's terms under its weight, 0 where rejected, averaged within its sequence where the objective does."""
    ragged = tokens.ragged
    of_token = terms(tokens, objective, change, keep)
    keep = torch.ones_like(of_token.clipped) if keep is None else keep
    n_kept = ragged.sum(keep.double())
    # A rejected token may have an infinite weight: chosen away, not multiplied by 0.
    factor = torch.ones_like(change) if weights is None else weights
    factor = torch.where(keep, factor, torch.zeros_like(factor))
    if objective.aggregation == "seq-mean-token-mean":
        factor = factor / ragged.broadcast(n_kept.clamp(min=1))
    elif objective.loss_constant is not None:
        factor = factor / objective.loss_constant
    return TokenLosses(
        loss=of_token.loss * factor,
        coef=of_token.slope * factor,
        clipped=of_token.clipped & keep,
        dual_clipped=of_token.dual_clipped & keep,
        keep=keep,
        n_kept=n_kept,
    )


def _beside(ragged: Ragged, own: TokenLosses, other: TokenLosses) -> Columns:
    """The loss of other coefficients, their squares, and their products with the plan's own."""
    return Columns(
        sums={
            "loss": _sum(ragged, other.loss),
            "square": _sum(ragged, other.coef.square()),
            "dot": _sum(ragged, other.coef * own.coef),
        }
    )


def _sequence_weighted(tokens: Tokens, own: TokenLosses, reference: TokenLosses) -> Columns:
    """The same of the reference under e^S, as logs: S may be far beyond what float64 can exponentiate.

    A product may have either sign, and a log has none: those of the positive and of the negative sequences add apart.
    """
    ragged, log_weight = tokens.ragged, to_numpy(tokens.log_ratio_sum)
    dot = _sum(ragged, reference.coef * own.coef)
    with np.errstate(divide="ignore"):
        logs = {
            "sequence_is.square": np.log(_sum(ragged, reference.coef.square())) + 2 * log_weight,
            "sequence_is.positive": np.log(dot.clip(min=0)) + log_weight,
            "sequence_is.negative": np.log((-dot).clip(min=0)) + log_weight,
        }
    return Columns(logs=logs)


def _other_average(objective: Objective, n_kept: Floats) -> Floats:
    """What takes a sequence's coefficients to those of the other average: a mean within sequences first, or none."""
    if objective.aggregation == "seq-mean-token-mean":
        return n_kept
    return (objective.loss_constant or 1.0) / n_kept.clip(min=1)


def _kept_mean(ragged: Ragged, change: Tensor, keep: Tensor | None) -> Tensor:
    """The mean of d over a sequence's kept tokens, at each of its tokens, f64[V]; 0 where none is kept."""
    if keep is None:
        return ragged.broadcast(ragged.sum(change) / ragged.lengths)
    kept = torch.where(keep, change, torch.zeros_like(change))
    return ragged.broadcast(ragged.sum(kept) / ragged.sum(keep.double()).clamp(min=1))


def _clip(ratio: Tensor, objective: Objective) -> Tensor:
    return ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)


def _change(tokens: Tokens, objective: Objective) -> Tensor:
    """d = theta - old: 0 in a dump of two policies, whose current one is the old; in bypass mode theta - b."""
    if objective.mode == "bypass":
        return tokens.log_ratio
    return torch.zeros_like(tokens.log_ratio) if tokens.current_change is None else tokens.current_change


def _current(tokens: Tokens) -> Tensor:
    """theta, f64[V]."""
    return tokens.rollout_logp + tokens.log_ratio if tokens.current_logp is None else tokens.current_logp


def _advantages(tokens: Tokens) -> Tensor:
    assert tokens.advantages is not None, "an objective needs advantages"
    return tokens.advantages


def _sum(ragged: Ragged, values: Tensor) -> Floats:
    return to_numpy(ragged.sum(values.double()))


def _as_floats(flags: np.ndarray) -> Floats:
    return flags.astype(np.float64)
