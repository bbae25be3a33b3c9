"""A comparison of plans on a terminal: which to take and why, then one line per plan."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.results.compared import Comparison, Sort
from rlcorr_cli.show.compared import (
    PLAN_NOTE,
    agreement,
    group_objective_note,
    group_objective_rows,
    group_rows,
    objective_notes,
    objective_rows,
    other_names,
    plan_rows,
    skipped,
)
from rlcorr_cli.show.inputs import named
from rlcorr_cli.show.numbers import amounts, duration, plural
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.terminal.report import print_anomalies, print_facts, print_rows

WIDE_ENOUGH = 104
"""Columns of a terminal that has room for all of a plan's."""
MOST_GROUPS = 40
"""Rows of groups on a terminal."""


def print_comparison(comparison: Comparison, sort: Sort = "worth") -> None:
    """Print the comparison on stdout."""
    render(lambda console: _draw(console, comparison, sort))


def _draw(console: Console, comparison: Comparison, sort: Sort) -> None:
    counts = comparison.whole.counts
    parts = [named(comparison.inputs), *amounts(counts, comparison.clusters)]
    parts += [plural(len(comparison.whole.plans), "plan"), duration(comparison.seconds)]
    print_facts(console, parts)
    console.print()
    print_anomalies(console, comparison.anomalies)
    recommendation = comparison.recommendation
    console.print(Padding(Text(recommendation.headline, style="bold"), (0, 2)))
    for reason in recommendation.reasons:
        print_item(console, reason.text, reason.option)
    if comparison.groups:
        print_item(console, agreement(comparison))
    console.print()
    is_narrow = console.width < WIDE_ENOUGH
    plans = plan_rows(comparison, sort, narrow=is_narrow)
    _, crowded_out = plans.within(console.width - 2)
    if crowded_out:
        plans = plan_rows(comparison, sort, narrow=is_narrow, with_other_names=False)
    print_rows(console, plans)
    of_objective = objective_rows(comparison, sort)
    if of_objective is not None:
        print_rows(console, of_objective)
    if comparison.groups:
        print_rows(console, group_rows(comparison, MOST_GROUPS))
    of_groups = group_objective_rows(comparison, MOST_GROUPS, sort)
    if of_groups is not None:
        print_rows(console, of_groups)
        print_quiet(console, group_objective_note(comparison, MOST_GROUPS))
    equal = other_names(comparison) if crowded_out else []
    for note in (*objective_notes(comparison), *equal, *skipped(comparison), *map(clean, comparison.notes)):
        print_quiet(console, note)
    print_quiet(console, PLAN_NOTE)


def print_item(console: Console, text: str, option: str = "") -> None:
    """Print a reason, and below it the option that it ends in, in one line to copy."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("*", text)
    console.print(Padding(grid, (0, 2)))
    if option:
        print_option(console, option)


def print_option(console: Console, option: str) -> None:
    """Print options in a line to copy, which is never broken."""
    console.print(Text(f"{' ' * 6}{option}"), soft_wrap=True)


def print_quiet(console: Console, text: str) -> None:
    """Print a note."""
    console.print(Padding(Text(text, style="dim"), (0, 2)))
