"""A batch's share in finding a plan's budget bounds: `totals/budget_search.py` says how they follow."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from rlcorr_cli.measure.arrays import Device, host
from rlcorr_cli.measure.correct import budgeted
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, FloatBits
from rlcorr_cli.totals.budget_search import BudgetGroup, Crossing, binned_values
from rlcorr_cli.totals.flat import Floats


@np.errstate(all="ignore")
def totals(batch: Batch, plan: Plan, device: Device) -> dict[BudgetGroup, Binned[FloatBits]]:
    """Counts and sums by bucket of every budget's statistic in every group."""
    return {key: binned_values(values) for key, values in _values(batch, plan, device)}


@np.errstate(all="ignore")
def candidates(
    batch: Batch, plan: Plan, device: Device, crossing_of: Mapping[BudgetGroup, Crossing]
) -> dict[BudgetGroup, Floats]:
    """The values in the bucket that holds the bound."""
    return {
        key: values[FLOAT_BITS.bins_of(values) == crossing_of[key].bucket]
        for key, values in _values(batch, plan, device)
    }


def _values(batch: Batch, plan: Plan, device: Device) -> Iterator[tuple[BudgetGroup, Floats]]:
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
