"""measure() and analysis_totals(): a dump's totals, and all else that its report says.

Shards go through an engine; each becomes a small Measured, and Measureds add.  A group's key is its training batch
(None where the plan looks at none, or the dump has no column of them), then its values of the columns asked for, then
its step where `analyze` added the step to these.  What the totals mean is decided in `results/build.py`, by way of
`results/saved_runs.py`.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.observe import BudgetBounds, Observation, observe
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling
from rlcorr_cli.metrics.diagnostics import DiagnosticSettings
from rlcorr_cli.metrics.framework_names import CANONICAL
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.names import STEPS
from rlcorr_cli.reading.request import NO_BATCH, PlanColumns, ReadRequest
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.runs.earlier_readings import BudgetThresholds, count_rollouts, search_budgets
from rlcorr_cli.runs.reading import (
    OpenDump,
    Reading,
    ShardReading,
    ShardWork,
    anomalies_of,
    check_quarantine,
    one_reading,
)
from rlcorr_cli.totals.earlier_readings import RolloutTotals
from rlcorr_cli.totals.measured import MOST_COMPARED, Measured, MeasuredSum, check_few, check_resampled
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_sample import MOST_TOKENS

MANY_FILES = 10
"""So many files are more often of several steps than of one."""


def analysis_totals(
    read: OpenDump,
    chosen: ChosenPlan,
    *,
    settings: DiagnosticSettings | None = None,
    seed: int | None = 0,
    pictures: bool = False,
    refuse_many_groups: bool = False,
    group_intervals: bool = False,
    follows_steps: bool = False,
    objective: Objective | None = None,
) -> RunTotals:
    """Measure a dump, which was opened for this plan and this objective.

    refuse_many_groups: whether a dump of more groups than are resampled is refused.  group_intervals: whether groups
    that are asked for have intervals.  follows_steps: whether steps are told apart where the dump has them, beside the
    groups that are asked for.
    """
    dump, computing = read.dump, read.computing
    asked = dump.request.group_by
    adds_step = follows_steps and dump.step is not None and not any(name in STEPS for name in asked)
    if adds_step:
        dump = dump.with_request(group_by=(*asked, STEPS[0]))
    step_at = next((place for place, name in enumerate(dump.request.group_by) if name in STEPS), None)
    plan = chosen.plan
    check_quarantine(dump)
    rollouts = count_rollouts(dump, computing)
    observation = Observation(
        plans=(plan,),
        settings=settings or DiagnosticSettings(),
        seed=seed,
        pictures=pictures,
        objectives={} if objective is None else {plan: objective},
        by_group=((read.saved or pictures) and bool(dump.request.group_by)) or (group_intervals and bool(asked)),
        n_asked=len(asked) or None,
        step_at=step_at,
        has_advantages=dump.has_advantages,
        by_rollout=rollouts is not None,
    )
    anomalies = anomalies_of(dump, computing)
    budgets = search_budgets(dump, plan, computing)
    with one_reading(replace(read, dump=dump)) as reading:
        measured = measure(
            reading,
            observation,
            bounds=budgets.bounds,
            rollouts=rollouts,
            sampling=sampling_of(dump, plan.mode),
            refuse_many_groups=refuse_many_groups,
            adds_step=adds_step,
        )
        return run_totals(reading, chosen, measured, budgets=budgets, anomalies=anomalies)


def sampling_of(dump: Dump, mode: Mode = "decoupled", groups: tuple[str, ...] = ()) -> Sampling:
    """How the rows of a dump are sampled: as many as its request says.

    groups: the columns that rows are grouped by, where the sample is to tell groups apart.
    """
    return Sampling(mode=mode, groups=groups, most=dump.request.sample or MOST_TOKENS)


def step_groups(dump: Dump) -> tuple[str, ...]:
    """What `plot` groups a dump by: what was asked for, else by step where it has steps."""
    if dump.request.group_by or dump.is_piped or not dump.has("step"):
        return dump.request.group_by
    return ("step",)


def opened(
    request: ReadRequest,
    chosen: ChosenPlan,
    objective: Objective | None = None,
    *,
    wanted: tuple[str, ...] = (),
    clusters: bool = False,
) -> Dump:
    """The dump with what the plan and an objective read of it.  wanted: canonical columns read if it has them.
    clusters: as of PlanColumns."""
    columns = plan_columns(request, chosen, objective, clusters=clusters)
    return open_dump(request, replace(columns, wanted=(*columns.wanted, *wanted)))


def run_totals(
    reading: Reading,
    chosen: ChosenPlan,
    measured: Measured,
    *,
    budgets: BudgetThresholds,
    anomalies: tuple[AnomalyFinding, ...],
) -> RunTotals:
    """A dump's totals with all else that its report says."""
    reading.check()
    dump = reading.dump
    return RunTotals(
        measured=measured,
        plan=chosen.plan,
        profile=CANONICAL if chosen.profile is None else chosen.profile.name,
        inputs=reading.inputs,
        notes=(*dump.notes, *chosen.notes, *_analysis_notes(dump, chosen.plan, measured, budgets)),
        problems=reading.log.counts,
        anomalies=anomalies,
        search_notes=dump.search_notes,
        drawn_by=tuple(name for name, column in dump.marks.items() if column in dump.roles.drawn_by),
    )


def measure(
    reading: Reading,
    observation: Observation,
    *,
    bounds: BudgetBounds,
    rollouts: RolloutTotals | None = None,
    sampling: Sampling | None = None,
    refuse_many_groups: bool = False,
    adds_step: bool = False,
) -> Measured:
    """Stream the whole dump once; flat memory.  Returns its totals.

    rollouts: those that have several samples, where the observation is by rollout.  sampling: how rows are sampled, in
    which the cause of the gap is sought; None for none.  refuse_many_groups: as of `analysis_totals`.  adds_step:
    whether the last of the groups' columns was not asked for.
    """
    dump = reading.dump
    work = MeasureShard(
        reading=ShardReading.of(dump, reading.computing),
        observation=observation,
        budget_bounds=bounds,
        provenance=replace(provenance_of(dump, observation, bounds), adds_step=adds_step),
        sampling=sampling,
        rollouts=rollouts,
    )
    gathering = MeasuredSum()
    for _, part in reading.each(work):
        gathering.add(part)
        if sampling is not None:
            sampling.least.raise_to(gathering.samples.level)
        if refuse_many_groups:
            check_resampled(gathering.group_replicates)
        if observation.compares and dump.request.group_by:
            check_few(gathering.n_groups, (dump.roles.batch, *dump.request.group_by), MOST_COMPARED, "compared")
    return gathering.measured


def provenance_of(dump: Dump, observation: Observation, budget_bounds: BudgetBounds) -> Provenance:
    """What the totals of a dump are of; an objective's settings by dotted names."""
    of_objectives: dict[str, Any] = {}
    for plan, objective in observation.objectives.items():
        prefix = f"objective.{plan.name}." if len(observation.plans) > 1 else "objective."
        of_objectives |= {f"{prefix}{name}": value for name, value in objective.to_dict().items()}
    bounds = sorted(
        (name, repr(key), value) for name, of_groups in budget_bounds.items() for key, value in of_groups.items()
    )
    return Provenance(
        plans=Provenance.by_id(*observation.plans),
        settings={
            **asdict(observation.settings),
            "cluster_by": dump.cluster,
            "pictures": observation.pictures,
            **({} if dump.request.sample is None else {"sample": dump.request.sample}),
            **({"by_rollout": True} if observation.by_rollout else {}),
            **of_objectives,
        },
        columns=dump.columns,
        batch=dump.roles.batch,
        groups=dump.request.group_by,
        seed=observation.seed,
        budget_bounds=hashlib.sha256(repr(bounds).encode()).hexdigest()[:16] if bounds else "",
    )


@frozen(kw_only=True)
class MeasureShard(ShardWork[Measured]):
    """Shard -> its totals.

    sampling: how rows are sampled; None for no sample.  rollouts: those that have several samples, or None.
    """

    observation: Observation
    budget_bounds: BudgetBounds
    provenance: Provenance
    sampling: Sampling | None = None
    rollouts: RolloutTotals | None = None

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> Measured:
        """Measure one shard."""
        device = self.reading.device
        sampler = None if self.sampling is None else RowSampler(self.sampling, self.reading.reader.roles)
        running = MeasuredSum()
        for rows in batches:
            observed = observe(rows.batch, self.observation, device, self.budget_bounds, rollouts=self.rollouts)
            running.add(
                Measured(
                    provenance=self.provenance,
                    totals=observed.totals,
                    rows={shard.path: rows.batch.n_rows},
                    replicates=observed.replicates,
                    pictures=observed.pictures,
                    whole=observed.whole,
                    group_replicates=observed.group_replicates,
                    step_clusters=observed.step_clusters,
                )
            )
            if sampler is not None:
                sampler.take(rows)
        return replace(
            running.measured,
            provenance=running.provenance or self.provenance,
            covered=frozenset({shard.id}),
            sample=None if sampler is None else sampler.sample,
        )


def plan_columns(
    request: ReadRequest, chosen: ChosenPlan, objective: Objective | None = None, *, clusters: bool = False
) -> PlanColumns:
    """What the plan reads, and an objective; training batches are the column asked for, or `step` where there is one.

    A framework's own metrics (--profile) know no steps: they take the whole dump as one batch unless a column is named.
    """
    plan, named = chosen.plan, request.batch_by
    batch = None
    if (plan.batched or objective is not None) and named != NO_BATCH:
        batch = named or (None if chosen.profile else "step")
    needed = dict.fromkeys((*plan.needs, *(() if objective is None else ("advantages",))))
    by_rollout = chosen.profile is not None and chosen.profile.by_rollout
    return PlanColumns(
        mode=plan.mode,
        needed=tuple(needed),
        wanted=("rollout_ids",) if by_rollout else (),
        row_advantage=True,
        levels=True,
        batch=batch,
        batch_required=named is not None,
        clusters=clusters,
    )


def _analysis_notes(dump: Dump, plan: Plan, measured: Measured, budgets: BudgetThresholds) -> Iterator[str]:
    """Notes: --batch-by without an effect, the bound of each budget, and rollouts uncounted on standard input."""
    of_objective = measured.provenance is not None and "objective.name" in measured.provenance.settings
    if not plan.batched and not of_objective and dump.request.batch_by is not None:
        yield "The column of batches has no effect: the plan does not use batches."
    if dump.step is None and len(dump.sources) >= MANY_FILES:
        yield (
            f"{len(dump.sources)} files and no column step: the time course is not shown. Files called 12.jsonl or "
            "step_12.jsonl tell their steps."
        )
    for budget in plan.budgets:
        ends = sorted(set(budgets.bounds[budget.name].values()))
        if not ends or ends[0] == math.inf:
            yield f"{budget.name}: the mean {budget.statistic} is below {budget.mean_below:g} as it is."
            continue
        where = " in the tightest batch" if len(ends) > 1 else ""
        yield f"{budget.name} keeps {budget.statistic} up to {ends[0]:.4g}{where}."
        unmet = f"{budgets.unmet[budget.name]} batches not even the smallest is below {budget.mean_below:g}"
        if budgets.unmet[budget.name]:
            yield f"{budget.name}: in {unmet}; only that stays."
    if dump.roles.rollouts and dump.is_piped:
        yield (
            f"{dump.roles.rollouts[0]} is not looked at, which takes a reading of its own, and standard input can be "
            "read only once: each sample counts as a rollout. Save it to a file if some have several."
        )
