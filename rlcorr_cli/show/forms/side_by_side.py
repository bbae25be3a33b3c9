"""The Sheet of dumps side by side: what it says in every form, and its panels."""

from collections.abc import Iterator
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.results.side_by_side import DumpColumn, SideBySide
from rlcorr_cli.show.figures import Axes, style
from rlcorr_cli.show.forms.sheet import Panel, Section, Sheet
from rlcorr_cli.show.inputs import FILES, joined, last_change, named
from rlcorr_cli.show.numbers import plural
from rlcorr_cli.show.side_by_side import (
    NOTE,
    anomalies,
    dump_rows,
    headline,
    legend,
    notes,
    plan_rows,
    recommendations,
)
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import anomaly_cause

MOST_DRAWN = 40


def sheet(sides: SideBySide) -> Sheet:
    """What the dumps say beside each other."""
    sections = [Section("Dumps", NOTE, dump_rows(sides.dumps))]
    panels = [Panel("How far apart the policies are", lambda axes: _apart(axes, sides))]
    if sides.plan is not None:
        sections.append(Section("Plan", f"What {clean(sides.plan.name)} leaves.", plan_rows(sides.dumps, "column")))
        panels.append(Panel(f"What {clean(sides.plan.name)} leaves", lambda axes: _left(axes, sides)))
    return Sheet(
        title="Dumps side by side",
        summary="; ".join(
            joined(f"{name}: {' '.join(text.split())}", last_change(dump.comparison.inputs))
            for (name, text), dump in zip(legend(sides), sides.dumps, strict=True)
        ),
        headline=headline(sides),
        status="warn" if any(dump.comparison.recommendation.plan is None for dump in sides.dumps) else "ok",
        sections=sections,
        panels=panels,
        facts=[
            *(
                (f"{dump.name}, {clean(source.path)}", joined(plural(source.rows, "row"), last_change([source])))
                for dump in sides.dumps
                for source in dump.comparison.inputs[:FILES]
            ),
            ("rlcorr", __version__),
        ],
        notes=notes(sides),
        document=sides.to_dict(),
        records=list(_records(sides)),
        reasons=recommendations(sides),
        causes=[anomaly_cause(anomaly, name) for name, anomaly in anomalies(sides)],
    )


def _records(sides: SideBySide) -> Iterator[dict[str, Any]]:
    """A line for each number of every dump; plan is empty of what is the dump's own."""
    for dump in sides.dumps:
        tables = [(None, dump.metrics, dump.comparison.intervals)]
        tables += [] if dump.plan is None else [(dump.plan.name, dump.plan.values, dump.plan.intervals)]
        for plan, values, intervals in tables:
            for name, value in values.items():
                low, high = intervals.get(name, (None, None))
                yield {
                    "dump": dump.name,
                    "path": dump.path,
                    "plan": plan,
                    "name": name,
                    "value": value,
                    "low": low,
                    "high": high,
                }


def _apart(axes: Axes, sides: SideBySide) -> str:
    """A bar for each dump: how far sequences are apart, and within it tokens."""
    dumps = _listed(axes, sides)
    for place, dump in enumerate(dumps):
        axes.barh(place, dump.metrics["seq_tv"] or 0.0, color=style.GRID, height=0.7)
        axes.barh(place, dump.metrics["token_tv"] or 0.0, color=style.BLUE, height=0.7)
        if (ends := dump.comparison.intervals.get("seq_tv")) is not None:
            axes.plot(ends, [place, place], color=style.GREY, linewidth=1)
    axes.set_xlabel("total variation of tokens (bar), of sequences (pale; line: 95 %)")
    return headline(sides)


def _left(axes: Axes, sides: SideBySide) -> str:
    """A bar for each dump: what the plan leaves (pale) and is worth (full)."""
    for place, dump in enumerate(_listed(axes, sides)):
        assert dump.plan is not None
        axes.barh(place, dump.plan.info, color=style.GRID, height=0.7)
        axes.barh(place, dump.plan.worth, color=style.BLUE, height=0.7)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("worth (bar), info (pale)")
    left_out = len(sides.dumps) - MOST_DRAWN
    return f"{plural(left_out, 'dump')} are not drawn." if left_out > 0 else ""


def _listed(axes: Axes, sides: SideBySide) -> list[DumpColumn]:
    """The dumps that are drawn, from the bottom, with their names beside the axis."""
    dumps = list(reversed(sides.dumps[:MOST_DRAWN]))
    names = [style.label(f"{dump.name}  {named(dump.comparison.inputs)}") for dump in dumps]
    axes.set_yticks(range(len(dumps)), names, fontsize=7)
    axes.grid(axis="y", visible=False)
    return dumps
