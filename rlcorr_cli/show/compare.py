"""What a comparison of plans says: which to take and why, a row for each plan, what an objective makes of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rlcorr_cli.results.compared import ComparedGroup, Comparison
from rlcorr_cli.results.recommend import PlanValues
from rlcorr_cli.show.correction import settings_sentences
from rlcorr_cli.show.document import (
    BLANK,
    MOST_IN_FILE,
    MOST_ON_TERMINAL,
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Note,
    Panel,
    Picture,
    Section,
    Table,
    group_table,
    json_text,
    key_columns,
    key_words,
    number_cell,
    scope_of,
    tabulated,
    what_was_read,
)
from rlcorr_cli.show.inputs import last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import NOTHING, amounts, decimals, duration, plural, share, thousands
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import anomaly_cause, anomaly_notes, story_cause, story_notes
from rlcorr_cli.totals.view import Value, Values

PLAN_NOTE = (
    "`rlcorr presets PLAN --for verl` prints a plan's lines for a framework's config. `rlcorr explain worth` defines a "
    "column, `rlcorr help choosing` tells how a plan is chosen."
)
STATUS = {"near": "ok", "weight": "ok", "outliers": "warn", "moved": "warn", "far": "fail"}
"""The headline flag -> how the recommendation looks."""
NAMES_SHOWN = 3


def _shift_cell(values: Mapping[str, Value]) -> Cell:
    """'+0.05 ±0.17': with the half-width of a 95% interval."""
    shift, error = values["shift"], values["shift_se"]
    if shift is None or error is None:
        return Cell(NOTHING)
    return Cell(f"{round(shift, 2) + 0.0:+.2f} ±{1.96 * error:.2f}", shift)


def _plan_names(plan: PlanValues) -> Cell:
    return Cell(clean(", ".join((plan.name, *plan.also[:NAMES_SHOWN]))), short=clean(plan.name))


SHIFT = "advantage error"
PLAN_COLUMNS: tuple[Column, ...] = (
    Column(heading="plan", cell=_plan_names),
    Column(heading="kept", cell=lambda plan: number_cell(plan.values["kept"], share), drop=1),
    Column(heading="info", cell=lambda plan: number_cell(plan.values["info"], decimals(3)), drop=2),
    Column(heading="worth", cell=lambda plan: number_cell(plan.values["worth"], decimals(3))),
    Column(heading=SHIFT, cell=lambda plan: _shift_cell(plan.values), drop=3),
    Column(heading="top 1%", cell=lambda plan: number_cell(plan.values["top_1pct"], share), drop=4),
    Column(heading="length", cell=lambda plan: number_cell(plan.values["length"], decimals(2)), wide=True),
    Column(heading="k3 left", cell=lambda plan: number_cell(plan.values["k3_left"]), wide=True),
    Column(heading="ESS", cell=lambda plan: number_cell(plan.values["ess"], decimals(2)), wide=True),
)


def _objective_column(heading: str, name: str, drop: int = 0) -> Column:
    """A number that the objective has of a plan; rows are a group, a plan and its numbers."""
    return Column(heading=heading, cell=lambda row: number_cell(row[2].get(name)), drop=drop)


OBJECTIVE_COLUMNS = (
    _objective_column("loss", "loss"),
    _objective_column("clipped", "clip_fraction", drop=3),
    _objective_column("eff seqs", "effective_sequences", drop=1),
    _objective_column("to none", "cos_to_none"),
    _objective_column("to seq IS", "cos_to_sequence_is", drop=2),
)
OBJECTIVE_NAME = Column(heading="objective", cell=lambda row: Cell(row[1].objective.objective.name), words=True, drop=4)


def document(comparison: Comparison) -> Document:
    """What a comparison says."""
    best, counts = comparison.recommendation, comparison.whole.counts
    return Document(
        lines=_lines(comparison),
        command="compare",
        title=name_of_inputs(comparison.inputs),
        summary=with_commas(
            *amounts(counts, comparison.clusters),
            plural(len(comparison.whole.plans), "plan"),
            last_change(comparison.inputs),
        ),
        causes=[
            *([story_cause(comparison.story)] if comparison.story.effect == "warning" else []),
            *(anomaly_cause(each) for each in comparison.anomalies),
        ],
        headline=best.headline,
        status=_recommendation_status(comparison),
        reasons=[f"{reason.text} `{reason.option}`".removesuffix(" ``") for reason in best.reasons],
        sections=_sections(comparison),
        json=json_text(comparison.to_dict),
        records=_records(comparison),
    )


def _recommendation_status(comparison: Comparison) -> str:
    """Of the recommendation: "ok" where it may be taken as it is, "fail" where something else comes first."""
    best = comparison.recommendation
    if best.plan is None or comparison.story.is_fault:
        return "fail"
    status = STATUS[best.flags[0]]
    return "warn" if best.far_end and status == "ok" else status


def _lines(comparison: Comparison) -> Iterator[Block]:
    facts = [name_of_inputs(comparison.inputs), *amounts(comparison.whole.counts, comparison.clusters)]
    yield Facts([*facts, plural(len(comparison.whole.plans), "plan"), duration(comparison.seconds)])
    yield BLANK
    story = comparison.story
    # A fault is said by the recommendation itself.
    yield from story_notes(story) if not story.is_fault else ()
    yield from anomaly_notes([each for each in comparison.anomalies if each.name not in story.fault_names])
    yield Note(comparison.recommendation.headline, "bold")
    for reason in comparison.recommendation.reasons:
        yield Note(reason.text, bullet=True, option=reason.option)
    if comparison.groups:
        yield Note(plans_agreement(comparison), bullet=True)
    yield BLANK
    yield plan_table(comparison)
    if (objective := _objective_table(comparison)) is not None:
        yield objective
    if comparison.groups:
        yield group_table(comparison.groups, GROUP_COLUMNS, MOST_ON_TERMINAL)
    if (of_groups := _group_objective_table(comparison, MOST_ON_TERMINAL)) is not None:
        yield of_groups
        yield Note(_group_objective_note(comparison, MOST_ON_TERMINAL), "dim")
    for note in (*_objective_notes(comparison), *_left_out_and_notes(comparison), PLAN_NOTE):
        yield Note(note, "dim")


def _sections(comparison: Comparison) -> Iterator[Section]:
    yield Section(pictures=[comparison_picture(comparison)])
    yield Section(heading="Plans", about=[PLAN_NOTE], tables=[plan_table(comparison)], sorts=True)
    objective, of_groups = _objective_table(comparison), _group_objective_table(comparison, MOST_IN_FILE)
    if objective is not None:
        about = [" ".join(_objective_notes(comparison))]
        yield Section(heading="Objective", about=about, tables=[objective], sorts=True)
    if comparison.groups:
        table = group_table(comparison.groups, GROUP_COLUMNS, MOST_IN_FILE)
        yield Section(heading="Groups", about=[plans_agreement(comparison)], tables=[table], sorts=True)
    if of_groups is not None:
        about = [_group_objective_note(comparison, MOST_IN_FILE)]
        yield Section(heading="Objective by group", about=about, tables=[of_groups], sorts=True)
    columns = comparison.inputs[0].columns.values()
    yield from what_was_read(comparison.whole.counts, columns, comparison.inputs, _left_out_and_notes(comparison))


def plan_table(comparison: Comparison) -> Table:
    """A row per plan.  Advantages that are all equal have no column of shifts."""
    plans = comparison.sorted_plans()
    has_shift = any(plan.values["shift"] is not None for plan in plans)
    columns = [column for column in PLAN_COLUMNS if column.heading != SHIFT or has_shift]
    others = [f"{clean(plan.name)} is the same as {', '.join(map(clean, plan.also))}" for plan in comparison.whole.plans
              if plan.also]  # fmt: skip
    return tabulated(plans, columns, note=f"{'; '.join(others)}." if others else "")


def _objective_table(comparison: Comparison) -> Table | None:
    """A row per plan of what the objective makes of it; None without one."""
    rows = [(None, plan, plan.objective.metrics) for plan in comparison.sorted_plans() if plan.objective is not None]
    columns = (Column(heading="plan", cell=lambda row: Cell(clean(row[1].name))), OBJECTIVE_NAME, *OBJECTIVE_COLUMNS)
    return tabulated(rows, columns) if rows else None


def _group_objective_table(comparison: Comparison, most: int) -> Table | None:
    """A row per group and plan of what the objective makes of it; of over `most` the plan that is taken in each group.

    None without an objective or groups.
    """
    groups, names = comparison.groups, [plan.name for plan in comparison.sorted_plans()]
    if not groups or not any(plan.objective_metrics for plan in groups[0].plans):
        return None
    takes_each, rows = len(groups) * len(names) <= most, list[tuple[ComparedGroup, PlanValues | None, Values]]()
    for group in groups[:most]:
        plans = {plan.name: plan for plan in group.plans}
        taken = group.recommendation.plan or comparison.recommendation.plan or names[0]
        for plan in (plans[name] for name in (names if takes_each else [taken])):
            numbers = {name.rpartition("/")[2]: value for name, value in plan.objective_metrics.items()}
            rows.append((group, plan, numbers))
    columns = key_columns(groups[0].key)
    keys = [replace(column, cell=lambda row, column=column: column.cell(row[0])) for column in columns]
    plan_column = Column(heading="plan", cell=lambda row: Cell(clean(row[1].name)), words=True)
    rows += [(group, None, {}) for group in groups[most:]]
    n_shown = len(rows) - max(len(groups) - most, 0)
    return tabulated(rows, [*keys, plan_column, *OBJECTIVE_COLUMNS], most=n_shown, noun="group", n_keys=len(keys))


def _group_objective_note(comparison: Comparison, most: int) -> str:
    """What the rows by group are of."""
    alone = "Numbers of a group use its rows alone, as if they were the training batch."
    if len(comparison.groups) * len(comparison.whole.plans) <= most:
        return alone
    return f"{alone} The best plan of each group is shown; --json and .csv have all."


def _worth_there(group: ComparedGroup) -> Value:
    """The worth of the plan that is taken in a group."""
    taken = group.recommendation.plan
    return next((plan.values["worth"] for plan in group.plans if plan.name == taken), None)


GROUP_COLUMNS = (
    Column(heading="sequences", cell=lambda group: number_cell(group.counts["sequences"], thousands)),
    Column(heading="seq_tv", cell=lambda group: number_cell(group.metrics["seq_tv"], share)),
    Column(heading="take", cell=lambda group: Cell(clean(group.recommendation.plan or "cannot tell")), words=True),
    Column(heading="worth", cell=lambda group: number_cell(_worth_there(group), decimals(3))),
    Column(heading="flag", cell=lambda group: Cell(", ".join(group.recommendation.flags)), words=True),
)


def _objective_notes(comparison: Comparison) -> list[str]:
    """Which objectives they are, of which batches."""
    reports = [plan.objective for plan in comparison.whole.plans if plan.objective is not None]
    return list(dict.fromkeys(sentence for report in reports for sentence in settings_sentences(report)))


def _left_out_and_notes(comparison: Comparison) -> list[str]:
    """A sentence for each reason why plans are left out, then the comparison's own notes."""
    by_reason: dict[str, list[str]] = {}
    for plan in comparison.skipped:
        by_reason.setdefault(plan.why, []).append(clean(plan.name))
    skipped = [f"Left out: {', '.join(names)}; {why}." for why, names in by_reason.items()]
    return [*skipped, *map(clean, comparison.notes)]


def plans_agreement(comparison: Comparison) -> str:
    """Whether the recommendation holds in all groups."""
    n, others, undecided = len(comparison.groups), comparison.disagreeing, comparison.undecided
    if len(undecided) == n:
        return "No group has enough data by itself."
    abstaining = f"{plural(len(undecided), 'group')} have too little data" if undecided else ""
    if comparison.recommendation.plan is None:
        return f"{n - len(undecided)} of {plural(n, 'group')} have enough data by themselves."
    if not others and abstaining:
        return f"It holds in all groups with enough data; {abstaining}."
    if not others:
        return f"The same plan is best in all {n} groups."
    example = f"{clean(others[0].recommendation.plan)} at {key_words(others[0].key)}"
    where = f"In {len(others)} of {n} groups another plan is better: {example}"
    return f"{where}{', for example' if len(others) > 1 else ''}." + (f" {abstaining}." if abstaining else "")


def comparison_picture(comparison: Comparison) -> Picture:
    """What each plan is worth, and what it keeps."""
    from rlcorr_cli.show.figures import comparisons

    return Picture(
        panels=[
            Panel("Worth of each plan", partial(comparisons.worth, comparison)),
            Panel("What is kept, and how far apart it is", partial(comparisons.kept, comparison)),
        ]
    )


def _records(comparison: Comparison) -> Iterator[Mapping[str, Any]]:
    """A line for each value of every plan, of the whole dump and of each group."""
    keys = tuple(comparison.groups[0].key) if comparison.groups else ()
    for group in (comparison.whole, *comparison.groups):
        of_group = scope_of(group.key, keys)
        for plan in group.plans:
            for name, value in {**plan.values, **plan.objective_metrics}.items():
                low, high = plan.intervals.get(name, (None, None))
                values = {"plan": plan.name, "column": name, "value": value, "low": low, "high": high}
                yield of_group | values
