"""A batch's share in finding a plan's budget bounds: `budgets.py` says how they follow."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from rlcorr_cli.batch import Batch
from rlcorr_cli.core.correct import budgeted
from rlcorr_cli.core.ragged import to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.budget_search import Buckets, Crossing
from rlcorr_cli.totals.histogram import Floats, bucket_of
from rlcorr_cli.totals.summary import GroupKey

Key = tuple[str, GroupKey]
"""A budget's name and a leaf."""


def totals(batch: Batch, plan: Plan, device: torch.device) -> dict[Key, Buckets]:
    """Counts and sums by bucket of every budget's statistic in every leaf."""
    return {key: Buckets.of(values) for key, values in _values(batch, plan, device)}


def candidates(batch: Batch, plan: Plan, device: torch.device, at: Mapping[Key, Crossing]) -> dict[Key, Floats]:
    """The values in the bucket that holds the bound."""
    return {key: values[bucket_of(values) == at[key].bucket] for key, values in _values(batch, plan, device)}


def _values(batch: Batch, plan: Plan, device: torch.device) -> Iterator[tuple[Key, Floats]]:
    if not batch.n_tokens:
        return
    lengths = np.diff(batch.offsets)
    tokens, leaf = Tokens.of(batch, device, plan.mode), np.repeat(batch.leaf, lengths)
    for budget in plan.budgets:
        values = to_numpy(budgeted(tokens, budget, plan))
        for i, key in enumerate(batch.keys):
            yield (budget.name, key), values[leaf == i] if len(batch.keys) > 1 else values
