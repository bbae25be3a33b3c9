"""What `scalars` says: how the gap goes, what breaks, which steps to record, and every known name with its values."""

from collections.abc import Iterator, Sequence
from functools import partial

from rlcorr_cli.causes.steps import FEWEST_ALONE
from rlcorr_cli.causes.wording import steps_named
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.results.scalars import COLUMN, LoggedMetric, LoggedScalars
from rlcorr_cli.show.document import (
    BLANK,
    EMPTY,
    MOST_IN_FILE,
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
    tabulated,
)
from rlcorr_cli.show.inputs import input_facts, last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import more, plural
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import course_of_metric, steps_that_break

SHOWN, DRAWN = 12, 6
"""Metrics on a terminal, unless all are asked for, and in the picture."""
UNTOLD = (
    "Scalars do not tell which tokens, rows or workers hold the gap, whether the error grew or the text changed, or the "
    "cause: that takes the log-probs of each token."
)
LOOKS = {"fail": "bold red", "warn": "yellow"}


def document(logged: LoggedScalars) -> Document:
    """What a log tells."""
    n = len(logged.metrics)
    return Document(
        lines=_lines(logged),
        command="scalars",
        title=name_of_inputs(logged.inputs),
        summary=with_commas(_amount(logged), last_change(logged.inputs)),
        headline=_headline(logged),
        status=next((metric.status for metric in logged.metrics if metric.status), "ok" if n else "warn"),
        reasons=[*_reasons(logged), to_do(logged)],
        marks="! marks a metric that breaks a rule.",
        sections=_sections(logged),
        json=json_text(logged.to_dict),
        records=(
            {
                "name": metric.name,
                "metric": metric.metric,
                "framework": metric.framework,
                **{end: getattr(metric.course, end).value if metric.course else None for end in ENDS},
                "worst_step": metric.course and metric.course.worst.step,
                "since": metric.shift and metric.shift.since,
                "factor": metric.shift and metric.shift.factor,
                "doubling": metric.shift and metric.shift.doubling,
                "status": metric.status,
            }
            for metric in logged.metrics
        ),
    )


ENDS = ("first", "worst", "last")


def _amount(logged: LoggedScalars) -> str:
    known, of = len(logged.metrics), len(logged.metrics) + len(logged.unknown)
    return (
        f"{plural(logged.steps, COLUMN)} ({logged.first_step} to {logged.last_step}); {known:,} of {plural(of, 'name')} "
        f"{'tells' if known == 1 else 'tell'} of the gap, the sample or a correction"
    )


def _headline(logged: LoggedScalars) -> str:
    """How the gap goes; where there is none, how what comes first does."""
    metric = logged.of_gap or next((metric for metric in logged.metrics if metric.course), None)
    return _course(metric) if metric else "No name here tells of the gap, the sample or a correction."


def _course(metric: LoggedMetric) -> str:
    return course_of_metric(metric.course, metric.shift, clean(metric.name), COLUMN) if metric.course else ""


def _reasons(logged: LoggedScalars) -> Iterator[str]:
    """What breaks, what else shifts, and what cannot be told."""
    for metric in logged.metrics:
        if metric.no_number:
            verb = "is" if len(metric.no_number) == 1 else "are"
            yield f"{clean(metric.name)} {verb} no number (NaN or infinite) at {clean(steps_named(metric.no_number))}."
    broken = [rule for metric in logged.metrics for rule in metric.broken if rule.status == "fail"]
    if broken:
        yield steps_that_break({rule.metric: rule for rule in reversed(broken)}.values(), COLUMN)
    first = [_course(metric) for metric in logged.metrics if metric.shift and metric is not logged.of_gap]
    yield from first[:3]
    if logged.metrics and not logged.of_gap:
        yield "None of the names tells the size of the gap, as k3_kl does."
    if logged.metrics and not logged.tested:
        yield f"Fewer than {FEWEST_ALONE} steps do not tell a rise from chance, without the rows of each step."


def to_do(logged: LoggedScalars) -> str:
    """Which steps to record, and what reads them."""
    record = "two lines in the trainer write a dump (`rlcorr help dumps`)"
    if logged.suspects:
        first, last = logged.suspects
        steps = f"steps {first} to {last}" if first != last else f"step {last}"
        return (
            f"To find the cause, go on from a checkpoint before and record {clean(steps)}: {record}, and `rlcorr "
            "diagnose` names the cause."
        )
    return f"Nothing stands out. To know more, record one step in ten: {record}."


def _columns(logged: LoggedScalars) -> Sequence[Column]:
    def of_end(metric: LoggedMetric, end: str) -> Cell:
        if metric.course is None:
            return EMPTY
        status = metric.status if end == "worst" and metric.status in LOOKS else ""
        return number_cell(getattr(metric.course, end).value, status=status)

    return (
        Column(heading="logged", cell=lambda metric: Cell(clean(metric.name))),
        Column(heading="metric", cell=lambda metric: Cell(metric.metric or "–"), words=True, drop=1),
        *(Column(heading=end, cell=partial(of_end, end=end)) for end in ENDS),
        Column(heading="at", cell=lambda each: key_cell(each.course.worst.step) if each.course else EMPTY),
        Column(heading="course", cell=lambda metric: Cell(_in_short(metric)), words=True),
    )


def _in_short(metric: LoggedMetric) -> str:
    """'rises since 38', 'not <= 0.1 at 8'."""
    shift = metric.shift
    goes = f"{'rises' if shift.factor > 1 else 'falls'} since {shift.since}" if shift else ""
    breaks = [f"{rule.status}s at {plural(len(rule.groups), COLUMN)}" for rule in metric.broken]
    return "; ".join(filter(None, (goes, *breaks, f"NaN at {plural(len(metric.no_number), COLUMN)}" * bool(metric.no_number))))


def _meanings(metrics: Sequence[LoggedMetric]) -> Iterator[str]:
    """What each is: 'rollout_corr/kl: verl's name of kl, tok(-l).', with what differs."""
    for metric in metrics:
        definition = DEFINITIONS.get(metric.metric)
        formula = f", {definition.formula}" if definition is not None and definition.formula else ""
        whose = "" if metric.framework == "rlcorr" else f"{metric.framework}'s name of "
        what = f"{whose}{metric.metric}{formula}." if metric.metric else f"{metric.framework}'s, and no metric here."
        yield clean(f"{metric.name}: {what} {metric.note}".rstrip())


def _sections(logged: LoggedScalars) -> Iterator[Section]:
    drawn = [metric for metric in logged.metrics if metric.course is not None][:DRAWN]
    if drawn:
        panels = [Panel(clean(metric.name), partial(_drawn, metric=metric)) for metric in drawn]
        yield Section(heading="Over the steps", pictures=[Picture(panels=panels)])
    if logged.metrics:
        table = tabulated(logged.metrics, _columns(logged), most=MOST_IN_FILE, noun="metric")
        yield Section(heading="Metrics", about=[UNTOLD], tables=[table], sorts=True)
        yield Section(heading="What they are", items=list(_meanings(logged.metrics)), folds=True)
    if logged.unknown:
        yield Section(heading="Other names", items=[clean(name) for name in logged.unknown], folds=True)
    yield from ending(input_facts(logged.inputs), [clean(note) for note in logged.notes])


def _drawn(ax: object, *, metric: LoggedMetric) -> str:
    from rlcorr_cli.show.figures.courses import logged

    return logged(ax, metric)


def _lines(logged: LoggedScalars) -> Iterator[Block]:
    yield Note(clean(f"{name_of_inputs(logged.inputs)}: {_amount(logged)}."), "dim", indent=0)
    for note in logged.notes:
        yield Note(clean(note), "dim")
    yield BLANK
    yield Note(_headline(logged), "bold", indent=0)
    for text in _reasons(logged):
        yield Note(text)
    yield BLANK
    shown = logged.metrics if logged.everything else logged.metrics[:SHOWN]
    if shown:
        yield tabulated(shown, _columns(logged), n_keys=1)
        yield from (Note(text, bullet=True) for text in _meanings(shown))
        yield BLANK
    left_out = [more(n, "known name") for n in (len(logged.metrics) - len(shown),) if n]
    if logged.unknown and logged.everything:
        yield Note(clean(", ".join(logged.unknown)), lead="Other names: ")
    elif left_out or logged.unknown:
        others = [f"{plural(len(logged.unknown), 'name')} of other things"] if logged.unknown else []
        yield Note(f"{', '.join((*left_out, *others))}: --all shows them.", "dim")
    if logged.metrics:
        yield Note(UNTOLD)
    yield Note(to_do(logged), "bold", indent=0)
