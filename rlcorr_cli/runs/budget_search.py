"""The bounds of a plan's budgets, in two readings of the dump.

A bound is exact only with the values beside it in order, and a dump's values do not fit in memory: the first reading
counts them by bucket and so finds the one bucket that a bound lies in, the second brings the values of that bucket.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure import budget_search as bins
from rlcorr_cli.measure.observe import BudgetBounds
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.runs.scan import Computing, ShardNotes, ShardReading, ShardResult, check_rereadable, scan
from rlcorr_cli.totals.bins import Binned, FloatBits
from rlcorr_cli.totals.budget_search import BudgetBatch, BudgetGroup, Crossing, crossing, cut
from rlcorr_cli.totals.exact import Floats
from rlcorr_cli.totals.measured import check_few
from rlcorr_cli.totals.totals import GroupKey

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class BudgetThresholds:
    """bounds: the largest value that stays, by budget and group.  unmet: by budget, batches whose smallest value is
    above it already."""

    bounds: BudgetBounds = field(default_factory=dict[str, dict[GroupKey, float]])
    unmet: Mapping[str, int] = field(default_factory=dict[str, int])


def search_budgets(dump: Dump, plan: Plan, computing: Computing) -> BudgetThresholds:
    """What each budget of a plan lets stay, the same for all groups of a training batch."""
    if not plan.budgets:
        return BudgetThresholds()
    check_rereadable(dump)
    limit_of = {budget.name: budget.mean_below for budget in plan.budgets}
    # Each reading has a ShardReading of its own, which remembers the row ids that it met.
    by_group = _totals(dump, plan, computing)
    batch_of = {group: group.of_batch for group in by_group}
    totals_of = add_up({batch_of[group]: totals} for group, totals in by_group.items())
    crossing_of = {batch: crossing(totals, limit_of[batch.budget]) for batch, totals in totals_of.items()}
    group_crossings = {group: crossing_of[batch] for group, batch in batch_of.items()}
    candidates: dict[BudgetBatch, list[Floats]] = defaultdict(list)
    picking = BudgetCandidates(ShardReading.of(dump, computing), plan, group_crossings)
    for values_of in itertools.chain.from_iterable(_each(dump, computing, picking)):
        for group, values in values_of.items():
            candidates[batch_of[group]].append(values)
    threshold_of = {batch: cut(crossing_of[batch], candidates[batch], limit_of[batch.budget]) for batch in totals_of}
    budget_bounds: dict[str, dict[GroupKey, float]] = {name: {} for name in limit_of}
    for group, batch in batch_of.items():
        budget_bounds[group.budget][group.group], _ = threshold_of[batch]
    unmet = Counter(batch.budget for batch, (_, is_met) in threshold_of.items() if not is_met)
    return BudgetThresholds(budget_bounds, {name: unmet[name] for name in limit_of})


def _totals(dump: Dump, plan: Plan, computing: Computing) -> dict[BudgetGroup, Binned[FloatBits]]:
    """Counts and sums by bucket of every group of the dump, if they are not too many."""
    totals: dict[BudgetGroup, Binned[FloatBits]] = {}
    for part in _each(dump, computing, BudgetTotals(ShardReading.of(dump, computing), plan)):
        add_to(totals, part)
        check_few(len(totals) // len(plan.budgets), (dump.roles.batch, *dump.request.group_by))
    return totals


@dataclass(frozen=True)
class BudgetTotals:
    """Shard -> counts and sums by bucket of every budget's statistic in every group."""

    reading: ShardReading
    plan: Plan

    def __call__(self, shard: Shard) -> ShardResult[dict[BudgetGroup, Binned[FloatBits]]]:
        """Count one shard."""
        device, beside = self.reading.device, ShardNotes()
        with devices.worker(device):
            sound = self.reading.sound_rows(shard, beside)
            totals = add_up(bins.totals(rows.batch, self.plan, device) for rows in sound)
        return ShardResult(totals, beside)


@dataclass(frozen=True)
class BudgetCandidates:
    """Shard -> for each batch the values in the buckets that hold the bounds."""

    reading: ShardReading
    plan: Plan
    crossings: Mapping[BudgetGroup, Crossing]

    def __call__(self, shard: Shard) -> ShardResult[list[dict[BudgetGroup, Floats]]]:
        """Pick one shard's values."""
        device, beside = self.reading.device, ShardNotes()
        with devices.worker(device):
            sound = self.reading.sound_rows(shard, beside)
            candidates = [bins.candidates(rows.batch, self.plan, device, self.crossings) for rows in sound]
        return ShardResult(candidates, beside)


def add_up(parts: Iterable[Mapping[K, Binned[FloatBits]]]) -> dict[K, Binned[FloatBits]]:
    """The sum by key."""
    totals: dict[K, Binned[FloatBits]] = {}
    for part in parts:
        add_to(totals, part)
    return totals


def add_to(totals: dict[K, Binned[FloatBits]], part: Mapping[K, Binned[FloatBits]]) -> None:
    """Add more by key, in place."""
    for key, binned in part.items():
        totals[key] = totals[key] + binned if key in totals else binned


def _each(dump: Dump, computing: Computing, work: Callable[[Shard], ShardResult[T]]) -> Iterable[T]:
    """One reading: what the work makes of each shard."""
    return (value for _, value in scan(dump, computing, work))
