"""The bounds of a plan's budgets, in two readings of the dump: `budgets.py` says why two."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlcorr_cli.batch import Batch, GroupKey
from rlcorr_cli.core import budget_search as core
from rlcorr_cli.core.observe import Cuts
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.pipeline.scan import Computing, Device, check_rereadable, scan
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.budget_search import Buckets, crossing, cut
from rlcorr_cli.totals.histogram import Floats

T = TypeVar("T")
Place = tuple[str, Any]
"""A budget's name and a training batch (None: the whole dump)."""


@dataclass(frozen=True)
class Spending:
    """cuts: the largest value that stays, by budget and leaf.  unmet: by budget, batches whose smallest value is above
    it already."""

    cuts: Cuts = field(default_factory=dict[str, dict[GroupKey, float]])
    unmet: Mapping[str, int] = field(default_factory=dict[str, int])


def spending(dump: Dump, plan: Plan, computing: Computing) -> Spending:
    """What each budget of a plan lets stay, the same for all leaves of a training batch (or of the whole dump)."""
    if not plan.budgets:
        return Spending()
    check_rereadable(dump)
    spent = {budget.name: budget.mean_below for budget in plan.budgets}

    def place(key: core.Key) -> Place:
        return key[0], key[1][0] if dump.by_batch else None

    leaves = _added(_each(dump, computing, lambda batch, device: core.totals(batch, plan, device), _added))
    batches = _added({place(key): one} for key, one in leaves.items())
    at = {where: crossing(one, spent[where[0]]) for where, one in batches.items()}
    crossings = {key: at[place(key)] for key in leaves}
    values: dict[Place, list[Floats]] = {where: [] for where in batches}
    for part in _each(dump, computing, lambda batch, device: core.candidates(batch, plan, device, crossings), list):
        for key, some in (item for one in part for item in one.items()):
            values[place(key)].append(some)
    ends = {where: cut(at[where], values[where], spent[where[0]]) for where in batches}
    cuts: dict[str, dict[GroupKey, float]] = {name: {} for name in spent}
    for key in leaves:
        cuts[key[0]][key[1]] = ends[place(key)][0]
    unmet = {name: sum(not met for where, (_, met) in ends.items() if where[0] == name) for name in spent}
    return Spending(cuts, unmet)


def _added(parts: Iterable[Mapping[Any, Buckets]]) -> dict[Any, Buckets]:
    found: dict[Any, Buckets] = {}
    for part in parts:
        for key, one in part.items():
            found[key] = found[key] + one if key in found else one
    return found


def _each(
    dump: Dump, computing: Computing, one: Callable[[Batch, Device], Any], fold: Callable[[Iterable[Any]], T]
) -> Iterable[T]:
    """One reading: what `fold` makes of each shard's batches."""
    return (found for _, found in scan(dump, computing, lambda batches, device: fold(one(b, device) for b in batches)))
