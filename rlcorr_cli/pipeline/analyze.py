"""measure() and analyze(): the one place where io and core meet.

Shards go through an engine; each becomes a small Measured, and Measureds add.  Leaf keys are the values of the
dump's key columns: the training batch first, where weights are normalised per batch, then the groups asked for.
What the totals mean is `report.py`'s.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from rlcorr_cli.batch import Batch
from rlcorr_cli.core import device as devices
from rlcorr_cli.core.observe import Cuts, Observation, layout_of, observe
from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.io.batches import Care
from rlcorr_cli.io.dump import Dump, Request, open_dump
from rlcorr_cli.metrics.settings import Thresholds
from rlcorr_cli.pipeline.bad_rows import Ledger, check_quarantine, ledger
from rlcorr_cli.pipeline.budget_search import Spending, spending
from rlcorr_cli.pipeline.scan import Computing, Device, scan
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.quality.bad_rows import BadRows
from rlcorr_cli.report.build import Grouping, build
from rlcorr_cli.report.report import Report
from rlcorr_cli.totals.measured import Measured, gather
from rlcorr_cli.totals.summary import Layout

NO_COLUMN = "none"
"""What --batch-by takes for: the whole dump is one batch."""

Progress = Callable[[int, int], None]
"""Called after each shard with its tokens and bytes."""

Watch = Callable[[int], AbstractContextManager[Progress]]
"""Given the bytes to come, a context around the reading that yields a Progress."""


@dataclass(frozen=True)
class Reading:
    """Which dump, and how its rows are read and grouped.  columns: canonical -> column.  limit: the first rows only.
    bad: what is done about bad rows."""

    paths: tuple[str, ...]
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    group_by: tuple[str, ...] = ()
    batch_by: str | None = None
    limit: int | None = None
    bad: BadRows = field(default_factory=BadRows)

    @property
    def care(self) -> Care:
        """The same, as io takes it."""
        return Care(self.bad.stops, self.bad.nonfinite == "mask", self.bad.quarantine is not None)


def analyze(
    reading: Reading,
    plan: Plan,
    profile: Profile | None = None,
    thresholds: Thresholds | None = None,
    computing: Computing | None = None,
    seed: int | None = 0,
    notes: tuple[str, ...] = (),
    watch: Watch | None = None,
    pictures: bool = False,
) -> Report:
    """Measure a dump and report it.  notes: what the plan's reader already had to say."""
    started = time.perf_counter()
    thresholds = thresholds or Thresholds()
    dump, by_batch = opened(reading, plan, profile)
    check_quarantine(dump, reading.bad)
    observation = Observation(plan, thresholds, dump.roles.current is not None, seed, pictures)
    computing = computing or Computing()
    spent = spending(dump, plan, computing, by_batch)
    with watched(dump, watch) as progress, ledger(dump, reading.bad) as bad:
        measured, _ = measure(dump, observation, computing, spent.cuts, progress, bad)
        found = reported(dump, reading, observation, profile, measured, by_batch, notes, spent, bad)
        bad.finish()
    return replace(found, seconds=time.perf_counter() - started, pictures=measured.pictures)


def along_steps(reading: Reading, plan: Plan, versions: bool) -> Reading:
    """The reading grouped by step, where it names no groups and the dump has steps; versions: by those, too."""
    if reading.group_by or "-" in reading.paths:
        return reading
    dump = open_dump(reading.paths, Request(reading.format, reading.columns, plan.mode, needs=plan.needs))
    names = ("step", "policy_version") if versions and dump.has("policy_version") else ("step",)
    return replace(reading, group_by=names) if all(dump.has(name) for name in names) else reading


def opened(reading: Reading, plan: Plan, profile: Profile | None) -> tuple[Dump, bool]:
    """The dump, and whether its first key column is the training batch."""
    batch, lead = _batch_key(reading, plan, profile)
    keys = (*batch, *reading.group_by)
    request = Request(reading.format, reading.columns, plan.mode, keys, lead, plan.needs, reading.limit, reading.care)
    dump = open_dump(reading.paths, request)
    return dump, len(dump.roles.keys) > len(reading.group_by)


def watched(dump: Dump, watch: Watch | None) -> AbstractContextManager[Progress | None]:
    """A context around reading the dump once."""
    return watch(sum(shard.n_bytes for shard in dump.shards)) if watch else nullcontext()


def reported(
    dump: Dump,
    reading: Reading,
    observation: Observation,
    profile: Profile | None,
    measured: Measured,
    by_batch: bool,
    notes: tuple[str, ...],
    spent: Spending,
    bad: Ledger,
) -> Report:
    """The report of a dump that has been measured."""
    bad.check(sum(measured.rows.values()))
    plan, settings = observation.plan, _settings(observation.thresholds, observation.seed)
    said = (
        *dump.notes,
        *notes,
        *_batch_notes(reading, plan, dump, measured, by_batch),
        *_spent(plan, spent),
        *settings,
    )
    inputs = dump.inputs(Counter(measured.rows) + bad.rows)
    return build(
        leaves=measured.leaves,
        layout=layout_of(observation),
        replicates=measured.replicates,
        grouping=Grouping(by_batch, reading.group_by),
        plan=plan,
        profile=profile,
        inputs=inputs,
        notes=said,
        problems=bad.problems,
        suspicions=bad.suspected,
        of_whole=measured.whole,
    )


def measure(
    dump: Dump,
    observation: Observation,
    computing: Computing,
    bounds: Cuts,
    progress: Progress | None = None,
    bad: Ledger | None = None,
) -> tuple[Measured, Layout]:
    """Stream the whole dump once; flat memory.  Returns its totals and their layout."""
    layout = layout_of(observation)
    rows, tokens = layout.sums.index("rows"), layout.sums.index("tokens")

    def one(batch: Batch, device: Device) -> Measured:
        observed = observe(batch, observation, device, bounds)
        return Measured(observed.groups, observed.replicates, observed.pictures, whole=observed.whole)

    def work(batches: Iterable[Batch], device: Device) -> Measured:
        found = gather(one(batch, device) for batch in batches)
        if observation.pictures:
            devices.trim()
        return found

    def results() -> Iterable[Measured]:
        for shard, found in scan(dump, computing, work, bad):
            sums = [leaf.sums for leaf in found.leaves.values()]
            if progress is not None:
                progress(int(sum(leaf[tokens] for leaf in sums)), shard.n_bytes)
            yield replace(found, rows={shard.path: int(sum(leaf[rows] for leaf in sums))})

    return gather(results()), layout


def _batch_key(reading: Reading, plan: Plan, profile: Profile | None) -> tuple[tuple[str, ...], str | None]:
    """The batch column to read before the groups': the one asked for, or `step` where there is one.

    A peer's function knows no steps, so with a profile the whole dump is one batch unless a column is named.
    """
    if not plan.batched or reading.batch_by == NO_COLUMN:
        return (), None
    if reading.batch_by is not None:
        return (reading.batch_by,), None
    return (), None if profile else "step"


def _batch_notes(reading: Reading, plan: Plan, dump: Dump, measured: Measured, by_batch: bool) -> list[str]:
    if not plan.batched:
        return [] if reading.batch_by is None else ["--batch-by changes nothing: the plan looks at no batches."]
    does = ["Weights are divided by the mean of their own batch"] * plan.normalizes
    does += [f"{budget.name} is kept in each batch" for budget in plan.budgets]
    if by_batch:
        batches = len({key[0] for key in measured.leaves})
        found = "one value" if batches == 1 else f"{batches:,} values"
        return [f"{what}: {found} of {dump.roles.keys[0]}." for what in does]
    return [f"{what}, over the whole dump as one; --batch-by COLUMN makes batches." for what in does]


def _spent(plan: Plan, spent: Spending) -> list[str]:
    """Which values each budget let stay."""
    notes: list[str] = []
    for budget in plan.budgets:
        ends = sorted(set(spent.cuts[budget.name].values()))
        if not ends or ends[0] == math.inf:
            notes.append(f"{budget.name}: the mean {budget.statistic} is below {budget.mean_below:g} as it is.")
            continue
        where = " in the tightest batch" if len(ends) > 1 else ""
        notes.append(f"{budget.name} keeps {budget.statistic} up to {ends[0]:.4g}{where}.")
        unmet = f"{spent.unmet[budget.name]} batches not even the smallest is below {budget.mean_below:g}"
        if spent.unmet[budget.name]:
            notes.append(f"{budget.name}: in {unmet}; only that stays.")
    return notes


def _settings(thresholds: Thresholds, seed: int | None) -> list[str]:
    """What was set away from its default and no other part of a report says."""
    default = Thresholds()
    said = (
        (thresholds.extreme_ratio != default.extreme_ratio, f"extreme ratio {thresholds.extreme_ratio:g}"),
        (thresholds.ppo_clip != default.ppo_clip, f"PPO clip {thresholds.ppo_clip:g}"),
        (bool(seed), f"bootstrap seed {seed}"),
    )
    chosen = ", ".join(words for differs, words in said if differs)
    return [f"Set by option: {chosen}."] if chosen else []
