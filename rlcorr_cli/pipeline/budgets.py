"""The bounds of a plan's budgets, in two readings of the dump: `budgets.py` says why two."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rlcorr_cli.batch import Batch, GroupKey
from rlcorr_cli.budgets import Buckets, Crossing, crossing, cut
from rlcorr_cli.core import budget as core
from rlcorr_cli.core.observe import Cuts
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.pipeline.scan import Computing, Device, check_rereadable, scan
from rlcorr_cli.plan import Plan
from rlcorr_cli.summary import Floats

T = TypeVar("T")


def cuts(dump: Dump, plan: Plan, computing: Computing, by_batch: bool) -> Cuts:
    """Budget -> leaf -> the largest value that stays, the same for all leaves of a training batch.

    by_batch: a leaf's key starts with its batch; else the whole dump is one.
    """
    if not plan.budgets:
        return {}
    check_rereadable(dump)
    batch_of: Callable[[core.Key], Any] = lambda key: (key[0], key[1][0] if by_batch else None)  # noqa: E731
    bounds = {budget.name: budget.mean_below for budget in plan.budgets}

    def add(parts: Iterable[Mapping[core.Key, Buckets]]) -> dict[core.Key, Buckets]:
        found: dict[core.Key, Buckets] = {}
        for part in parts:
            for key, one in part.items():
                found[key] = found[key] + one if key in found else one
        return found

    leaves = add(_each(dump, computing, lambda batch, device: core.totals(batch, plan, device), add))
    batches: dict[Any, Buckets] = {}
    for key, one in leaves.items():
        batches[batch_of(key)] = batches[batch_of(key)] + one if batch_of(key) in batches else one
    at = {batch: crossing(one, bounds[batch[0]]) for batch, one in batches.items()}
    by_leaf: dict[core.Key, Crossing] = {key: at[batch_of(key)] for key in leaves}
    values: dict[Any, list[Floats]] = {batch: [] for batch in batches}
    for part in _each(dump, computing, lambda batch, device: core.candidates(batch, plan, device, by_leaf), list):
        for one in part:
            for key, some in one.items():
                values[batch_of(key)].append(some)
    ends = {batch: cut(at[batch], values[batch], bounds[batch[0]]) for batch in batches}
    found: dict[str, dict[GroupKey, float]] = {name: {} for name in bounds}
    for key in leaves:
        found[key[0]][key[1]] = ends[batch_of(key)]
    return found


def _each(
    dump: Dump, computing: Computing, one: Callable[[Batch, Device], Any], fold: Callable[[Iterable[Any]], T]
) -> Iterable[T]:
    return (
        result for _, result in scan(dump, computing, lambda batches, device: fold(one(b, device) for b in batches))
    )
