"""The bounds of a plan's budgets, in two readings of the dump: `budgets.py` says why two."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.core import budget_search as core
from rlcorr_cli.core import device as devices
from rlcorr_cli.core.observe import Cuts
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.pipeline.scan import Computing, ShardReading, ShardResult, check_rereadable, scan
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.budget_search import Buckets, Crossing, crossing, cut
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.summary import GroupKey

K = TypeVar("K")
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

    leaves = add_up(_each(dump, computing, BudgetTotals(ShardReading.of(dump, computing), plan)))
    batches = add_up({place(key): buckets} for key, buckets in leaves.items())
    at = {where: crossing(one, spent[where[0]]) for where, one in batches.items()}
    crossings = {key: at[place(key)] for key in leaves}
    values: dict[Place, list[Floats]] = {where: [] for where in batches}
    candidates = BudgetCandidates(ShardReading.of(dump, computing), plan, crossings)
    for part in _each(dump, computing, candidates):
        for key, some in (item for one in part for item in one.items()):
            values[place(key)].append(some)
    ends = {where: cut(at[where], values[where], spent[where[0]]) for where in batches}
    cuts: dict[str, dict[GroupKey, float]] = {name: {} for name in spent}
    for key in leaves:
        cuts[key[0]][key[1]] = ends[place(key)][0]
    unmet = {name: sum(not met for where, (_, met) in ends.items() if where[0] == name) for name in spent}
    return Spending(cuts, unmet)


@dataclass(frozen=True)
class BudgetTotals:
    """Shard -> counts and sums by bucket of every budget's statistic in every leaf."""

    reading: ShardReading
    plan: Plan

    def __call__(self, shard: Shard) -> ShardResult[dict[core.Key, Buckets]]:
        """Count one shard."""
        with devices.worker(self.reading.device):
            sound = self.reading.sound_rows(shard, [])
            return ShardResult(add_up(core.totals(rows.batch, self.plan, self.reading.device) for rows in sound))


@dataclass(frozen=True)
class BudgetCandidates:
    """Shard -> for each batch the values in the buckets that hold the bounds."""

    reading: ShardReading
    plan: Plan
    crossings: Mapping[core.Key, Crossing]

    def __call__(self, shard: Shard) -> ShardResult[list[dict[core.Key, Floats]]]:
        """Pick one shard's values."""
        device = self.reading.device
        with devices.worker(device):
            sound = self.reading.sound_rows(shard, [])
            return ShardResult([core.candidates(rows.batch, self.plan, device, self.crossings) for rows in sound])


def add_up(parts: Iterable[Mapping[K, Buckets]]) -> dict[K, Buckets]:
    """The sum by key."""
    totals: dict[K, Buckets] = {}
    for part in parts:
        for key, buckets in part.items():
            totals[key] = totals[key] + buckets if key in totals else buckets
    return totals


def _each(dump: Dump, computing: Computing, work: Callable[[Shard], ShardResult[T]]) -> Iterable[T]:
    """One reading: what the work makes of each shard."""
    return (value for _, value in scan(dump, computing, work))
