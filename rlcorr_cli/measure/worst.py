"""By what rows are called the worst: a number for each, larger for worse, on which a list over a whole dump is made."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import UsageError
from rlcorr_cli.measure.arrays import EXP_LIMIT, Device, host
from rlcorr_cli.measure.decisions import decide_batch
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Batch, Decision
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.totals import GroupKey

BudgetBounds = Mapping[str, Mapping[GroupKey, float]]


def _gap(batch: Batch, tokens: Tokens, decision: Decision) -> Floats:
    """The largest |log-ratio| of a token."""
    return np.maximum.reduceat(np.abs(host(tokens.log_ratio)), batch.offsets[:-1][batch.filled])


def _k3(batch: Batch, tokens: Tokens, decision: Decision) -> Floats:
    """The mean k3 of its tokens."""
    limited = tokens.xp.clip(tokens.log_ratio, -EXP_LIMIT, EXP_LIMIT)
    return np.asarray(tokens.rows.sum(k3(limited)) / tokens.rows.sizes)


def _weight(batch: Batch, tokens: Tokens, decision: Decision) -> Floats:
    """The largest weight of a token."""
    assert decision.weights is not None, "a plan that weights nothing has been refused"
    return np.maximum.reduceat(decision.weights, batch.offsets[:-1][batch.filled])


def _rejected(batch: Batch, tokens: Tokens, decision: Decision) -> Floats:
    """How many tokens are rejected."""
    return (decision.n_valid - decision.n_kept)[batch.filled]


def _length(batch: Batch, tokens: Tokens, decision: Decision) -> Floats:
    """How many valid tokens it has."""
    return batch.lengths[batch.filled].astype(np.float64)


def _reward(batch: Batch, tokens: Tokens, decision: Decision) -> Floats:
    """The least reward is the worst."""
    assert batch.reward is not None, "a dump without rewards has been refused"
    return -batch.reward[batch.filled]


RANKS: dict[str, Callable[[Batch, Tokens, Decision], Floats]] = {
    "gap": _gap,
    "k3": _k3,
    "weight": _weight,
    "rejected": _rejected,
    "length": _length,
    "reward": _reward,
}
"""Name -> a number for each non-empty sequence, larger for worse."""


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
    values = np.full(batch.n_rows, np.nan)
    if batch.n_tokens:
        tokens = Tokens.of(batch, device, plan.mode)
        values[batch.filled] = RANKS[rank](batch, tokens, decide_batch(batch, plan, device, budget_bounds))
    return values


def largest(values: Floats, n: int) -> NDArray[np.int64]:
    """Indices of the n largest that are numbers, largest first, the earlier one first among equals."""
    known = np.flatnonzero(~np.isnan(values))
    if n < len(known):
        bound = np.partition(values[known], len(known) - n)[len(known) - n]
        known = known[values[known] >= bound]
    return known[np.argsort(-values[known], kind="stable")][:n]
