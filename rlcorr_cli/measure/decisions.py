"""What a plan decides about each row and each of its tokens, as plain arrays: what `filter` writes down.

And a batch's share in finding the bounds of the plan's budgets: `totals/earlier_readings.py` says how they follow.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from rlcorr_cli.measure.arrays import Device, concatenated, host, row_blocks
from rlcorr_cli.measure.correct import MAX_WEIGHT, Corrected, budgeted, correct
from rlcorr_cli.measure.objectives import token_losses, token_weights
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Budget, Plan, Rejection
from rlcorr_cli.reading.batch import Batch, Decision
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, FloatBits
from rlcorr_cli.totals.earlier_readings import BudgetGroup, Crossing, binned_values
from rlcorr_cli.totals.flat import Flags, Floats
from rlcorr_cli.totals.totals import GroupKey

BudgetBounds = Mapping[str, Mapping[GroupKey, float]]
"""Budget -> group -> the largest value of its statistic that stays."""


def bounds_of_sequences(batch: Batch, budget_bounds: BudgetBounds) -> dict[str, Floats]:
    """Budget -> its bound for each non-empty sequence, f64[B]."""
    filled = batch.filled
    bounds = {name: np.array([of.get(key, np.inf) for key in batch.group_keys]) for name, of in budget_bounds.items()}
    return {name: by_group[batch.group_index[filled]] for name, by_group in bounds.items()}


def decide_batch(batch: Batch, plan: Plan, device: Device, budget_bounds: BudgetBounds) -> Decision:
    """What `observe` decides about a batch without an objective, and nothing measured of it."""
    if not batch.n_tokens:
        none = np.zeros(batch.n_rows)
        return Decision(
            weights=None if plan.weighting is None else np.zeros(0),
            keep=np.zeros(0, np.bool_),
            n_valid=none,
            n_kept=none,
            row_weights=none,
            rejected={rule.name: none > 0 for rule in plan.rules if rule.applied},
        )
    decisions: list[Decision] = []
    with np.errstate(all="ignore"):
        for rows in row_blocks(batch.offsets, device):
            block = batch.between(*rows)
            if block.n_tokens:
                tokens = Tokens.of(block, device, plan.mode)
                decisions.append(decide(tokens, correct(tokens, plan, bounds_of_sequences(block, budget_bounds))))
    return concatenated(decisions).with_empty(batch.filled)


def decide(tokens: Tokens, corrected: Corrected, objective: Objective | None = None) -> Decision:
    """What corrected tokens amount to, row by row and token by token, an objective's coefficients with it; of their
    rows alone, none of which is empty."""
    rows = tokens.rows
    rejects: dict[str, Flags] = {}  # the sequences that lose anything to each rejection
    for each in corrected.rejected:
        if each.rejection.applied:
            lost = host(~each.keep)
            rejects[each.rejection.name] = rows.count(lost) > 0 if each.rejection.scope == "token" else lost
    weights = None if corrected.weighted is None else host(token_weights(rows, corrected))
    keep = np.ones(rows.n_values, np.bool_) if corrected.keep is None else host(corrected.keep)
    n_kept = rows.count(keep)
    weight = n_kept if weights is None else rows.sum(np.where(keep, weights, 0.0))
    return Decision(
        weights=weights,
        keep=keep,
        n_valid=rows.sizes,
        n_kept=n_kept,
        row_weights=weight / np.maximum(n_kept, 1),
        rejected=rejects,
        coefs=None if objective is None else host(token_losses(tokens, corrected, objective).coef),
    )


def storable(weights: Floats) -> tuple[Floats, int]:
    """Weights no larger than MAX_WEIGHT, and how many were."""
    n_larger = int((weights > MAX_WEIGHT).sum())
    return (np.minimum(weights, MAX_WEIGHT), n_larger) if n_larger else (weights, 0)


@np.errstate(all="ignore")
def rule_results(
    batch: Batch, plan: Plan, device: Device, budget_bounds: BudgetBounds
) -> list[tuple[Rejection | Budget, Floats, Flags]]:
    """Each rule of a plan on a batch: its statistic over its units, and what it keeps, bool[V]."""
    if not batch.n_tokens:
        return []
    tokens = Tokens.of(batch, device, plan.mode)
    rejected = correct(tokens, plan, bounds_of_sequences(batch, budget_bounds)).rejected
    return [(each.rejection, host(each.value), host(each.on_tokens(tokens.rows))) for each in rejected]


@np.errstate(all="ignore")
def budget_totals(batch: Batch, plan: Plan, device: Device) -> dict[BudgetGroup, Binned[FloatBits]]:
    """Counts and sums by bucket of every budget's statistic in every group."""
    return {key: binned_values(values) for key, values in _budget_values(batch, plan, device)}


@np.errstate(all="ignore")
def budget_candidates(
    batch: Batch, plan: Plan, device: Device, crossing_of: Mapping[BudgetGroup, Crossing]
) -> dict[BudgetGroup, Floats]:
    """The values in the bucket that holds the bound."""
    return {
        key: values[FLOAT_BITS.bins_of(values) == crossing_of[key].bucket]
        for key, values in _budget_values(batch, plan, device)
    }


def _budget_values(batch: Batch, plan: Plan, device: Device) -> Iterator[tuple[BudgetGroup, Floats]]:
    if not batch.n_tokens:
        return
    lengths = batch.lengths
    tokens, group_index = Tokens.of(batch, device, plan.mode), np.repeat(batch.group_index, lengths)
    order = np.argsort(group_index, kind="stable") if len(batch.group_keys) > 1 else slice(None)
    cuts = np.searchsorted(group_index[order], np.arange(len(batch.group_keys) + 1)).tolist()
    for budget in plan.budgets:
        values = host(budgeted(tokens, budget, plan))[order]
        for key, (start, end) in zip(batch.group_keys, pairwise(cuts), strict=True):
            yield BudgetGroup(budget.name, key), values[start:end]
