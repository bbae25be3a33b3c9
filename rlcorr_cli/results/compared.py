"""A Comparison: what each of several plans makes of one dump, and which to take; as values, for any form to show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from rlcorr_cli.causes.diagnosis import unexplained
from rlcorr_cli.causes.search import search
from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.advantages import FEWEST_EFFECTIVE, shift_and_error
from rlcorr_cli.metrics.comparison import advantages_differ, compared_intervals, compared_values
from rlcorr_cli.metrics.diagnostics import diagnostics, metric_intervals
from rlcorr_cli.metrics.table import MetricTable
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records.fields import HIDDEN, Form, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.build import course_of_sample, sequence_distances
from rlcorr_cli.results.course import Course
from rlcorr_cli.results.groups import (
    UNLISTED,
    Clusters,
    Counts,
    GroupKey,
    GroupObjective,
    Inputs,
    Intervals,
    Metrics,
    Suspicions,
    by_batch,
    counts as counts_of,
    key_order,
    of_inputs,
    with_bad_rows,
    with_whole,
)
from rlcorr_cli.results.objective import ObjectiveReport, group_objectives, objective_report
from rlcorr_cli.results.recommend import KEEP, Evidence, PlanColumns, PlanValues, Recommendation, recommend
from rlcorr_cli.results.rules import RULES, Section, judge
from rlcorr_cli.results.saved_runs import MeasuredRun
from rlcorr_cli.results.story import Story, story_of
from rlcorr_cli.results.suggest import GeometricBounds, geometric_bounds
from rlcorr_cli.results.verdict import verdict
from rlcorr_cli.totals.comparison import (
    COMPARISON,
    ComparedTotals,
    divides_by_mean,
    normalized,
    uncorrected,
    weight_means,
)
from rlcorr_cli.totals.measured import Measured
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import Numbers, Values, finite

NO_SHIFT = "Advantage shift not computed: {} (`rlcorr explain shift`)."
Sort = Literal["worth", "info", "kept", "name"]


@frozen
class NamedPlan:
    """A plan to compare, with its other names; is_named: whether it was asked for by name."""

    name: str
    plan: Plan
    also: tuple[str, ...] = ()
    is_named: bool = False


@frozen
class Skipped(Record):
    """A plan that the dump cannot be compared by, and why."""

    name: str
    why: str


@frozen
class GroupPlan(Record):
    """What a plan makes of one group of rows."""

    name: str
    values: PlanColumns
    objective: GroupObjective


@frozen(kw_only=True)
class ComparedGroup(Record):
    """The whole dump, with an empty key, or one group of its rows.  metrics: its diagnostics, with advantage_shift."""

    key: GroupKey
    counts: Counts
    metrics: Metrics
    plans: Annotated[tuple[PlanValues, ...], HIDDEN]
    recommendation: Recommendation

    @property
    @computed(name="plans", after="metrics")
    def plan_values(self) -> tuple[GroupPlan, ...]:
        """The plans as a group's JSON has them."""
        return tuple(GroupPlan(each.name, each.values, each.objective_metrics) for each in self.plans)


@frozen(kw_only=True)
class Comparison(Output):
    """Plans compared on one dump; see the module.  problems: as of a Report.  intervals: of the dump's diagnostics.
    clusters, story: as of a Report."""

    OUTPUT = "compare"
    inputs: Inputs
    clusters: Clusters | None = None
    intervals: Intervals
    groups: tuple[ComparedGroup, ...]
    skipped: tuple[Skipped, ...]
    story: Story = field(default_factory=Story)
    anomalies: Suspicions
    problems: Problems
    notes: tuple[str, ...]

    whole: Annotated[ComparedGroup, HIDDEN]
    seconds: Annotated[float, HIDDEN] = 0.0
    totals: Annotated["ComparisonRun | None", HIDDEN] = None
    """What it was made of, where that was asked for."""
    sort: Annotated[Sort, HIDDEN] = "worth"
    """The order of the plans in text."""

    @property
    @computed(after="inputs")
    def counts(self) -> Counts:
        """Of the whole dump."""
        return self.whole.counts

    @property
    @computed("With advantage_shift, of no correction.", after="clusters")
    def metrics(self) -> Metrics:
        """Of the whole dump."""
        return self.whole.metrics

    @property
    @computed("In the order in which they were named or are listed.", after="intervals")
    def plans(self) -> Annotated[tuple[PlanValues, ...], Form(least=1)]:
        """What each plan makes of the whole dump."""
        return self.whole.plans

    @property
    @computed(after="plans")
    def recommendation(self) -> Recommendation:
        """Of the whole dump."""
        return self.whole.recommendation

    def __repr__(self) -> str:
        plans = plural(len(self.plans), "plan")
        return f"<Comparison of {of_inputs(self.inputs)}: {plans}. {self.recommendation.headline}>"

    @property
    def disagreeing(self) -> tuple[ComparedGroup, ...]:
        """Groups in which the recommended plan is neither taken nor as good as the one that is."""
        plan = self.recommendation.plan
        return tuple(
            group
            for group in self.groups
            if group.recommendation.plan is not None
            and plan not in (group.recommendation.plan, *group.recommendation.ties)
        )

    @property
    def undecided(self) -> tuple[ComparedGroup, ...]:
        """Groups that cannot tell."""
        return tuple(group for group in self.groups if group.recommendation.plan is None)

    def sorted_plans(self, by: Sort | None = None) -> tuple[PlanValues, ...]:
        """The plans by a column, the largest first, or by name; None for the order of the comparison."""
        sort = by or self.sort
        if sort == "name":
            return tuple(sorted(self.whole.plans, key=lambda plan: plan.name))
        # Equals but for rounding stay in their order.
        return tuple(sorted(self.whole.plans, key=lambda plan: -float(f"{plan.values[sort] or 0.0:.12g}")))


@frozen(kw_only=True)
class ComparisonRun(MeasuredRun):
    """What one run of `compare` measured, or several together.

    objectives: that of each plan, if any.  has_advantages: whether the dump has a column of them.
    """

    command: ClassVar[str] = "compare"
    plans: tuple[NamedPlan, ...]
    skipped: tuple[Skipped, ...] = ()
    objectives: tuple[Objective, ...] = ()
    has_advantages: bool = False

    def check_unpacked(self) -> None:
        """A ValueError of objectives that are not of the plans."""
        if not self.plans or len(self.objectives) not in (0, len(self.plans)):
            raise ValueError("there are not as many objectives as plans")

    @property
    def n_budgets(self) -> int:
        """How many bounds the data set."""
        return sum(len(each.plan.budgets) for each in self.plans)

    def grouped_by(self, columns: Sequence[str]) -> "ComparisonRun":
        """The same by some of the columns that it is grouped by."""
        places = self.provenance.places_of(columns)
        totals = self.measured.totals
        if totals is not None:
            totals = totals.regrouped(lambda key: (key[0], *(key[1 + place] for place in places)))
        provenance = replace(self.provenance, groups=tuple(columns))
        return replace(self, measured=replace(self.measured, totals=totals, provenance=provenance))


def comparison_of(run: ComparisonRun) -> Comparison:
    """The comparison of a run.  A dump without rows or without a valid token is a DataError."""
    measured, plans, anomalies = run.measured, run.plans, run.anomalies
    batch_by, group_by = run.provenance.batch, run.provenance.groups
    mode = plans[0].plan.mode
    good = counts_of(None if measured.totals is None else measured.totals.numbers.whole, mode)
    counts = with_bad_rows(good, run.problems.n_rows, run.inputs)
    assert measured.totals is not None, "a dump with a valid token has totals"
    totals = normalized(measured.totals, [named.plan for named in plans])
    whole_total = with_whole(totals.whole, measured.whole)
    n_batches = len({batch for batch, *_ in totals.keys})
    clusters = Clusters.of(run.provenance.settings["cluster_by"], measured.replicates.get(mode))
    metrics = diagnostics(Numbers.of_mode(whole_total, mode, 0))
    drawn_intervals = metric_intervals(metrics, measured.replicates.get(mode))
    diagnosis = None if measured.sample is None else search(measured.sample).diagnosis
    steps = None if measured.sample is None else course_of_sample(measured.sample)
    story = Story() if diagnosis is None else story_of(anomalies, diagnosis)
    whole = _group(
        {},
        whole_total,
        plans,
        counts=counts,
        diagnosed=metrics,
        story=story,
        steps=steps,
        drawn=measured,
        n_batches=n_batches,
        clusters=clusters,
    )
    groups = list[ComparedGroup]()
    if group_by:
        groups = _groups(totals.regrouped(lambda key: key[1:]), group_by=group_by, plans=plans, story=story)
    if run.objectives:
        objectives = {named.plan: objective for named, objective in zip(plans, run.objectives, strict=True)}
        whole = _with_objectives(whole, measured.totals, objectives, batch_by)
        groups = _with_group_objectives(groups, measured.totals, objectives) if groups else groups
    no_shift = list[str]()
    if run.has_advantages and whole.metrics["advantage_shift"] is None:
        n_effective = (whole.metrics["seq_ess"] or 0.0) * whole.counts["sequences"]
        few = n_effective < FEWEST_EFFECTIVE
        no_shift = [NO_SHIFT.format("too few sequences carry the weight" if few else "the advantages are all equal")]
    return Comparison(
        inputs=run.inputs,
        whole=whole,
        groups=tuple(groups),
        intervals=drawn_intervals,
        clusters=clusters,
        skipped=run.skipped,
        story=story,
        anomalies=anomalies if diagnosis is None else unexplained(anomalies, diagnosis),
        problems=run.problems.by_class(),
        notes=(
            *run.notes,
            *run.problems.changed_notes,
            *(() if clusters is None else clusters.notes),
            *no_shift,
            *([UNLISTED] if totals.lacks_lists else []),
        ),
    )


def _groups(
    totals: Totals, *, group_by: Sequence[str], plans: Sequence[NamedPlan], story: Story
) -> list[ComparedGroup]:
    """The groups of some values of the columns, in order."""
    mode = plans[0].plan.mode
    table = MetricTable.of(diagnostics(Numbers.of_mode(totals, mode)), len(totals))
    return [
        _group(
            dict(zip(group_by, totals.keys[at], strict=True)),
            totals,
            plans,
            at=at,
            counts=counts_of(totals, mode, at),
            diagnosed=dict(table[at].items()),
            story=story,
        )
        for at in sorted(range(len(totals)), key=lambda at: key_order(totals.keys[at]))
    ]


def _group(
    key: Mapping[str, Any],
    totals: Totals,
    plans: Sequence[NamedPlan],
    *,
    at: int = 0,
    counts: Mapping[str, int],
    diagnosed: Values,
    story: Story,
    steps: Course | None = None,
    drawn: Measured | None = None,
    n_batches: int = 1,
    clusters: Clusters | None = None,
) -> ComparedGroup:
    """The group at a place.  diagnosed: its diagnostics.  story, steps: of the dump.  drawn: what has replicates, for
    intervals."""
    nothing = uncorrected(plans[0].plan.mode)
    of_nothing, *of_plans = (ComparedTotals.of(totals, plan, at) for plan in (nothing, *(each.plan for each in plans)))
    metrics = diagnosed | _advantage_shift(of_nothing)
    replicates = None if drawn is None else drawn.replicates.get(COMPARISON)
    values = tuple(
        PlanValues(
            name=named.name,
            plan=named.plan,
            values=compared,
            also=named.also,
            # A replicate knows no batches, by whose means its weights could be divided.
            intervals={}
            if drawn is None or replicates is None or (n_batches > 1 and divides_by_mean(named.plan))
            else compared_intervals(compared, replicates, drawn.replicates[named.plan.mode], named.plan),
            is_named=named.is_named,
        )
        for named, of_plan in zip(plans, of_plans, strict=True)
        for compared in (compared_values(of_plan),)
    )
    evidence = Evidence(
        n_sequences=counts["sequences"],
        clusters=clusters,
        metrics=metrics,
        plans=values,
        advantages_differ=advantages_differ(of_nothing),
        usable=verdict(
            counts,
            diagnosed,
            health=judge([Section({}, diagnosed)], RULES),
            plan=nothing,
            causes=(story.first,) if story.voids else (),
            clusters=clusters,
            broken_in_steps=() if steps is None else steps.broken_metrics,
        ).usable,
        bounds=_bounds(totals, at, {named.plan.mode for named in plans}),
        story=story,
        far_end="" if steps is None or steps.failing_end is None else f"{steps.column} {steps.failing_end}",
    )
    return ComparedGroup(key=key, counts=counts, metrics=metrics, plans=values, recommendation=recommend(evidence))


def _bounds(totals: Totals, at: int, modes: Iterable[Mode]) -> dict[Mode, GeometricBounds]:
    """Of each mode, the bounds that keep KEEP of the sequences."""
    found = {mode: geometric_bounds(sequence_distances(Numbers.of_mode(totals, mode, at)), KEEP) for mode in modes}
    return {mode: bounds for mode, bounds in found.items() if bounds is not None}


def _with_objectives(
    whole: ComparedGroup, totals: Totals, objectives: Mapping[Plan, Objective], batch_by: str | None
) -> ComparedGroup:
    """The same with what each plan's objective makes of the training batches."""
    batches = by_batch(totals, None)

    def report(plan: Plan) -> ObjectiveReport:
        means = _batch_means(totals, plan)
        return objective_report(batches, plan, objectives[plan], batch_means=means, batch_by=batch_by)

    reports = [(each, report(each.plan)) for each in whole.plans]
    return replace(
        whole,
        plans=tuple(replace(each, objective=made, objective_metrics=made.named_metrics) for each, made in reports),
    )


def _with_group_objectives(
    groups: Sequence[ComparedGroup], totals: Totals, objectives: Mapping[Plan, Objective]
) -> list[ComparedGroup]:
    """The same with what each plan's objective makes of the rows of each group alone."""
    of_plans = {
        plan: group_objectives(totals, plan, objective, batch_means=_batch_means(totals, plan))
        for plan, objective in objectives.items()
    }
    made: list[ComparedGroup] = []
    for group in groups:
        key = tuple(group.key.values())
        plans = (replace(each, objective_metrics=of_plans[each.plan].get(key, {})) for each in group.plans)
        made.append(replace(group, plans=tuple(plans)))
    return made


def _batch_means(totals: Totals, plan: Plan) -> dict[Any, float]:
    """What each batch's weights are divided by, where they are."""
    return weight_means(totals, plan) if divides_by_mean(plan) else {}


def _advantage_shift(totals: ComparedTotals) -> Values:
    """That of `analyze`, of any plan's totals: all are held against the same."""
    assert totals.logs is not None
    n, sums, logs = totals.diagnostics["sequences"], totals.reference.__getitem__, totals.logs.__getitem__
    shift, error = (finite(lambda i=i: shift_and_error(n, sums, logs)[i]) for i in range(2))
    return {"advantage_shift": shift, "advantage_shift_se": error}
