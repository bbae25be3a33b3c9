"""From totals to a Report: groups in order, metrics by name, rules judged, notes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcorr_cli.causes.diagnosis import standing
from rlcorr_cli.causes.features import Yardstick
from rlcorr_cli.causes.of_tokens import FACTS
from rlcorr_cli.causes.search import search, totals_by_step
from rlcorr_cli.causes.steps import step_levels
from rlcorr_cli.errors import plural
from rlcorr_cli.frameworks.profiles import profile_called
from rlcorr_cli.metrics.advantages import FEWEST_EFFECTIVE, PREFIX
from rlcorr_cli.metrics.catalog import canonical
from rlcorr_cli.metrics.diagnostics import metric_intervals
from rlcorr_cli.metrics.interval import FEW_CLUSTERS
from rlcorr_cli.metrics.table import CountRow, MetricTable
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.bad_rows import BadRowCounts
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.reading.names import ROLLOUTS, STEPS
from rlcorr_cli.records.fields import as_json
from rlcorr_cli.results.course import POOLED, Course, course, judged_steps, neighbours
from rlcorr_cli.results.groups import (
    COUNTED,
    UNLISTED,
    Clusters,
    Group,
    by_batch,
    counts,
    key_order,
    with_bad_rows,
    with_whole,
)
from rlcorr_cli.results.lags import lags_of
from rlcorr_cli.results.objective import group_objectives, objective_report
from rlcorr_cli.results.report import QUANTILE_NOTE, Report
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.results.story import story_of
from rlcorr_cli.results.suggest import Distances, SuggestedBounds, geometric_bounds, suggestions
from rlcorr_cli.totals.comparison import uncorrected
from rlcorr_cli.totals.limits import LARGEST_SHAPE
from rlcorr_cli.totals.measured import WholeDump
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.row_sample import RowSample
from rlcorr_cli.totals.totals import Replicates, Totals
from rlcorr_cli.totals.view import CANONICAL, Numbers, Value, Values, factors, normalize

GROUPS_AT_ONCE = 1024
"""Groups whose metrics are computed in one step: enough for arrays to pay, and few enough for them to be small."""

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework


def report_of(
    run: RunTotals,
    *,
    group_intervals: bool = False,
    clean: Yardstick | None = None,
    classes: Mapping[int, str] | None = None,
) -> Report:
    """The report of a run.  A dump without rows or without a valid token is a DataError.

    group_intervals: whether groups have intervals without pictures, too.  clean, classes: as of `search`.

    The columns of a report's groups go on after the training batch in a group's key; batches are not told apart in a
    report, but by an objective.
    """
    measured, plan, provenance, problems = run.measured, run.plan, run.provenance, run.problems
    totals, whole_totals, profile = measured.totals, measured.whole, profile_called(run.profile)
    columns, step_at = provenance.groups, None  # the place of the step behind the batch, where the key has several
    places = [place for place, name in enumerate(columns) if name in STEPS]
    if places and totals is not None and len({key[1 + places[0]] for key in totals.keys}) > 1:
        step_at = places[0]
    group_by = columns[:-1] if provenance.adds_step and step_at is None else provenance.asked_groups
    objective, cluster_by = run.objective, provenance.settings["cluster_by"]
    good = counts(None if totals is None else totals.numbers.whole, plan.mode)
    whole_counts = with_bad_rows(good, problems.n_rows, run.inputs)
    assert totals is not None, "a dump with a valid token has totals"
    divided = factors(totals, plan, CANONICAL if profile is None else profile.batch_mean) if plan.normalizes else None
    of_objective, of_groups = None, dict[tuple[Any, ...], Values]()
    if objective is not None:
        batch_means = (
            {} if divided is None else {key[0]: mean for key, mean in zip(totals.keys, divided.tolist(), strict=True)}
        )
        batches = by_batch(totals, whole_totals)
        of_objective = objective_report(batches, plan, objective, batch_means=batch_means, batch_by=provenance.batch)
        if group_by:
            asked = totals.regrouped(lambda key: key[: 1 + len(group_by)])
            of_groups = group_objectives(asked, plan, objective, batch_means=batch_means)
    if divided is not None:
        totals = normalize(totals, plan, divided)
    whole_total = with_whole(totals.whole, whole_totals)
    numbers = Numbers.of_plan(whole_total, plan, 0)
    by_values = totals.regrouped(lambda key: key[1 : 1 + len(group_by)])
    groups = _groups(by_values, group_by, plan=plan, profile=profile) if group_by else []
    steps, ranges = list[Group](), list[Group]()
    if step_at is not None:
        of_steps, levels = measured.step_clusters or {}, step_levels(measured.sample)

        def counted(group: Group) -> Group:
            clusters = of_steps.get(*group.key.values())
            n_clusters = None if clusters is None else min(clusters.n, FEW_CLUSTERS)
            return replace(group, clusters=n_clusters, level=levels.get(*group.key.values()))

        if len(group_by) == 1 and step_at == 0:
            by_step = by_values
            groups = [counted(group) for group in groups]
        else:
            by_step = totals.regrouped(lambda key: (key[1 + step_at],))
            steps = [counted(group) for group in _groups(by_step, STEPS[:1], plan=plan, profile=profile)]
        ranges = _ranges(by_step, steps or groups, of_steps, measured.sample, plan=plan, profile=profile)
    if of_objective is not None:
        nothing = dict.fromkeys(of_objective.named_metrics)
        groups = [replace(group, objective=of_groups.get(tuple(group.key.values()), nothing)) for group in groups]
    has_intervals = group_intervals or measured.pictures is not None
    if has_intervals and measured.group_replicates and profile is None:
        groups = [_with_intervals(group, measured.group_replicates, plan.mode) for group in groups]
    whole = Group(
        key={},
        counts=whole_counts,
        values=canonical(numbers, plan),
        peer_metrics=None if profile is None else profile.write(numbers, plan),
        objective={} if of_objective is None else of_objective.named_metrics,
    )
    replicates = measured.replicates.get(plan.mode)
    clusters = Clusters.of(cluster_by, replicates)
    report = Report(
        inputs=run.inputs,
        plan=plan,
        profile=profile.name if profile else "canonical",
        whole=whole,
        intervals=metric_intervals(whole.values, replicates) if profile is None else {},
        groups=tuple(groups),
        steps=tuple(steps),
        ranges=tuple(ranges),
        notes=(
            *run.notes,
            *_batch_notes(run),
            *run.setting_notes,
            *([POOLED] if provenance.is_pooled else []),
            *([UNLISTED] if totals.lacks_lists and (groups or steps or of_objective) else []),
            *(() if profile is None else profile.remarks(numbers, plan)),
            *_number_notes(whole.values, problems, whole_counts["sequences"], numbers.tail("sequence").n_fitted),
            *_lacking_notes(numbers, run.inputs),
            *(_alike(whole_totals) if cluster_by == ROLLOUTS else []),
            *(clusters.notes if clusters is not None and profile is None else ()),
        ),
        log_ratios=numbers.histogram("log_ratio"),
        problems=problems.by_class(),
        anomalies=run.anomalies,
        clusters=clusters,
        suggestions=_suggestions(numbers, whole.values, plan),
        geometric=geometric_bounds(sequence_distances(numbers)),
        objective=of_objective,
    )
    if measured.sample is not None:
        diagnosis = search(measured.sample, clean=clean, classes=classes).diagnosis
        anomalies, cause = standing(run.anomalies, diagnosis)
        story, impossible = story_of(run.anomalies, diagnosis), diagnosis.impossible
        notes = (*report.notes, *(fact.sentence for fact in diagnosis.facts if fact.name in FACTS))
        lags = lags_of(measured.sample, plan)
        report = replace(
            report, story=story, cause=cause, anomalies=anomalies, impossible=impossible, notes=notes, lags=lags
        )
    follows_steps = provenance.adds_step and step_at is not None
    notes = (*run.search_notes, *run.problems.changed_notes)
    return replace(report, search_notes=notes, pictures=measured.pictures, follows_steps=follows_steps)


def course_of_sample(sample: RowSample) -> Course | None:
    """The course of a dump as a sample of its rows has it, by the same rules as that of a report."""
    found = totals_by_step(sample)
    if found is None:
        return None
    totals, clusters = found
    by_step, plan = totals.regrouped(lambda key: key[1:]), uncorrected("decoupled")
    steps = _groups(by_step, STEPS[:1], plan=plan, profile=None)
    levels = step_levels(sample)
    steps = [
        replace(step, clusters=clusters[value].n, level=levels[value]) for step in steps for value in step.key.values()
    ]
    ranges = _ranges(by_step, steps, clusters, sample, plan=plan, profile=None)
    whole = canonical(Numbers.of_plan(by_step.whole, plan, 0), plan)
    return course(steps, judged_steps(steps, ranges), RULES, known=whole)


def _suggestions(numbers: Numbers, values: Mapping[str, Value], plan: Plan) -> tuple[SuggestedBounds, ...]:
    distances = {
        rejection.name: Distances(
            numbers.histogram(f"rs.{rejection.name}.distance"),
            None if rejection.scope == "token" else numbers.tail(f"rs.{rejection.name}.distance"),
        )
        for rejection in plan.rejections
        if rejection.by_distance
    }
    return tuple(suggestions(plan.rejections, values, distances))


def sequence_distances(numbers: Numbers) -> Distances:
    """|g| of every sequence."""
    return Distances(numbers.histogram("seq_distance"), numbers.tail("seq_distance"))


def _groups(totals: Totals, group_by: Sequence[str], *, plan: Plan, profile: "Framework | None") -> list[Group]:
    """The groups of values of the columns, in order."""
    groups: list[Group] = []
    places = sorted(range(len(totals)), key=lambda place: key_order(totals.keys[place]))
    for first in range(0, len(places), GROUPS_AT_ONCE):
        some = totals.at(places[first : first + GROUPS_AT_ONCE])
        groups += _some_groups(some, group_by, plan=plan, profile=profile)
    return groups


def _ranges(
    totals: Totals,
    steps: Sequence[Group],
    clusters: Mapping[Any, DistinctKeys],
    sample: RowSample | None,
    *,
    plan: Plan,
    profile: "Framework | None",
) -> list[Group]:
    """Small neighbouring steps that are large enough together, each range a group; in order.

    totals: by step.  steps: in order.  clusters: of each step.
    """
    values = [next(iter(step.key.values())) for step in steps]
    found = neighbours(steps, [clusters.get(value) for value in values])
    if not found:
        return []
    range_of = {values[place]: n for n, places in enumerate(found) for place in places}
    small = totals.at([place for place, (value,) in enumerate(totals.keys) if value in range_of])
    together = _groups(small.regrouped(lambda key: (range_of[key[0]],)), STEPS[:1], plan=plan, profile=profile)
    column = next(iter(steps[0].key))
    levels = step_levels(sample, range_of)
    ranges: list[Group] = []
    for n, (places, group) in enumerate(zip(found, together, strict=True)):
        of_steps = tuple(as_json(values[place]) for place in places)
        keys = [clusters[values[place]] for place in places if values[place] in clusters]
        ranges.append(
            replace(
                group,
                key={column: f"{of_steps[0]} to {of_steps[-1]}"},
                of_steps=of_steps,
                clusters=min(reduce(add, keys).n, FEW_CLUSTERS) if keys else None,
                level=levels.get(n),
            )
        )
    return ranges


def _some_groups(
    totals: Totals, group_by: Sequence[str], *, plan: Plan, profile: "Framework | None"
) -> Iterator[Group]:
    """The groups of some values of the columns, whose metrics are computed together."""
    table = MetricTable.of(canonical(Numbers.of_plan(totals, plan), plan), len(totals))
    of_mode = Numbers.of_mode(totals, plan.mode)
    counted = {name: of_mode.sum(of).astype(np.int64) for name, of in COUNTED.items()}
    for at, key in enumerate(totals.keys):
        yield Group(
            key=dict(zip(group_by, key, strict=True)),
            counts=CountRow(counted, at),
            values=table[at],
            peer_metrics=None if profile is None else profile.write(Numbers.of_plan(totals, plan, at), plan),
        )


def _with_intervals(group: Group, replicates: Mapping[tuple[Any, ...], Mapping[str, Replicates]], mode: Mode) -> Group:
    """The group with its intervals."""
    drawn = replicates.get(tuple(group.key.values()))
    return group if drawn is None else replace(group, intervals=metric_intervals(group.values, drawn.get(mode)))


def _number_notes(values: Mapping[str, Value], problems: BadRowCounts, n_sequences: int, n_fitted: int) -> list[str]:
    """What numbers do not say of themselves.  n_fitted: values of the sequences' tail."""
    notes = [QUANTILE_NOTE]
    left_out = problems.by_class().items()
    notes += [f"{name}: {plural(problem.rows, 'row')} left out; {problem.first}." for name, problem in left_out]
    notes += problems.changed_notes
    if (values["logprob_abs_diff_max"] or 0) > 340:
        notes.append("Some log-ratios are beyond ±340; metrics that float64 cannot hold are null.")
    # Intervals do not tell how far means of e^S may be off where a handful of sequences makes them, nor that a tail
    # which looks heavy is of too few to be called so.
    share, shape, error = values["seq_ess"], values["pareto_k_seq"], values["pareto_k_seq_se"]
    if share is not None and n_sequences >= FEWEST_EFFECTIVE and share * n_sequences < FEWEST_EFFECTIVE:
        n = round(share * n_sequences)
        carry = "One sequence outweighs" if n <= 1 else f"{n} sequences outweigh"
        notes.append(f"{carry} the other {n_sequences - max(n, 1):,}: chi2_seq and seq_ess are not reliable.")
    if shape is None or error is None:
        return notes
    if shape > LARGEST_SHAPE and values["pareto_k_seq_limit"] is None:
        few = f"the {n_fitted} largest sequence weights are too few to judge it"
        notes.append(f"pareto_k_seq is {shape:.3g} ± {error:.2f}: {few}.")
    return notes


def _lacking_notes(numbers: Numbers, inputs: Sequence[Input]) -> list[str]:
    """What reward_mean and advantage_shift leave out, and why they may be null."""
    means: list[tuple[str, str, str, str, str]] = []
    if all("reward" in source.columns for source in inputs):
        lacked = "reward (null, NaN or infinite)"
        means.append(("reward_mean", "rewarded", lacked, "reward", "The rewards' sum"))
    if numbers.has(f"{PREFIX}rows"):
        squares = f"{PREFIX}advantage_squared", "The sum of the advantages' squares"
        means.append(("advantage_shift", f"{PREFIX}rows", "advantage", *squares))
    notes, sequences = list[str](), int(numbers.sequences)
    for metric, count, lacked, total, words in means:
        known = int(numbers.sum(count))
        if known < sequences:
            without = f"{sequences - known:,} of {sequences:,} sequences have no finite {lacked}"
            notes.append(f"{without}: {metric} is of the others." if known else f"{without}.")
        if not math.isfinite(numbers.sum(total)):
            notes.append(f"{words} is too large for float64: {metric} is null.")
    return notes


_SAMPLE_ID = "a column sample_id would tell them apart."


def _alike(whole_totals: WholeDump | None) -> list[str]:
    """A note where more than a tenth of the rows share their draws of the bootstrap."""
    rows = None if whole_totals is None else whole_totals.rows
    if rows is None or rows.shared_fraction <= 0.1:
        return []
    if rows.n_distinct == 1:
        return [f"All rows have equal rollout log-probs, so there are no intervals; {_SAMPLE_ID}"]
    shared = f"{100 * rows.shared_fraction:.0f}% of the rows have equal rollout log-probs"
    return [f"{shared}: they are resampled together, and intervals may be too wide; {_SAMPLE_ID}"]


def _batch_notes(run: RunTotals) -> list[str]:
    plan, column = run.plan, run.provenance.batch
    does = ["Weights are divided by the mean of their own batch"] * plan.normalizes
    does += [f"{budget.name} is kept in each batch" for budget in plan.budgets]
    if column is not None:
        n_batches = 0 if run.measured.totals is None else len({batch for batch, *_ in run.totals.keys})
        values = "one value" if n_batches == 1 else f"{n_batches:,} values"
        return [f"{what}: {values} of {column}." for what in does]
    return [f"{what}, over the whole dump as one batch (--batch-by COLUMN makes several)." for what in does]
