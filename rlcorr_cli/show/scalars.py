"""What `scalars` says: how the gap goes, what breaks, every known name with its values, and which steps to record."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlcorr_cli.causes.steps import FEWEST_ALONE, STEP
from rlcorr_cli.causes.wording import steps_named
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.results.rules import BROKEN
from rlcorr_cli.results.scalars import LoggedMetric, LoggedScalars
from rlcorr_cli.show.document import (
    BLANK,
    EMPTY,
    Block,
    Cell,
    Column,
    Document,
    Note,
    Panel,
    Picture,
    Section,
    ending,
    json_text,
    key_cell,
    number_cell,
    sections_of,
    tabulated,
)
from rlcorr_cli.show.inputs import input_facts, last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import plural
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import course_of_metric, steps_that_break

SHOWN, PANELS, TOLD = 8, 6, 3
"""Metrics on a terminal, unless all are asked for; those in the picture; and those whose shift is told beside the
gap's."""
UNTOLD = (
    "Scalars do not tell which tokens, rows or workers hold the gap, whether the error grew or the text changed, or "
    "the cause: that takes the log-probs of each token."
)
RECORD = "two lines in the trainer write a dump (`rlcorr help record`)"


def document(logged: LoggedScalars) -> Document:
    """What a log tells."""
    statuses = {metric.status for metric in logged.metrics}
    return Document(
        lines=_lines(logged),
        command="scalars",
        title=name_of_inputs(logged.inputs),
        summary=with_commas(_amount(logged), last_change(logged.inputs)),
        headline=_headline(logged),
        status=next((of for of in BROKEN if of in statuses), "ok" if logged.gap else "warn"),
        reasons=[*_reasons(logged), _to_do(logged)],
        marks="! marks a metric that breaks a rule, or is NaN or infinite.",
        sections=_sections(logged),
        json=json_text(logged.to_dict),
        records=map(_record, logged.metrics),
    )


def _record(metric: LoggedMetric) -> dict[str, object]:
    """A line of the table form."""
    course, shift = metric.course, metric.shift
    values = {end: getattr(course, end).value if course else None for end in ("first", "worst", "last")}
    shifts = {name: shift and getattr(shift, name) for name in ("since", "factor", "doubling")}
    names = {"name": metric.name, "metric": metric.metric, "framework": metric.framework}
    return {**names, **values, "worst_step": course and course.worst.step, **shifts, "status": metric.status}


def _amount(logged: LoggedScalars) -> str:
    known, of = len(logged.metrics), len(logged.metrics) + len(logged.unknown)
    steps = f"{plural(logged.steps, STEP)} ({logged.first_step} to {logged.last_step})"
    return f"{steps}, {known:,} of {plural(of, 'name')} on the gap, the sample or a correction"


def _headline(logged: LoggedScalars) -> str:
    """How the gap goes, if a name tells of it."""
    gap = logged.of_gap
    return "None of the names tells the size of the gap, as k3_kl does." if gap is None else _course(gap)


def _course(metric: LoggedMetric) -> str:
    """How the numbers of a metric that has some go, under the name that is logged."""
    assert metric.course is not None
    return course_of_metric(metric.course, metric.shift, clean(metric.name), STEP)


def _reasons(logged: LoggedScalars) -> Iterator[str]:
    """What breaks, what else shifts, and what cannot be told."""
    for metric in logged.metrics:
        if metric.no_number:
            yield f"{clean(metric.name)} is NaN or infinite at {clean(steps_named(metric.no_number))}."
    broken = [replace(rule, metric=clean(each.name)) for each in logged.metrics for rule in each.broken]
    if failing := [rule for rule in broken if rule.status == "fail"]:
        yield steps_that_break(failing, STEP)
    yield from [_course(each) for each in logged.metrics if each.shift and each.name != logged.gap][:TOLD]
    if logged.metrics and logged.steps < FEWEST_ALONE:
        yield f"Fewer than {FEWEST_ALONE} steps of a log do not tell a rise from chance; in a dump 3 steps may do."


def _to_do(logged: LoggedScalars) -> str:
    """Which steps to record, and what reads them."""
    if not logged.suspects:
        return f"Nothing stands out. To know more, record one step in ten: {RECORD}."
    first, last = logged.suspects
    steps = clean(f"step {first}" if first == last else f"steps {first} to {last}")
    return f"To find the cause, record {steps}: {RECORD}, and `rlcorr diagnose` names it."


def _of_end(end: str, metric: LoggedMetric) -> Cell:
    status = metric.status if end == "worst" else ""
    return number_cell(getattr(metric.course, end).value, status=status) if metric.course else EMPTY


def _in_short(metric: LoggedMetric) -> Cell:
    """Where a metric is no number, since when it shifts, which rules it breaks: 'rises since 38; fails at 8 steps'."""
    shift = metric.shift
    goes = f"{'rises' if shift.factor > 1 else 'falls'} since {shift.since}" if shift else ""
    breaks = [f"{rule.status}s at {plural(len(rule.groups), STEP)}" for rule in metric.broken]
    nan = f"none at {plural(len(metric.no_number), STEP)}" if metric.no_number else ""
    return Cell("; ".join(filter(None, (nan, goes, *breaks))))


COLUMNS = (
    Column(heading="logged", cell=lambda metric: Cell(clean(metric.name))),
    Column(heading="metric", cell=lambda metric: Cell(metric.metric or "none"), words=True, drop=2),
    *(Column(heading=end, cell=partial(_of_end, end)) for end in ("first", "worst")),
    Column(heading="at", cell=lambda each: key_cell(each.course.worst.step) if each.course else EMPTY, drop=1),
    Column(heading="last", cell=partial(_of_end, "last")),
    Column(heading="course", cell=_in_short, words=True),
)


def _meanings(metrics: Sequence[LoggedMetric]) -> Iterator[str]:
    """A sentence on each logged name: whose name of which metric it is, its formula, and how its number differs."""
    for metric in metrics:
        definition = DEFINITIONS.get(metric.metric)
        formula = f", {definition.formula}" if definition is not None and definition.formula else ""
        whose = "" if metric.framework == "rlcorr" else f"{metric.framework}'s name of "
        what = f"{whose}{metric.metric}{formula}." if metric.metric else f"{metric.framework}'s, and no metric here."
        yield clean(f"{metric.name}: {what} {metric.note}".rstrip())


def _sections(logged: LoggedScalars) -> Iterator[Section]:
    with_course = [metric for metric in logged.metrics if metric.course is not None]
    panels = [Panel(clean(metric.name), partial(_panel, metric)) for metric in with_course[:PANELS]]
    if panels:
        yield Section(heading="Over the steps", pictures=[Picture(panels=panels)])
    yield from sections_of(_known(logged.metrics), "Metrics")
    if logged.unknown:
        yield Section(heading="Other names", items=[clean(name) for name in logged.unknown], folds=True)
    yield from ending(input_facts(logged.inputs), [clean(note) for note in logged.notes])


def _panel(metric: LoggedMetric, ax: Any) -> str:
    from rlcorr_cli.show.figures.courses import logged

    return logged(ax, metric)


def _known(metrics: Sequence[LoggedMetric]) -> Iterator[Block]:
    """The values of metrics, and what they are."""
    if metrics:
        yield tabulated(metrics, COLUMNS)
        yield from (Note(text, bullet=True) for text in _meanings(metrics))
        yield BLANK
        yield Note(UNTOLD)


def _lines(logged: LoggedScalars) -> Iterator[Block]:
    yield Note(f"{name_of_inputs(logged.inputs)}: {_amount(logged)}.", "dim", indent=0)
    yield from (Note(clean(note), "dim") for note in logged.notes)
    yield BLANK
    yield Note(_headline(logged), "bold", indent=0)
    yield from map(Note, _reasons(logged))
    yield BLANK
    yield from _known(logged.metrics[: None if logged.everything else SHOWN])
    left_out = [f"{len(logged.metrics) - SHOWN} more of these"] if len(logged.metrics) > SHOWN else []
    left_out += [plural(len(logged.unknown), "other name")] if logged.unknown else []
    if logged.unknown and logged.everything:
        yield Note(clean(", ".join(logged.unknown)), lead="Other names: ")
    elif left_out and not logged.everything:
        yield Note(f"Not shown: {', '.join(left_out)} (--all).", "dim")
    yield Note(_to_do(logged), "bold", indent=0)
