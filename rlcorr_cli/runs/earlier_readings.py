"""What is read of a dump before it is measured: the bounds of a plan's budgets, in two readings, and in one the
rollouts, where a framework's averages are by rollout.

A budget's bound is exact only with the values beside it in order, and a dump's values do not fit in memory: the first
reading counts them by bucket and so finds the one bucket that a bound lies in, the second brings the values of that
bucket.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeVar

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import budget_search as bins
from rlcorr_cli.measure.observe import BudgetBounds
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import Reading, ShardReading, ShardWork, check_rereadable
from rlcorr_cli.totals.bins import Binned, FloatBits
from rlcorr_cli.totals.budget_search import BudgetBatch, BudgetGroup, Crossing, crossing, cut
from rlcorr_cli.totals.exact import Floats
from rlcorr_cli.totals.measured import check_few
from rlcorr_cli.totals.rollouts import RolloutTotals
from rlcorr_cli.totals.totals import GroupKey

K = TypeVar("K", bound=Hashable)


@frozen
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
    by_group: dict[BudgetGroup, Binned[FloatBits]] = {}
    counting = BudgetTotals(reading=ShardReading.of(dump, computing), plan=plan)
    for _, part in Reading.alone(dump, computing).each(counting):
        add_to(by_group, part)
        check_few(len(by_group) // len(plan.budgets), (dump.roles.batch, *dump.request.group_by))
    batch_of = {group: group.of_batch for group in by_group}
    totals_of = add_up({batch_of[group]: totals} for group, totals in by_group.items())
    crossing_of = {batch: crossing(totals, limit_of[batch.budget]) for batch, totals in totals_of.items()}
    group_crossings = {group: crossing_of[batch] for group, batch in batch_of.items()}
    candidates: dict[BudgetBatch, list[Floats]] = defaultdict(list)
    picking = BudgetCandidates(reading=ShardReading.of(dump, computing), plan=plan, crossings=group_crossings)
    for _, of_shard in Reading.alone(dump, computing).each(picking):
        for group, values in (pair for values_of in of_shard for pair in values_of.items()):
            candidates[batch_of[group]].append(values)
    threshold_of = {batch: cut(crossing_of[batch], candidates[batch], limit_of[batch.budget]) for batch in totals_of}
    budget_bounds: dict[str, dict[GroupKey, float]] = {name: {} for name in limit_of}
    for group, batch in batch_of.items():
        budget_bounds[group.budget][group.group], _ = threshold_of[batch]
    unmet = Counter(batch.budget for batch, (_, is_met) in threshold_of.items() if not is_met)
    return BudgetThresholds(budget_bounds, {name: unmet[name] for name in limit_of})


@frozen(kw_only=True)
class BudgetTotals(ShardWork[dict[BudgetGroup, Binned[FloatBits]]]):
    """Shard -> counts and sums by bucket of every budget's statistic in every group."""

    plan: Plan

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> dict[BudgetGroup, Binned[FloatBits]]:
        """Count one shard."""
        return add_up(bins.totals(rows.batch, self.plan, self.reading.device) for rows in batches)


@frozen(kw_only=True)
class BudgetCandidates(ShardWork[list[dict[BudgetGroup, Floats]]]):
    """Shard -> for each batch the values in the buckets that hold the bounds."""

    plan: Plan
    crossings: Mapping[BudgetGroup, Crossing]

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> list[dict[BudgetGroup, Floats]]:
        """Pick one shard's values."""
        return [bins.candidates(rows.batch, self.plan, self.reading.device, self.crossings) for rows in batches]


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


def count_rollouts(dump: Dump, computing: Computing) -> RolloutTotals | None:
    """Those of several samples; None where the dump is read for none, or can be read only once."""
    if not dump.roles.rollouts or dump.is_piped:
        return None
    counting = CountRollouts(reading=ShardReading.of(dump, computing))
    return RolloutTotals.total(part for _, part in Reading.alone(dump, computing).each(counting)).shared()


@frozen(kw_only=True)
class CountRollouts(ShardWork[RolloutTotals]):
    """Shard -> the rollouts of its sound rows."""

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> RolloutTotals:
        """Count one shard."""
        read = (rows.batch for rows in batches)
        return RolloutTotals.total(
            RolloutTotals.of(batch.rollout_keys, batch.lengths) for batch in read if batch.rollout_keys is not None
        )
