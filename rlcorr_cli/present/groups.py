"""Groups on a terminal: a table when they are few; when they are many, their course and the worst of them."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.health import RULES
from rlcorr_cli.moments import Value
from rlcorr_cli.present.numbers import number, share, sparkline
from rlcorr_cli.present.sink import clean, is_unicode
from rlcorr_cli.report import Group, Report

FEW = 24
WORST = 8
COURSE: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (
    ("k3_kl", max),
    ("seq_ess", min),
    ("ppl_ratio", max),
)
"""Metrics drawn over many groups, with which end is the worse one when several share a character."""


def print_groups(console: Console, report: Report) -> None:
    """Nothing without groups; every group up to FEW of them; else their course, the worst, the first and the last."""
    groups = report.groups
    if not groups:
        return
    if len(groups) <= FEW:
        _print_table(console, report, groups)
        return
    _print_course(console, groups)
    worst = sorted(groups, key=lambda g: -(g.values["k3_kl"] or 0.0))[:WORST]
    shown = [g for g in groups if g in worst or g in (groups[0], groups[-1])]
    console.print(
        Padding(
            Text(f"first, last and the {WORST} groups with the largest k3_kl, of {len(groups):,}", style="dim"), (0, 2)
        )
    )
    _print_table(console, report, shown)


def _print_course(console: Console, groups: Sequence[Group]) -> None:
    """One line of characters per metric over the groups in order."""
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
            f"{number(extreme)} at {', '.join(clean(value) for value in at.key.values())}",
        )
    console.print(Padding(table, (0, 0, 1, 2)))


def _binned(values: Sequence[Value], width: int, worse: Callable[[Sequence[float]], float]) -> list[Value]:
    """`width` values, each the worse end of its share of the groups."""
    edges = [len(values) * i // width for i in range(width + 1)]
    bins = [[v for v in values[a:b] if v is not None] for a, b in pairwise(edges)]
    return [worse(part) if part else None for part in bins]


def _print_table(console: Console, report: Report, groups: Sequence[Group]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in groups[0].key:
        table.add_column(clean(column), overflow="ellipsis", max_width=24, no_wrap=True)
    shown: list[tuple[str, str, Callable[[Value], str]]] = [
        ("sequences", "", str),
        ("tokens", "", str),
        ("kl", "kl", number),
        ("k3_kl", "k3_kl", number),
        ("seq ESS", "seq_ess", number),
        ("ppl ratio", "ppl_ratio", number),
    ]
    if report.plan.weighting is not None:
        shown.append(("IS ESS", "rollout_is_eff_sample_size", number))
    if report.plan.rejections:
        shown.append(("lost", "rollout_rs_masked_fraction", share))
    for heading, _, _ in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for group in groups:
        cells = [Text(clean("–" if value is None else value)) for value in group.key.values()]
        for heading, metric, form in shown:
            if metric:
                cells.append(_cell(metric, group.values[metric], form))
            else:
                cells.append(Text(f"{group.counts[heading]:,}"))
        table.add_row(*cells)
    console.print(Padding(table, (0, 0, 1, 2)))


def _cell(metric: str, value: Value, form: Callable[[Value], str]) -> Text:
    broken = value is not None and any(rule.metric == metric and not rule.holds(value) for rule in RULES)
    return Text(f"{form(value)} !", style="yellow") if broken else Text(f"{form(value)}  ")


def _label(group: Group) -> str:
    return ", ".join(f"{clean(name)} {clean(value)}" for name, value in group.key.items())
