"""What a report of `analyze` says: a verdict, what is wrong and its fix, then the numbers.

What is fine is quiet.  Metric names are those of the JSON report and of people's dashboards.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import log

from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.wording import and_list
from rlcorr_cli.metrics.catalog import DEFINITIONS, define, ideal, shown_at
from rlcorr_cli.metrics.diagnostics import QUANTILES
from rlcorr_cli.metrics.divergence import DIVERGENCE
from rlcorr_cli.metrics.framework_names import LOGGED
from rlcorr_cli.metrics.metric import GAP, symbols_in
from rlcorr_cli.results.course import FEWEST_EFFECTIVE, is_known, reliable
from rlcorr_cli.results.report import QUANTILE_NOTE, Group, Report
from rlcorr_cli.results.rules import worst_first
from rlcorr_cli.results.story import cause_words
from rlcorr_cli.show.correction import (
    marked_values,
    objective_sentences,
    objective_tables,
    plan_tables,
    rejection_tables,
    weight_tables,
    worst_status,
)
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    MOST_ON_TERMINAL,
    Block,
    Cause,
    Cell,
    Column,
    Document,
    Drawing,
    Facts,
    KeyFigure,
    Note,
    Section,
    Table,
    ending,
    key_cell,
    number_cell,
    tabulated,
)
from rlcorr_cli.show.inputs import FILES, last_change, name_of_inputs, picture_source, with_commas
from rlcorr_cli.show.lags import lag_sentences, lag_tables
from rlcorr_cli.show.numbers import (
    NOTHING,
    amounts,
    between,
    duration,
    histogram_line,
    interval,
    metric_value,
    number,
    plural,
    share,
    signed,
    sparkline,
    thousands,
)
from rlcorr_cli.show.stdout import LONGEST, clean, clean_cut, is_unicode
from rlcorr_cli.show.words import (
    LITTLE_KEPT,
    anomaly_cause,
    anomaly_notes,
    bounds_sentences,
    broken_group,
    cause_notes,
    cause_to_mend,
    impossible_sentence,
    left_out_notes,
    name_of_cause,
    next_step,
    opening_sentence,
    remedies_said_once,
    short_verdict,
    suggestion_notes,
    verdict_sentences,
)
from rlcorr_cli.totals.bins import Histogram
from rlcorr_cli.totals.view import Value

MARKS = "! marks a value outside its limit."
STATUS_OF_LEVEL = {"equal": "ok", "same": "ok", "close": "ok", "apart": "warn", "too few": "warn"}
"""Level of the verdict -> its status; "fail" at other levels, and where a rule fails."""


def document(report: Report) -> Document:
    """What a report says."""
    return Document(
        lines=_lines(report) if report.everything else _first_screen(report),
        again=_in_short(report),
        command="analyze",
        title=name_of_inputs(report.inputs, LONGEST),
        summary=_summary(report),
        causes=_causes(report),
        trend=opening_sentence(report),
        headline=verdict_sentences(report),
        status=_status(report),
        sections=_sections(report),
        source=picture_source(report),
        marks=MARKS,
        has_contents=True,
        json=_json(report),
        records=_records(report),
    )


def _status(report: Report) -> str:
    """Of the headline: "ok" where the policies are close, no limit is broken, and the plan keeps most of the batch."""
    conclusion = report.verdict
    status = "fail" if "fail" in report.broken.values() else STATUS_OF_LEVEL.get(conclusion.level, "fail")
    keeps_little = conclusion.kept_fraction is not None and conclusion.kept_fraction < LITTLE_KEPT
    return "warn" if status == "ok" and (report.broken or keeps_little or report.advised_bounds) else status


def _json(report: Report) -> Iterator[str]:
    from rlcorr_cli.show.forms.texts import report_json

    yield from report_json(report)


def _records(report: Report) -> Iterator[str]:
    from rlcorr_cli.show.forms.texts import report_table

    yield from report_table(report)


# On a terminal.

SHIFT = "advantage_shift"


MOST_LAG_SENTENCES, MOST_NOTES = 2, 3


def _first_screen(report: Report) -> Iterator[Block]:
    """What a person acts on: verdict, cause, the numbers that are judged, the course, and what was asked for."""
    yield from _conclusions(report)
    yield from suggestion_notes(report.advised_bounds, report.profile)
    if report.advised_bounds:
        yield BLANK
    if report.profile == "canonical":
        yield _judged_table(report)
        yield from (*weight_tables(report), *rejection_tables(report))
    else:
        yield _profile_table(report)
    yield from _objective_blocks(report)
    if report.by_step:
        yield _course_table(report.by_step)
    yield from _asked_groups(report)
    if report.lags is not None and (report.lags.base is not None or report.lags.best is not None):
        yield from (Note(sentence) for sentence in [*lag_sentences(report)][-MOST_LAG_SENTENCES:])
    notes = [*report_notes(report)]
    yield from notes[:MOST_NOTES]
    worst = min((step.values["seq_ess"] or 0.0 for step in report.by_step), default=0.0)
    whole = report.whole.values["seq_ess"] or 0.0
    if whole < worst and whole * report.whole.counts["sequences"] >= FEWEST_EFFECTIVE:
        yield Note("seq_ess of all steps is lower than of any one: their sequences are weighed together.", "dim")
    more_notes = f" and {plural(len(notes) - MOST_NOTES, 'more note')}" if len(notes) > MOST_NOTES else ""
    more = f"--all shows remedies, all numbers and steps{more_notes}; `rlcorr explain NAME` explains a number."
    yield Note(f"{closing_words(report)} {more}")


def _in_short(report: Report) -> str:
    """The verdict and what to do, in a line or two that end a text longer than the terminal is high."""
    cause = cause_to_mend(report.cause)
    names = [*report.causes, *([] if cause is None else [name_of_cause(cause)])]
    likely = f"Likely cause: {', '.join(dict.fromkeys(names))}." if names else ""
    return " ".join(filter(None, [short_verdict(report), likely]))


def _conclusions(report: Report) -> Iterator[Block]:
    """What was read, the last step and the course up to it, what is wrong and its fix, the verdict on all of it."""
    yield from report_opening(report)
    if sentence := opening_sentence(report):
        yield Note(sentence, "bold")
        yield BLANK
    levels = {report.verdict.level, *([] if report.last_step is None else [report.last_step.verdict.level])}
    is_small = levels <= {"same", "close", "too few"} and not report.story.is_fault
    yield from cause_notes(report.cause, is_small=is_small)
    for fault in report.other_faults:
        yield Note(clean(f"{fault.what} {fault.do}"), lead=f"! {fault.name}  ", lead_look="bold red")
        yield BLANK
    if report.story.legs:
        yield Note(clean(report.story.legs))
        yield BLANK
    if report.impossible is not None and report.impossible.metric in report.story.fault_names:
        value, proves = impossible_sentence(report.impossible)
        yield Note(proves, lead=f"! {value} ", lead_look="bold red")
        yield BLANK
    yield from anomaly_notes(report.anomalies)
    yield Note(verdict_sentences(report), "bold")
    yield BLANK


def _lines(report: Report) -> Iterator[Block]:
    """Everything: the conclusions, each number over its limit with its remedy, all tables and notes."""
    yield from _conclusions(report)
    broken = worst_first(report.health)
    limits = [
        (finding.status, f"{finding.metric} {number(finding.value)}", f"should be {finding.rule}. {fix}".rstrip())
        for finding, fix in zip(broken, remedies_said_once(broken), strict=True)
    ]
    for status, lead, text in sorted([*limits, *_broken_groups(report)], key=lambda each: each[0] != "fail"):
        yield Note(f"  {text}", lead=f"! {lead}", lead_look="bold red" if status == "fail" else "yellow")
    yield from suggestion_notes(report.advised_bounds, report.profile)
    if broken or report.broken_in_groups or report.advised_bounds:
        yield BLANK
    if report.profile == "canonical":
        yield _divergence_table(report)
        yield from _distribution_blocks(report)
        yield from (*weight_tables(report), *rejection_tables(report))
    else:
        yield _profile_table(report)
    yield from _objective_blocks(report)
    yield from _group_tables(report)
    yield from report_notes(report)
    name, n_metrics = next(iter(report.broken), "kl"), len(report.whole.metrics)
    yield Note(f"{closing_words(report)} `rlcorr explain {name}` defines a metric; --json has all {n_metrics} metrics.")


def _profile_table(report: Report) -> Table:
    """A profile's numbers with six digits, to be compared with a dashboard."""
    rows = [(Cell(name), Cell(metric_value(value, report.profile))) for name, value in report.whole.metrics.items()]
    return Table(headings=(f"as {report.profile} logs it", "value"), rows=tuple(rows))


def _objective_blocks(report: Report) -> Iterator[Block]:
    yield from objective_tables(report)
    for sentence in objective_sentences(report):
        yield Note(sentence, "dim")
    if report.objective is not None:
        yield BLANK


def closing_words(report: Report) -> str:
    """What `check` would say of all that stands above, by name."""
    failing = [*report.story.fault_names, *(name for name, status in report.broken.items() if status == "fail")]
    warns_of_cause = report.cause is not None and CAUSES[report.cause.cause].effect == "warning"
    warning = ["the likely cause"] * warns_of_cause
    warning += [name for name, status in report.broken.items() if status != "fail"]
    if failing:
        warns = f", and warns of {and_list(warning)}" if warning else ""
        return f"`rlcorr check` fails because of {and_list(failing)}{warns}."
    if warning:
        return f"`rlcorr check` passes, and warns of {and_list(warning)}; with --strict it fails."
    return "`rlcorr check` passes: every number is within its limit."


def report_opening(report: Report) -> Iterator[Block]:
    """What was read, and under which plan."""
    counts, columns = report.whole.counts, list(report.inputs[0].columns.values())
    parts = [*amounts(counts, report.clusters), *group_amounts(report)]
    yield Facts([name_of_inputs(report.inputs), *parts, duration(report.seconds)])
    profile = "" if report.profile == "canonical" else f", profile {report.profile}"
    corrects = report.plan.weighting or report.plan.rules
    plan = f"correction {clean(report.plan.name)}" if corrects else "no correction"
    yield Note(f"{clean(columns[1])} against {clean(columns[0])}, {plan}{profile}", "dim", indent=0)
    yield from left_out_notes(counts)
    yield BLANK


def group_amounts(report: Report) -> list[str]:
    """How many steps and groups there are."""
    steps = report.by_step
    groups = () if report.groups is steps else report.groups
    return [plural(len(some), noun) for some, noun in ((steps, "step"), (groups, "group")) if some]


def report_notes(report: Report) -> Iterator[Note]:
    """The report's notes: what was chosen for the user, and what the data call for."""
    yield from (Note(clean(note), "dim") for note in report.notes if note != QUANTILE_NOTE)


FIRST_SCREEN = (GAP, "kl", "ppl_ratio", "token_ess", "seq_ess")


def _judged_table(report: Report) -> Table:
    """The key numbers and those outside their limit: of the whole dump, and of the group that is farthest outside."""
    findings = {finding.metric: finding for finding in report.health}
    of_groups = {broken.metric: broken for broken in report.broken_in_groups}
    over = [name for name in report.broken if name not in FIRST_SCREEN]
    names = [name for name in (*FIRST_SCREEN, *over) if name in report.whole.values]

    def limit(name: str) -> str:
        rule = of_groups[name].rule if name in of_groups else findings[name].rule if name in findings else ""
        return re.sub("between (.*) and (.*)", r"\1 to \2", rule)

    def value(name: str) -> Cell:
        finding = findings.get(name)
        status = finding.status if finding is not None and finding.broken else ""
        return number_cell(report.whole.values[name], partial(between, ends=report.intervals.get(name)), status)

    def worst(name: str) -> Cell:
        if name not in of_groups:
            return Cell("")
        broken = of_groups[name]
        at = ", ".join(_short_key(value) for value in broken.worst.values())
        return Cell(f"{number(broken.worst_value)} at {at}", status=broken.status)

    columns = [
        Column(heading="number", cell=Cell),
        Column(heading="value", cell=value),
        Column(
            heading="95% interval",
            cell=lambda name: Cell(interval(*report.intervals[name]) if name in report.intervals else ""),
            drop=2,
        ),
        Column(heading="should be", cell=lambda name: Cell(limit(name)), drop=1),
    ]
    if of_groups:
        of = {tuple(broken.worst) for broken in of_groups.values()}
        by = clean(", ".join(min(of))) if len(of) == 1 else "group"
        columns.append(Column(heading=f"worst {by}", cell=worst))
    return tabulated(names, tuple(columns))


def _divergence_table(report: Report) -> Table:
    """How far apart the policies are, and what that leaves of the sample."""
    values, broken = report.whole.values, {finding.metric for finding in report.health if finding.broken}
    ends = {name: interval(*report.intervals[name]) for name in report.intervals}
    names = [*shown_at("terminal")]
    if (shift := values.get(SHIFT)) is not None:
        error = values[f"{SHIFT}_se"] or 0.0
        names.append(SHIFT)
        ends[SHIFT] = interval(shift - 1.96 * error, shift + 1.96 * error)
    columns = (
        Column(heading="divergence", cell=lambda name: Cell(name, status="warn" if name in broken else "")),
        Column(heading="value", cell=lambda name: number_cell(values[name])),
        Column(heading="ideal", cell=lambda name: number_cell(ideal(name)), drop=2),
        Column(heading="95% interval", cell=lambda name: Cell(ends.get(name, "")), drop=1),
    )
    return tabulated(names, columns)


def _distribution_blocks(report: Report) -> Iterator[Block]:
    """Quantiles of the log-ratio, and its histogram between the outermost of them."""
    values = report.whole.values
    columns = {f"{100 * q:g}%": signed(values[f"log_ratio_{name}"]) for name, q in QUANTILES.items()}
    about = "value"
    upright = Table(
        headings=("log_ratio at", about), rows=tuple((Cell(at), Cell(text)) for at, text in columns.items())
    )
    row = Cell(about), *map(Cell, columns.values())
    yield Table(headings=("log_ratio at", *columns), rows=(row,), splits=True, is_tight=True, upright=upright)
    low, high = values["log_ratio_p01"], values["log_ratio_p999"]
    if low is not None and high is not None and high > low:
        yield Drawing(partial(_histogram_drawing, report.log_ratios, max(abs(low), abs(high))))
    yield BLANK


MOST_BARS, FEWEST_BARS = 41, 11


def _histogram_drawing(log_ratios: Histogram, reach: float, width: int) -> str:
    """'-1.01 |▁▃▆█▆▃▁| +1.01  log counts' in so many columns, without the last words where they have no room."""
    ends, scale = (f"{number(-reach)} |", f"| +{number(reach)}"), "  log counts"
    room = width - sum(map(len, ends))
    if room < FEWEST_BARS + len(scale):
        scale = ""
    n_bars = max(FEWEST_BARS, min(MOST_BARS, room - len(scale)))
    return ends[0] + histogram_line(log_ratios, -reach, reach, width=n_bars, unicode=is_unicode()) + ends[1] + scale


# Groups on a terminal: all of them when they are few; when they are many, their course and the worst of them.  Steps
# have their course in any case, and fewer rows where nobody asked for them.

FEW, WORST = MOST_ON_TERMINAL, 20
FEW_STEPS, WORST_STEPS = 8, 6
LONGEST_KEY = 24
LOG_FROM = 20.0
"""GAP grows by factors; from this factor on it is drawn on a log scale: what doubles every step rises evenly there."""
LEAST_FACTOR, LEAST_SPANS = 1.5, {"seq_ess": 1.0, "ppl_ratio": 0.005}
"""What is drawn over many groups, beside GAP -> the change that fills the height of a line of characters, GAP's as a
factor; of seq_ess, a share, from 0 to 1.  Smaller ones fill less, so that what chance moves by little looks flat.
Where several values share a character it shows the worst of them."""


def _group_tables(report: Report) -> Iterator[Block]:
    """Every group up to FEW of them; of more, their course, the worst, the first and the last."""
    steps = report.by_step
    if steps:
        few, n_worst = (FEW_STEPS, WORST_STEPS) if report.follows_steps else (FEW, WORST)
        yield _course_table(steps)
        if len(steps) > few:
            yield Note(_ends_and_worst_of(n_worst, len(steps), "steps"), "dim")
        shown = _ends_and_worst(steps, n_worst) if len(steps) > few else steps
        yield _group_table(report, shown)
        yield from (Note(text, "dim") for text in step_notes(report, shown))
        yield BLANK
    yield from _asked_groups(report)
    if report.lags is not None:
        yield from lag_tables(report)
        yield from (Note(sentence) for sentence in lag_sentences(report))
        yield BLANK


def _asked_groups(report: Report) -> Iterator[Block]:
    """The groups that were asked for, as steps are not."""
    groups = () if report.groups is report.by_step else report.groups
    if len(groups) > FEW:
        yield _course_table(groups)
        yield Note(_ends_and_worst_of(WORST, len(groups)), "dim")
        groups = _ends_and_worst(groups, WORST)
    if groups:
        yield _group_table(report, groups)


def step_notes(report: Report, shown: Sequence[Group]) -> Iterator[str]:
    """Whose seq_ess is rough, and what becomes of steps that are too small to be held to rules by themselves."""
    rough = [step for step in shown if step.values.get("seq_ess") is not None and not is_known(step, "seq_ess")]
    if rough:
        few = f"Where fewer than {FEWEST_EFFECTIVE} sequences carry most of the weight"
        yield f"{few}, seq_ess is rough: the true one is probably lower still."
    if report.course is not None:
        yield from report.course.small
        broken = {step for some in report.judged_steps if worst_status(report.findings(some)) for step in some.of_steps}
        if any(step in broken for group in shown for step in group.plain_key.values()):
            yield "! marks all steps of a range that breaks a rule together."


def _group_table(report: Report, groups: Sequence[Group]) -> Table:
    """The usual few metrics of each group."""
    status_of = {id(group): worst_status(report.findings_on(group)) for group in groups}

    def metric(heading: str, name: str, show: Callable[[Value], str], drop: int = 0) -> Column:
        def cell(group: Group) -> Cell:
            value = reliable(name, group)
            return number_cell(value, show, "" if value is None else status_of[id(group)].get(name, ""))

        return Column(heading=heading, cell=cell, drop=drop)

    keys = [Column(heading=clean(k), cell=lambda group, k=k: Cell(_short_key(group.key[k]))) for k in groups[0].key]
    columns = [
        *keys,
        Column(heading="sequences", cell=lambda group: number_cell(group.counts["sequences"], thousands), drop=5),
        Column(heading="tokens", cell=lambda group: number_cell(group.counts["tokens"], thousands), drop=2),
        metric("kl", "kl", number, 4),
        metric(GAP, GAP, number),
        *([metric("seq ESS", "seq_ess", number)] if any(map(partial(reliable, "seq_ess"), groups)) else []),
        metric("ppl ratio", "ppl_ratio", number, 3),
        *([metric("IS ESS", "rollout_is_eff_sample_size", number, 1)] if report.plan.weighting is not None else []),
        *([metric("lost", "rollout_rs_masked_fraction", share, 1)] if report.plan.rules else []),
    ]
    return tabulated(groups, columns, n_keys=len(keys))


def _short_key(value: object) -> str:
    return NOTHING if value is None else clean_cut(value, LONGEST_KEY)


def _ends_and_worst(groups: Sequence[Group], n: int) -> Sequence[Group]:
    """The first, the last and the n groups with the largest k3_kl, in their order."""
    by_k3 = sorted(range(len(groups)), key=lambda i: -(groups[i].values.get(GAP) or 0.0))
    return [groups[i] for i in sorted({0, len(groups) - 1, *by_k3[:n]})]


def _ends_and_worst_of(n: int, n_groups: int, noun: str = "groups") -> str:
    """The same in words."""
    return f"first, last and the {n:,} {noun} with the largest k3_kl, of {n_groups:,}"


def _course_table(groups: Sequence[Group]) -> Table:
    """A line of characters per metric over the groups in order; each is the worse end of its share of them."""
    width = min(40, len(groups))
    edges = [len(groups) * i // width for i in range(width + 1)]
    rows = list[tuple[Cell, ...]]()
    for metric in (GAP, *LEAST_SPANS):
        values = [reliable(metric, group) for group in groups]
        if not (known := [value for value in values if value is not None]):
            continue
        bins = [[value for value in values[a:b] if value is not None] for a, b in pairwise(edges)]
        drawn = [max(part, key=DEFINITIONS[metric].badness, default=None) for part in bins]
        is_log = metric == GAP and min(known) > 0 and max(known) >= LOG_FROM * min(known)
        least_span = LEAST_SPANS.get(metric, (LEAST_FACTOR - 1) * abs(min(known)))
        line = sparkline(
            [log(v) if is_log and v is not None else v for v in drawn],
            is_unicode(),
            low=0.0 if metric == "seq_ess" else None,
            least_span=0 if is_log else least_span,
        )
        worst = max(known, key=DEFINITIONS[metric].badness)
        where = f"{number(worst)} at {', '.join(map(_short_key, groups[values.index(worst)].key.values()))}"
        if len(known) < len(values):  # the worst may be among the others
            where = f"unknown in {plural(len(values) - len(known), 'group')}"
        where += " (log scale)" * is_log
        rows.append((Cell(metric), Cell(line), Cell(where)))
    first, last = (", ".join(map(_short_key, group.key.values())) for group in (groups[0], groups[-1]))
    heading = f"by {clean(', '.join(groups[0].key))}"
    return Table(headings=(heading, f"{first} to {last}", "worst"), rows=tuple(rows), n_keys=2, words=("worst",))


# In a file.

ALL_GROUPS = "-o report.csv and -o report.json hold every group."
MOST_PROFILE_COLUMNS = 8
OWN_DEFINITIONS = "These numbers follow rlcorr's own definitions; those of the profile stand under Metrics."
SYMBOLS_BELOW = "What the letters of the formulas mean stands below, under Symbols."
IN_LIMITS = "Nothing needs fixing: every number is within its limit."
NOTHING_TO_DO = {
    "equal": "Nothing: the two columns are equal.",
    "too few": "Measure more sequences. So far every number is within its limit.",
    "apart": "Look for the cause of the gap. Every number is still within its limit.",
}
"""Level of the verdict -> what to do where no rule is broken; IN_LIMITS at other levels."""


def _nothing_to_do(report: Report) -> str:
    """What to do where no rule is broken; of a cause that is named, its own box has said it."""
    if report.verdict.level not in NOTHING_TO_DO and _causes(report):
        return "Beside the cause above nothing needs fixing: every number is within its limit."
    return NOTHING_TO_DO.get(report.verdict.level, IN_LIMITS)


def _summary(report: Report) -> str:
    """'320 sequences, 27,465 tokens, 5 groups; plan token_is'."""
    counts = report.whole.counts
    parts = amounts(counts, report.clusters)
    parts += group_amounts(report)
    parts += [f"{plural(counts['bad_rows'], 'bad row')} left out"] if counts["bad_rows"] else []
    profile = "" if report.profile == "canonical" else f", profile {report.profile}"
    return with_commas(f"{', '.join(parts)}; plan {clean_cut(report.plan.name)}{profile}", last_change(report.inputs))


def _causes(report: Report) -> list[Cause]:
    """The likely cause of the gap, a number that cannot be, then the anomalies of files."""
    causes, cause = list[Cause](), cause_to_mend(report.cause)
    if cause is not None:
        status = "fail" if cause.cause in report.story.fault_names else "warn"
        causes.append(Cause(status, clean(cause_words(cause)), next_step(cause)))
    causes += [Cause("fail", clean(fault.what), clean(fault.do)) for fault in report.other_faults]
    if report.impossible is not None and report.impossible.metric in report.story.fault_names:
        sentence = " ".join(impossible_sentence(report.impossible))
        causes.append(Cause("fail", f"{sentence[0].upper()}{sentence[1:]}", ""))
    return [*causes, *map(anomaly_cause, report.anomalies)]


def _sections(report: Report) -> Iterator[Section]:
    from rlcorr_cli.plans.files import plan_to_toml
    from rlcorr_cli.show.figures import pictures

    remark = [] if report.profile == "canonical" else [OWN_DEFINITIONS]
    yield Section(heading="Key figures", anchor="figures", about=remark, figures=key_figures(report))
    todo = to_do(report)
    nothing = [] if todo else [_nothing_to_do(report)]
    yield Section(heading="What to do", anchor="todo", about=nothing, todo=todo)
    if tables := plan_tables(report):
        yield Section(heading="Correction", anchor="correction", tables=tables)
    if tables := objective_tables(report):
        yield Section(heading="Objective", anchor="objective", about=objective_sentences(report), tables=tables)
    yield Section(heading="Pictures", anchor="pictures", pictures=pictures(report))
    steps = report.by_step
    if steps:
        yield _groups_section(report, steps, heading="Steps", anchor="by-step")
    if report.groups and report.groups is not steps:
        yield _groups_section(report, report.groups, heading="Groups", anchor="by-group")
    if report.lags is not None:
        yield Section(heading="Lags", anchor="by-lag", about=list(lag_sentences(report)), tables=lag_tables(report))
    definitions = [define(name) for name in report.whole.metrics]
    symbols = symbols_in(" ".join(each.formula for each in definitions if each is not None))
    about = [SYMBOLS_BELOW] if symbols else []
    yield Section(heading="Metrics", anchor="all-metrics", about=about, tables=metric_tables(report), sorts=True)
    if symbols:
        yield Section(heading="Symbols", anchor="symbols", facts=list(symbols.items()), folds=True)
    if report.worst_rows is not None:
        from rlcorr_cli.show.token_rows import row_sections

        yield from row_sections(report.worst_rows, "Worst rows")
    read, *others = ending(_facts_of_report(report), [clean(note) for note in report.notes])
    yield read
    yield Section(heading="Plan", code=plan_to_toml(report.plan), folds=True)
    yield from others


LOST = "rollout_rs_masked_fraction"


def key_figures(report: Report) -> list[KeyFigure]:
    """The distance of the policies and the samples that are left; under a plan what it keeps, and its weights."""
    values, whole, figures = report.whole.values, marked_values(report), list[KeyFigure]()
    for name in (name for name in shown_at("figures") if name in values):
        ends, best = report.intervals.get(name), ideal(name)
        figures.append(
            KeyFigure(
                name=name,
                about=DEFINITIONS[name].figure,
                value=whole.cell(name),
                ends=interval(*ends) if ends else "",
                ideal="" if best is None else number(best),
                limit=_limit_in_words(name, report),
            )
        )
    lost = values.get(LOST)
    if report.plan.rules and lost is not None:
        asked = _limit_in_words(LOST, report)
        figures.append(
            KeyFigure(
                name="kept tokens",
                about="share that rejections keep",
                value=number_cell(1 - lost, share, whole.status_of.get(LOST, "")),
                ends="",
                ideal="100%",
                limit=asked and f"on the share lost: {asked}",
            )
        )
    return figures


def _broken_groups(report: Report) -> Iterator[tuple[str, str, str]]:
    """Each rule that groups break: its status, the worst value, and a sentence with its remedy, which is not said again
    where the rule is broken by the whole dump or by others above.  One that warns of the whole dump is not repeated."""
    remedies = {finding.remedy for finding in report.health if finding.broken}
    metrics = {finding.metric for finding in report.health if finding.broken}
    for broken in report.broken_in_groups:
        if broken.status == "warn" and broken.metric in metrics:
            continue
        lead, text = broken_group(broken)
        is_left_out = broken.metric in metrics or broken.remedy in remedies
        remedy = "" if is_left_out else broken.remedy
        remedies.add(broken.remedy)
        yield broken.status, lead, f"{text} {remedy}".rstrip()


def _limit_in_words(name: str, report: Report) -> str:
    """What the rule on a metric asks for: '<= 0.01'; empty where no rule is on it."""
    if report.impossible is not None and report.impossible.metric == name:
        return f"{number(ideal(name))}, up to chance"
    return next((finding.rule for finding in report.health if finding.metric == name), "")


def to_do(report: Report) -> list[tuple[str, str, str]]:
    """What is wrong beside the causes: its status, the finding, and its fix."""
    todo = list[tuple[str, str, str]]()
    if report.faults:
        act = f"Explain {' and '.join(report.causes)}"
        if report.cause is not None and report.cause.cause in report.faults:
            act = f"Fix {report.cause.cause}"
        todo.append(("fail", f"{act} first", "Then measure again: broken limits may only follow from it."))
    broken = worst_first(report.health)
    limits = [
        (rule.status, f"{rule.metric} is {number(rule.value)}, should be {rule.rule}", fix)
        for rule, fix in zip(broken, remedies_said_once(broken), strict=True)
    ]
    todo += sorted([*limits, *_broken_groups(report)], key=lambda each: each[0] != "fail")
    for takes, keeps, bounds in (bounds_sentences(bounds, report.profile) for bounds in report.advised_bounds):
        todo.append(("warn", takes, f"{keeps} {bounds}".rstrip()))
    return todo


def _groups_section(report: Report, groups: Sequence[Group], *, heading: str, anchor: str) -> Section:
    """A row per group: the usual few metrics, or a profile's own."""
    names = [name for name in shown_at("groups") if report.whole.metrics.get(name) is not None]
    if report.profile != "canonical":
        names = list(report.whole.metrics)[:MOST_PROFILE_COLUMNS]
    about = list(step_notes(report, groups)) if groups is report.by_step else list[str]()
    if len(groups) > MOST_IN_FILE:
        about.append(f"{_ends_and_worst_of(MOST_IN_FILE, len(groups), heading.lower())}. {ALL_GROUPS}")
        groups = _ends_and_worst(groups, MOST_IN_FILE)
    rows = list[tuple[Cell, ...]]()
    for group in groups:
        keys = [key_cell(clean_cut(value) if isinstance(value, str) else value) for value in group.key.values()]
        counts = [number_cell(group.counts[name], thousands) for name in ("sequences", "tokens")]
        status_of = worst_status(report.findings_on(group))
        shown = {name: reliable(name, group) if name in group.values else group.metrics[name] for name in names}
        values = (
            number_cell(value, number, "" if value is None else status_of.get(name, ""))
            for name, value in shown.items()
        )
        rows.append((*keys, *counts, *values))
    headings = (*map(clean_cut, groups[0].key), "sequences", "tokens", *names)
    table = Table(headings=headings, rows=tuple(rows), n_keys=len(groups[0].key))
    return Section(heading=heading, anchor=anchor, about=about, tables=[table], sorts=True)


SECTIONS = ("Divergence", "Sample size", "Weights", "Rejections", "Kept", "Other")
_OF_DIVERGENCE = {row.name for row in DIVERGENCE}
_OF_SAMPLE_SIZE = ("seq_ess", "token_ess", "pareto_k_", "extreme_token_fraction", "retention_")
_OF_REJECTIONS = ("rollout_rs_", "rollout_is_veto_", "rollout_is_catastrophic_")
_CANONICAL = {row.name: row.canonical for row in LOGGED}


def metric_tables(report: Report) -> list[Table]:
    """Every metric of a report, in tables by what it is about, with interval, ideal, limit and formula."""
    whole, values = marked_values(report), report.whole.metrics
    definitions = {name: define(name) for name in values}

    def value(name: str) -> str:
        """What is counted has all its digits and no decimals, but a mean of counts keeps its own."""
        definition, value = definitions[name], values[name]
        is_count = definition is not None and definition.unit in ("tokens", "sequences")
        is_whole = is_count and value is not None and float(value).is_integer()
        return thousands(int(value)) if is_whole and value is not None else metric_value(value, report.profile)

    def formula(name: str) -> str:
        definition = definitions[name]
        return "" if definition is None else definition.formula

    columns = (
        Column(heading="metric", cell=Cell),
        Column(heading="value", cell=lambda name: Cell(value(name), values[name], whole.status_of.get(name, ""))),
        Column(
            heading="95% interval",
            cell=lambda name: Cell(interval(*ends), ends[0]) if (ends := report.intervals.get(name)) else Cell(""),
        ),
        Column(heading="ideal", cell=lambda name: Cell("" if (best := ideal(name)) is None else number(best), best)),
        Column(heading="limit", cell=lambda name: Cell(_limit_in_words(name, report)), words=True),
        Column(heading="formula", cell=lambda name: Cell(formula(name)), words=True),
    )
    by_section = {section: [name for name in values if _section_of(name) == section] for section in SECTIONS}
    return [tabulated(names, columns, heading=section) for section, names in by_section.items() if names]


def _section_of(name: str) -> str:
    """The section of a metric under its own name or a framework's."""
    stem = _CANONICAL.get(name, name.rsplit("/", 1)[-1].removeprefix("mismatch_"))
    if stem in _OF_DIVERGENCE:
        return "Divergence"
    if stem.startswith("kept_"):
        return "Kept"
    if stem.startswith(_OF_SAMPLE_SIZE):
        return "Sample size"
    if stem.startswith(_OF_REJECTIONS):
        return "Rejections"
    return "Weights" if stem.startswith("rollout_is_") else "Other"


def _facts_of_report(report: Report) -> list[tuple[str, str]]:
    from rlcorr_cli.show.presets import plan_in_one_line

    counts, columns = report.whole.counts, report.inputs[0].columns
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name] or name == "tokens"]
    facts.append(("columns", ", ".join(_column_read(name, column) for name, column in columns.items())))
    facts.append(("plan", f"{clean(report.plan.name)}: {plan_in_one_line(report.plan)}"))
    facts.append(("profile", report.profile))
    for file in report.inputs[:FILES]:
        size = f"{plural(file.rows, 'row')}, {plural(file.n_bytes, 'byte')}"
        facts.append(("input", with_commas(clean_cut(file.path), size, last_change([file]))))
    if len(report.inputs) > FILES:
        facts.append(("input", f"and {len(report.inputs) - FILES:,} more"))
    return facts


def _column_read(name: str, column: str) -> str:
    """'reward from score'; the name alone where the column has it."""
    return clean_cut(name) if name == column else f"{clean_cut(name)} from {clean_cut(column)}"
