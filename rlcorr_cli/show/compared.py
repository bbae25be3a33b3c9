"""A comparison's tables and sentences, which every form shows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlcorr_cli.results.compared import ComparedGroup, Comparison, Sort
from rlcorr_cli.results.recommend import PlanValues
from rlcorr_cli.show.cells import Cell, Rows, number_of
from rlcorr_cli.show.numbers import NOTHING, more, number, plural, share
from rlcorr_cli.show.objective import settings_sentences
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.totals.families import Value

PLAN_NOTE = "`rlcorr explain worth` defines a column, `rlcorr explain compare` tells how a plan is chosen."
HEADINGS: tuple[str, ...] = ("plan", "kept", "info", "worth", "A shift", "top 1 %", "length", "k3 left", "ESS")
OBJECTIVE_COLUMNS = {
    "loss": "loss",
    "clip_fraction": "clipped",
    "effective_sequences": "eff seqs",
    "cos_to_none": "to none",
    "cos_to_sequence_is": "to seq IS",
}
"""Metric of an objective -> its heading."""
OBJECTIVE_SPARE = ("objective", "clipped", "to seq IS", "eff seqs")
"""What goes first where a terminal has no room; a sentence names the objective."""
WIDE = ("length", "k3 left", "ESS")
"""Columns that a terminal of 80 has no room for."""
PLAN_SPARE = ("top 1 %", "A shift")
"""What goes first of these where names are long."""
NAMES_SHOWN = 3


def plan_rows(
    comparison: Comparison, sort: Sort = "worth", *, narrow: bool = False, with_other_names: bool = True
) -> Rows:
    """A row per plan; narrow: without the columns of WIDE.  Advantages that are all equal have no column of shifts.

    with_other_names: beside each plan's own; else `other_names` tells them.
    """
    plans = comparison.sorted_plans(sort)
    headings = [heading for heading in HEADINGS if not (narrow and heading in WIDE)]
    if all(plan.values["shift"] is None for plan in plans):
        headings.remove("A shift")
    shown = plans if with_other_names else [replace(plan, also=()) for plan in plans]
    return Rows(headings=tuple(headings), rows=tuple(_row(plan, headings) for plan in shown), spare=PLAN_SPARE)


def other_names(comparison: Comparison) -> list[str]:
    """Which plans are equal, in a sentence."""
    several = [
        f"{clean(plan.name)} is {', '.join(map(clean, plan.also))}, too" for plan in comparison.whole.plans if plan.also
    ]
    return [f"{'; '.join(several)}."] if several else []


def objective_rows(comparison: Comparison, sort: Sort = "worth") -> Rows | None:
    """A row per plan of what the objective makes of it; None without one."""
    reports = [(plan, plan.objective) for plan in comparison.sorted_plans(sort) if plan.objective is not None]
    if not reports:
        return None
    headings = tuple(OBJECTIVE_COLUMNS.values())
    rows = [
        (
            Cell(clean(plan.name)),
            Cell(report.objective.name),
            *(Cell(number(report.metrics[name]), report.metrics[name]) for name in OBJECTIVE_COLUMNS),
        )
        for plan, report in reports
    ]
    return Rows(
        headings=("plan", "objective", *headings), rows=tuple(rows), words=("objective",), spare=OBJECTIVE_SPARE
    )


def group_objective_rows(comparison: Comparison, most: int, sort: Sort = "worth") -> Rows | None:
    """A row per group and plan of what the objective makes of it; of over `most` the plan that is taken in each group.

    None without an objective or groups.
    """
    groups, names = comparison.groups, [plan.name for plan in comparison.sorted_plans(sort)]
    if not groups or not any(plan.objective_metrics for plan in groups[0].plans):
        return None
    takes_each = len(groups) * len(names) <= most
    rows: list[tuple[Cell, ...]] = []
    for group in groups[:most]:
        plans = {plan.name: plan for plan in group.plans}
        taken = group.recommendation.plan or comparison.recommendation.plan or names[0]
        rows += [_group_objective(group, plans[name]) for name in (names if takes_each else [taken])]
    keys = tuple(clean(name) for name in groups[0].key)
    if len(groups) > most:
        rows.append((Cell(more(len(groups) - most, "group")), *(Cell("") for _ in range(len(keys) + 5))))
    headings = (*keys, "plan", *OBJECTIVE_COLUMNS.values())
    return Rows(headings=headings, rows=tuple(rows), n_keys=len(keys), words=("plan",), spare=OBJECTIVE_SPARE[1:])


def _group_objective(group: ComparedGroup, plan: PlanValues) -> tuple[Cell, ...]:
    of_plan = {name.rpartition("/")[2]: value for name, value in plan.objective_metrics.items()}
    numbers = (Cell(number(of_plan.get(name)), of_plan.get(name)) for name in OBJECTIVE_COLUMNS)
    return *map(_key, group.key.values()), Cell(clean(plan.name)), *numbers


def objective_notes(comparison: Comparison) -> list[str]:
    """Which objectives they are, of which batches."""
    reports = [plan.objective for plan in comparison.whole.plans if plan.objective is not None]
    return list(dict.fromkeys(sentence for report in reports for sentence in settings_sentences(report)))


def group_objective_note(comparison: Comparison, most: int) -> str:
    """What the rows by group are of."""
    alone = "By group the numbers are those of its rows alone, as though they were the training batch."
    if len(comparison.groups) * len(comparison.whole.plans) <= most:
        return alone
    return f"{alone} Of each group the plan to take is shown; --json and .csv have all."


def skipped(comparison: Comparison) -> list[str]:
    """A sentence for each reason why plans are left out."""
    by_reason: dict[str, list[str]] = {}
    for plan in comparison.skipped:
        by_reason.setdefault(plan.why, []).append(clean(plan.name))
    return [f"Left out: {', '.join(names)}; {why}." for why, names in by_reason.items()]


def _row(plan: PlanValues, headings: Sequence[str]) -> tuple[Cell, ...]:
    cells = plan_cells(plan)
    return tuple(cells[heading] for heading in headings)


def plan_cells(plan: PlanValues) -> dict[str, Cell]:
    """What a plan leaves and costs, by heading."""
    values = plan.values
    names = ", ".join((plan.name, *plan.also[:NAMES_SHOWN]))
    return {
        "plan": Cell(clean(names)),
        "kept": Cell(share(values["kept"]), values["kept"]),
        "info": _three(values["info"]),
        "worth": _three(values["worth"]),
        "A shift": _shift(values),
        "length": _three(values["length"], 2),
        "k3 left": Cell(number(values["k3_left"]), values["k3_left"]),
        "top 1 %": Cell(share(values["top_1pct"]), values["top_1pct"]),
        "ESS": _three(values["ess"], 2),
    }


def _three(value: Value, decimals: int = 3) -> Cell:
    return Cell(NOTHING if value is None else f"{value:.{decimals}f}", value)


def _shift(values: Mapping[str, Value]) -> Cell:
    """'+0.05 ±0.17': with the half-width of a 95 % interval."""
    shift, error = values["shift"], values["shift_se"]
    if shift is None or error is None:
        return Cell(NOTHING)
    return Cell(f"{round(shift, 2) + 0.0:+.2f} ±{1.96 * error:.2f}", shift)


def group_rows(comparison: Comparison, most: int) -> Rows:
    """A row per group, the first `most` of them: what is recommended there."""
    keys = tuple(clean(name) for name in comparison.groups[0].key)
    rows = [(*map(_key, group.key.values()), *_group(group)) for group in comparison.groups[:most]]
    left = len(comparison.groups) - most
    if left > 0:
        rows.append((Cell(more(left, "group")), *(Cell("") for _ in range(len(keys) + 4))))
    headings = (*keys, "sequences", "seq_tv", "take", "worth", "flag")
    return Rows(headings=headings, rows=tuple(rows), n_keys=len(keys), words=("take", "flag"))


def _key(value: object) -> Cell:
    return Cell(clean(NOTHING if value is None else value), number_of(value))


def _group(group: ComparedGroup) -> tuple[Cell, ...]:
    taken = group.recommendation.plan
    worth = next((plan.values["worth"] for plan in group.plans if plan.name == taken), None)
    return (
        Cell(f"{group.counts['sequences']:,}", group.counts["sequences"]),
        Cell(share(group.metrics["seq_tv"]), group.metrics["seq_tv"]),
        Cell(clean(taken or "cannot tell")),
        _three(worth),
        Cell(", ".join(group.recommendation.flags)),
    )


def agreement(comparison: Comparison) -> str:
    """Whether the recommendation holds in all groups."""
    n, others, undecided = len(comparison.groups), comparison.disagreeing, comparison.undecided
    if len(undecided) == n:
        return "No group can tell by itself."
    abstaining = f"{plural(len(undecided), 'group')} cannot tell" if undecided else ""
    if comparison.recommendation.plan is None:
        return f"Of {plural(n, 'group')} {n - len(undecided)} can tell by themselves."
    if not others:
        return (
            f"It holds in all {n} groups." if not abstaining else f"It holds in all groups that can tell; {abstaining}."
        )
    first = others[0]
    key = ", ".join(f"{clean(name)} {clean(value)}" for name, value in first.key.items())
    where = f"In {len(others)} of {n} groups another does better: {clean(first.recommendation.plan)} at {key}"
    return f"{where}{', for example' if len(others) > 1 else ''}." + (f" {abstaining}." if abstaining else "")
