"""What a plan decides about each row and each of its tokens, as plain arrays: what `filter` writes down."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, Decision
from rlcorr_cli.core.correct import MAX_WEIGHT, Corrected, Rejected, correct
from rlcorr_cli.core.objectives import token_losses
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Budget, Plan, Rejection
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.summary import GroupKey

Flags = NDArray[np.bool_]
T = TypeVar("T", np.float64, np.bool_)


def correct_batch(
    batch: Batch, tokens: Tokens, plan: Plan, budget_bounds: Mapping[str, Mapping[GroupKey, float]]
) -> Corrected:
    """The plan applied to a batch's tokens; budget_bounds: as of `bounds_of_sequences`."""
    return correct(tokens, plan, bounds_of_sequences(batch, budget_bounds))


def bounds_of_sequences(batch: Batch, budget_bounds: Mapping[str, Mapping[GroupKey, float]]) -> dict[str, Floats]:
    """Budget -> its bound for each non-empty sequence, f64[B].

    budget_bounds: budget -> group -> the largest value of its statistic that stays.
    """
    filled = batch.filled
    bounds = {name: np.array([of.get(key, np.inf) for key in batch.group_keys]) for name, of in budget_bounds.items()}
    return {name: by_group[batch.group_index[filled]] for name, by_group in bounds.items()}


def nothing_decided(batch: Batch, plan: Plan, objective: Objective | None = None) -> Decision:
    """Of a batch without a valid token."""
    none = np.zeros(batch.n_rows)
    return Decision(
        weights=None if plan.weighting is None else np.zeros(0),
        keep=np.zeros(0, np.bool_),
        n_valid=none,
        n_kept=none,
        row_weights=none,
        rejected={},
        coefs=None if objective is None else np.zeros(0),
    )


def decide_batch(
    batch: Batch, plan: Plan, device: torch.device, budget_bounds: Mapping[str, Mapping[GroupKey, float]]
) -> Decision:
    """What `observe` decides about a batch without an objective, and nothing measured of it."""
    if not batch.n_tokens:
        return nothing_decided(batch, plan)
    tokens = Tokens.of(batch, device, plan.mode)
    return decide(batch, tokens, correct_batch(batch, tokens, plan, budget_bounds))


def decide(batch: Batch, tokens: Tokens, corrected: Corrected, objective: Objective | None = None) -> Decision:
    """What a corrected batch amounts to, row by row and token by token, an objective's coefficients with it."""
    n_valid = batch.lengths.astype(np.float64)
    ragged, filled = tokens.ragged, n_valid > 0
    applied = [rejected for rejected in corrected.rejected if rejected.rejection.applied]
    weights = _weights(tokens, corrected)
    keep = np.ones(batch.n_tokens, np.bool_) if corrected.keep is None else corrected.keep.cpu().numpy()
    n_kept = _sums(ragged, keep.astype(np.float64))
    with np.errstate(over="ignore"):
        weight = n_kept if weights is None else _sums(ragged, np.where(keep, weights, 0.0))
    return Decision(
        weights=weights,
        keep=keep,
        n_valid=n_valid,
        n_kept=_at_rows(n_kept, filled),
        row_weights=_at_rows(weight / np.maximum(n_kept, 1), filled),
        rejected={rejected.rejection.name: _at_rows(_takes(ragged, rejected), filled) for rejected in applied},
        coefs=None if objective is None else to_numpy(token_losses(tokens, corrected, objective).coef),
    )


def storable(weights: Floats) -> tuple[Floats, int]:
    """Weights no larger than MAX_WEIGHT, and how many were."""
    n_larger = int((weights > MAX_WEIGHT).sum())
    return (np.minimum(weights, MAX_WEIGHT), n_larger) if n_larger else (weights, 0)


def opinions(
    batch: Batch, plan: Plan, device: torch.device, budget_bounds: Mapping[str, Mapping[GroupKey, float]]
) -> list[tuple[Rejection | Budget, Floats, Flags]]:
    """Each rule of a plan on a batch: its statistic over its units, and what it keeps, bool[V]."""
    if not batch.n_tokens:
        return []
    tokens = Tokens.of(batch, device, plan.mode)
    return [
        (
            rule,
            to_numpy(rejected.value),
            (rejected.keep if rule.scope == "token" else tokens.ragged.broadcast(rejected.keep)).cpu().numpy(),
        )
        for rejected in correct_batch(batch, tokens, plan, budget_bounds).rejected
        for rule in (rejected.rejection,)
    ]


def _weights(tokens: Tokens, corrected: Corrected) -> Floats | None:
    if corrected.weighted is None:
        return None
    weighted = corrected.weighted
    return to_numpy(
        weighted.applied if weighted.weighting.scope == "token" else tokens.ragged.broadcast(weighted.applied)
    )


def _takes(ragged: Ragged, rejected: Rejected) -> Flags:
    """Which sequences lose anything to a rejection."""
    lost = ~rejected.keep.cpu().numpy()
    return np.logical_or.reduceat(lost, ragged.offsets[:-1]) if rejected.rejection.scope == "token" else lost


def _sums(ragged: Ragged, values: Floats) -> Floats:
    return np.add.reduceat(values, ragged.offsets[:-1])


def _at_rows(values: NDArray[T], filled: Flags) -> NDArray[T]:
    """Values of the non-empty rows at their places among all rows."""
    rows = np.zeros(len(filled), values.dtype)
    rows[filled] = values
    return rows
