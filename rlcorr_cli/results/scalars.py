"""Scalars: what a run has logged of its gap, its sample and its correction, and where in it the cause is to be sought.

Of each logged name that is known (`known_in_log`) a LoggedMetric has the first, the worst and the last value, how it
rises or falls (the test of every statement on steps, causes/steps.py; of values alone, because a log has no scatter of
prompts), and the default rules that it breaks, where its number is of the size of the metric.  The gap of a log is the
first of GAPS that it has, one of the size of the metric before others.  `suspects` are the steps to be recorded: around
the one from which on the gap has risen, else around the first at which a rule is broken or a value is no number, else
around another metric's shift.

`measurements` are the same steps for `check`, under our names and under those of the log.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from rlcorr_cli.causes.steps import STEP
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import DEFINITIONS, known_in_log
from rlcorr_cli.metrics.framework_names import LoggedName
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.scalars import Scalars, Step
from rlcorr_cli.records.fields import HIDDEN, Key, Scalar
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.checked import Measurements
from rlcorr_cli.results.course import BrokenRule, MetricCourse, Rise, broken_rules, course_of, shifted
from rlcorr_cli.results.groups import Group, Inputs, of_inputs, order
from rlcorr_cli.results.rules import BROKEN, RULES, RemedyContext, Section, upper_limit

GAPS = (
    *("k3_kl", "k2_kl", "js_divergence", "logprob_abs_diff_mean", "prob_abs_diff_mean", "token_mult_prob_error"),
    *("k3_kl_reverse", "kl", "log_ppl_abs_diff", "chi2_token"),
)
"""Sizes of a gap, the one that tells most first."""
STATUSES = (*BROKEN, "")
"""What a logged metric may have, the worst first."""
BEFORE, AFTER = 1, 3
"""Steps to be recorded before the one in question, and after it."""


@frozen(kw_only=True)
class LoggedMetric(Record):
    """A name of the log that is known.

    metric: ours that it is, empty where none is.  framework: whose name it is.  note: how its number departs from the
    metric, or what it is.  course: of its values, null where none is a number.  shift: where they rise or fall by more
    than chance.  broken: the default rules on the metric that steps break.  no_number: steps at which it is NaN or
    infinite.
    """

    name: str
    metric: str
    framework: str
    note: str
    course: MetricCourse | None
    shift: Rise | None
    broken: tuple[BrokenRule, ...]
    no_number: tuple[Scalar, ...]
    values: Annotated[Mapping[Step, float], HIDDEN]

    @property
    def status(self) -> str:
        """fail where a value is no number, else the worst of the rules that it breaks: fail or warn; "" without one."""
        return "fail" if self.no_number else next((rule.status for rule in self.broken), "")


@frozen(kw_only=True)
class LoggedScalars(Output):
    """What a run has logged.

    steps: how many there are; first_step and last_step are their ends.  gap: the logged name that tells the size of the
    gap, empty without one.  suspects: the first and the last step to be recorded, empty where none is.  metrics: each
    name that is known, the gap first.  unknown: names that speak neither of the gap, nor of the sample, nor of a
    correction.  notes: on values that were joined, replaced or left out.
    """

    OUTPUT = "scalars"
    inputs: Inputs
    steps: int
    first_step: Scalar
    last_step: Scalar
    gap: str
    suspects: Annotated[tuple[Scalar, ...], Key(about="First and last step to be recorded; empty where none is.")]
    metrics: tuple[LoggedMetric, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()
    everything: Annotated[bool, HIDDEN] = False

    @property
    def of_gap(self) -> LoggedMetric | None:
        """The metric that tells the size of the gap."""
        return next((metric for metric in self.metrics if metric.name == self.gap), None)

    def __repr__(self) -> str:
        return f"<LoggedScalars of {of_inputs(self.inputs)}: {len(self.metrics)} metrics, {self.steps:,} steps>"


def logged_scalars(scalars: Scalars) -> LoggedScalars:
    """What a log tells; the gap first, then metrics that break rules, those that shift, and the others."""
    known = {name: row for name in scalars.series if (row := known_in_log(name)) is not None}
    metrics = [_metric(row, scalars.series[name]) for name, row in known.items()]
    sized = [metric for metric in metrics if metric.metric in GAPS and metric.course is not None]
    sized.sort(key=lambda metric: (not known[metric.name].has_its_size, GAPS.index(metric.metric)))
    gap, steps = next((metric.name for metric in sized), ""), scalars.steps
    metrics.sort(key=lambda m: (m.name != gap, STATUSES.index(m.status), not m.metric, not m.shift, _place(m.metric)))
    return LoggedScalars(
        inputs=scalars.inputs,
        steps=len(steps),
        first_step=steps[0],
        last_step=steps[-1],
        gap=gap,
        suspects=_suspects(metrics, gap, steps),
        metrics=tuple(metrics),
        unknown=tuple(sorted(set(scalars.series) - set(known))),
        notes=scalars.notes,
    )


def _place(metric: str) -> int:
    """By what it tells of the gap, then in the order of the catalog."""
    names = (*GAPS, *DEFINITIONS)
    return names.index(metric) if metric in names else len(names)


def _metric(row: LoggedName, series: Mapping[Step, float]) -> LoggedMetric:
    """A known name: held to the rules and the ideal of its metric only where its number is of that size."""
    values = {step: value for step, value in series.items() if math.isfinite(value)}
    limit = upper_limit(row.canonical, RULES) if row.has_its_size else None
    groups = [Group(key={STEP: step}, counts={}, values={row.canonical: value}) for step, value in values.items()]
    return LoggedMetric(
        name=row.name,
        metric=row.canonical,
        framework=row.framework,
        note=row.note,
        course=course_of(row.canonical if row.has_its_size else row.name, values, len(series)),
        shift=shifted([*values], [*values.values()], limit=limit),
        broken=broken_rules(groups, RULES) if row.has_its_size else (),
        no_number=tuple(step for step in series if step not in values),
        values=values,
    )


def _suspects(metrics: Sequence[LoggedMetric], gap: str, steps: Sequence[Step]) -> tuple[Scalar, ...]:
    """The ends of the steps around the first at which something is wrong."""
    rises = [metric.shift for metric in metrics if metric.name == gap and metric.shift and metric.shift.factor > 1]
    wrong = [metric.no_number[0] for metric in metrics if metric.no_number]
    wrong += [step for metric in metrics for rule in metric.broken for step in rule.groups[0].values()]
    shifts = [metric.shift.since for metric in metrics if metric.shift and metric.name != gap]
    first: Any = next(iter((*(rise.since for rise in rises), *sorted(wrong, key=order), *shifts)), None)
    if first is None:
        return ()
    at = steps.index(first)
    return steps[max(0, at - BEFORE)], steps[min(len(steps) - 1, at + AFTER)]


def measurements_of_log(scalars: Scalars) -> Measurements:
    """The steps as `check` judges them: each name as it is logged, and each metric of ours that a name has the size of.
    Of several names of one metric our own comes first, then one whose number does not differ.  A logged name that only
    looks like ours, as a trainer's `kl` from the reference policy does, is held to no default rule."""
    rows = {name: row for name in scalars.series if (row := known_in_log(name)) is not None and row.has_its_size}
    names: dict[str, str] = {}
    for name, row in sorted(rows.items(), key=lambda item: (item[0] != item[1].canonical, bool(item[1].difference))):
        names.setdefault(row.canonical, name)
    series = {**scalars.series, **{metric: scalars.series[name] for metric, name in names.items()}}
    finite = {name: {step: v if math.isfinite(v) else None for step, v in of.items()} for name, of in series.items()}
    steps = [
        Section({STEP: step}, {name: of[step] for name, of in finite.items() if step in of}) for step in scalars.steps
    ]
    return Measurements(
        inputs=scalars.inputs,
        # A log has no number of the whole; that section says which names there are.
        sections=(Section({}, dict.fromkeys(series), is_followed=True), *steps),
        situation=RemedyContext(plan=Plan(name="none")),
        column=STEP,
        others_names=frozenset(scalars.series) - names.keys(),
        notes=scalars.notes,
    )
