"""By what rows are called the worst: a number for each, larger for worse, on which a list over a whole dump is made."""

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import UsageError
from rlcorr_cli.measure.arrays import EXP_LIMIT, Device, host
from rlcorr_cli.measure.correct import MAX_WEIGHT
from rlcorr_cli.measure.decisions import BudgetBounds, decide_batch
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.exact import Floats


def check_rank(rank: str, plan: Plan, *, has_reward: bool) -> None:
    """Refuse to rank by what neither the plan nor the dump has."""
    if rank == "weight" and plan.weighting is None:
        raise UsageError("--rank weight ranks by weights, and the plan gives none.", "Add --preset token_is.")
    if rank == "rejected" and not plan.rules:
        raise UsageError(
            "--rank rejected ranks by what a plan rejects, and it rejects nothing.", "Add --preset geo_rs."
        )
    if rank == "reward" and not has_reward:
        raise UsageError("--rank reward ranks by rewards, and the dump has no such column.", "Add --map reward=COLUMN.")


@np.errstate(all="ignore")
def rank_values(batch: Batch, rank: str, plan: Plan, *, device: Device, budget_bounds: BudgetBounds) -> Floats:
    """How bad each row of a batch is, f64[B]; NaN of a row without a valid token, or without a reward."""
    values, filled = np.full(batch.n_rows, np.nan), batch.filled
    if not batch.n_tokens:
        return values
    tokens, starts = Tokens.of(batch, device, plan.mode), batch.offsets[:-1][filled]
    match rank:
        case "gap":  # the largest |log-ratio| of a token
            values[filled] = np.maximum.reduceat(np.abs(host(tokens.log_ratio)), starts)
        case "k3":  # the mean k3 of its tokens
            limited = tokens.xp.clip(tokens.log_ratio, -EXP_LIMIT, EXP_LIMIT)
            values[filled] = tokens.rows.sum(k3(limited)) / tokens.rows.sizes
        case "weight":  # the largest weight of a token
            weights = decide_batch(batch, plan, device, budget_bounds).weights
            assert weights is not None, "a plan that weights nothing has been refused"
            values[filled] = np.maximum.reduceat(np.minimum(weights, MAX_WEIGHT), starts)
        case "rejected":  # how many tokens are rejected
            decision = decide_batch(batch, plan, device, budget_bounds)
            values[filled] = (decision.n_valid - decision.n_kept)[filled]
        case "length":  # how many valid tokens it has
            values[filled] = batch.lengths[filled]
        case _:  # "reward", of which the least is the worst
            assert batch.reward is not None, "a dump without rewards has been refused"
            values[filled] = -batch.reward[filled]
    return values


def largest(values: Floats, n: int) -> NDArray[np.int64]:
    """Indices of the n largest that are numbers, largest first, the earlier one first among equals."""
    known = np.flatnonzero(~np.isnan(values))
    if n < len(known):
        bound = np.partition(values[known], len(known) - n)[len(known) - n]
        known = known[values[known] >= bound]
    return known[np.argsort(-values[known], kind="stable")][:n]
