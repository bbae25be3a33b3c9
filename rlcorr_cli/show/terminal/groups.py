"""Groups on a terminal: a table when they are few; when they are many, their course and the worst of them."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.results.report import Group, Report
from rlcorr_cli.show.numbers import NOTHING, number, share, sparkline
from rlcorr_cli.show.stdout import clean, is_unicode
from rlcorr_cli.totals.families import Value

FEW = 24
WORST = 8
COURSE: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("k3_kl", max),
    ("seq_ess", min),
    ("ppl_ratio", max),
)
"""Metrics drawn over many groups, with which end is the worse one when several share a character."""
COUNTS = (("sequences", 5), ("tokens", 2))
Column = tuple[str, list[Text], int]
"""Heading, cells, rank."""


def print_groups(console: Console, report: Report) -> None:
    """Print every group up to FEW of them; of more, their course, the worst, the first and the last."""
    groups = report.groups
    if not groups:
        return
    if len(groups) <= FEW:
        _print_table(console, report, groups)
        return
    _print_course(console, groups)
    console.print(Padding(Text(ends_and_worst_of(WORST, len(groups)), style="dim"), (0, 2)))
    _print_table(console, report, ends_and_worst(groups, WORST))


def ends_and_worst(groups: Sequence[Group], n: int) -> Sequence[Group]:
    """The first, the last and the n groups with the largest k3_kl, in their order."""
    by_k3 = sorted(range(len(groups)), key=lambda i: -(groups[i].values.get("k3_kl") or 0.0))
    return [groups[i] for i in sorted({0, len(groups) - 1, *by_k3[:n]})]


def ends_and_worst_of(n: int, n_groups: int) -> str:
    """The same in words."""
    return f"first, last and the {n:,} groups with the largest k3_kl, of {n_groups:,}"


def _print_course(console: Console, groups: Sequence[Group]) -> None:
    """Print one line of characters per metric over the groups in order."""
    width = min(48, len(groups))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    name = ", ".join(groups[0].key)
    table.add_column(f"by {clean(name)}", no_wrap=True)
    table.add_column(f"{_label(groups[0])} .. {_label(groups[-1])}", no_wrap=True)
    table.add_column("worst", no_wrap=True)
    for metric, worse in COURSE:
        values = [group.values[metric] for group in groups]
        known = [v for v in values if v is not None]
        if not known:
            continue
        extreme = worse(known)
        at = groups[values.index(extreme)]
        table.add_row(
            metric,
            sparkline(_binned(values, width, worse), is_unicode()),
            f"{number(extreme)} at {', '.join(_shown(value) for value in at.key.values())}",
        )
    console.print(Padding(table, (0, 0, 1, 2)))


def _binned(values: Sequence[Value], width: int, worse: Callable[[Sequence[float]], float]) -> list[Value]:
    """`width` values, each the worse end of its share of the groups."""
    edges = [len(values) * i // width for i in range(width + 1)]
    bins = [[v for v in values[a:b] if v is not None] for a, b in pairwise(edges)]
    return [worse(part) if part else None for part in bins]


def _print_table(console: Console, report: Report, groups: Sequence[Group]) -> None:
    """Print a row per group, with as many columns as the console has room for; those of the highest rank go first."""
    keys = [[_shown(value) for value in (group.key[name] for group in groups)] for name in groups[0].key]
    columns = [
        (clean(name), [Text(cell) for cell in cells], -1) for name, cells in zip(groups[0].key, keys, strict=True)
    ]
    columns += _columns(report, groups)
    left_out: list[str] = []
    while sum(_width(heading, cells) + 2 for heading, cells, _ in columns) > console.width - 2:
        spare = max(columns, key=lambda column: column[2])
        if spare[2] < 1:
            break
        columns.remove(spare)
        left_out.append(spare[0])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading, _, rank in columns:
        table.add_column(heading, justify="left" if rank < 0 else "right", no_wrap=True, overflow="ellipsis")
    for row in zip(*(cells for _, cells, _ in columns), strict=True):
        table.add_row(*row)
    console.print(Padding(table, (0, 0, int(not left_out), 2)))
    if left_out:
        console.print(Padding(Text(f"no room here for {', '.join(left_out)}", style="dim"), (0, 0, 1, 2)))


def _columns(report: Report, groups: Sequence[Group]) -> list[Column]:
    """The columns of numbers in order, each with its rank: 0 always stays, the highest is the first to go."""
    metrics: list[tuple[str, str, Callable[[Value], str], int]] = [
        ("kl", "kl", number, 4),
        ("k3_kl", "k3_kl", number, 0),
        ("seq ESS", "seq_ess", number, 0),
        ("ppl ratio", "ppl_ratio", number, 3),
    ]
    if report.plan.weighting is not None:
        metrics.append(("IS ESS", "rollout_is_eff_sample_size", number, 1))
    if report.plan.rules:
        metrics.append(("lost", "rollout_rs_masked_fraction", share, 1))
    counts = [(name, [Text(f"{group.counts[name]:,}") for group in groups], rank) for name, rank in COUNTS]
    broken = [{finding.metric for finding in report.findings(group) if finding.broken} for group in groups]
    return counts + [
        (heading, [_cell(form(g.values[name]), name in wrong) for g, wrong in zip(groups, broken, strict=True)], rank)
        for heading, name, form, rank in metrics
    ]


def _width(heading: str, cells: Sequence[Text]) -> int:
    return max(len(heading), *(cell.cell_len for cell in cells))


def _shown(value: object) -> str:
    """A group's value, at most 24 characters of it."""
    text = NOTHING if value is None else clean(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def _cell(value: str, broken: bool) -> Text:
    """A number, marked where a rule on it is broken in that group."""
    return Text(f"{value} !", style="yellow") if broken else Text(f"{value}  ")


def _label(group: Group) -> str:
    return ", ".join(f"{clean(name)} {_shown(value)}" for name, value in group.key.items())
