"""A comparison of two dumps as a sheet: its page, Markdown, table and picture."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from rlcorr_cli import __version__
from rlcorr_cli.results.diffed import Change, Diff, ordered
from rlcorr_cli.show.check import where
from rlcorr_cli.show.diffed import METHOD, detectable, headline, other_rows, rows, sides, title
from rlcorr_cli.show.figures import Axes, style, ticks
from rlcorr_cli.show.forms.sheet import Panel, Section, Sheet
from rlcorr_cli.show.inputs import joined, last_change
from rlcorr_cli.show.numbers import plural
from rlcorr_cli.show.stdout import clean

MOST_ROWS = 40
Named = Sequence[tuple[str, Change]]
SINGLE = "Intervals are of single metrics; what moved is judged over all of them (Holm)."


def sheet(diff: Diff) -> Sheet:
    """What the comparison says."""
    return Sheet(
        title=title(diff),
        summary="; ".join(
            joined(f"{name}: {' '.join(text.split())}", last_change(report.inputs))
            for (name, text), report in zip(sides(diff), (diff.a, diff.b), strict=True)
        ),
        headline=headline(diff),
        status="warn" if diff.moved else "ok",
        sections=list(_sections(diff)),
        panels=list(_panels(diff)),
        facts=[
            *(
                (f"{name}, {clean(source.path)}", joined(plural(source.rows, "row"), last_change([source])))
                for name, report in (("A", diff.a), ("B", diff.b))
                for source in report.inputs
            ),
            ("rlcorr", __version__),
        ],
        notes=[*map(clean, diff.notes), METHOD],
        document=diff.to_dict(),
        records=list(_records(diff)),
    )


def _sections(diff: Diff) -> Iterator[Section]:
    for section in diff.sections:
        name = where(section.key, 100)
        yield Section(f"{name[0].upper()}{name[1:]}", detectable(section, diff.min_effect), rows(section))
        if section.not_tested:
            yield Section(f"Not tested: {name}", "", other_rows(section))


def _records(diff: Diff) -> Iterator[Mapping[str, object]]:
    """A line for each metric of each section."""
    columns = {name: None for section in diff.sections for name in section.key}
    for section in diff.sections:
        for name, change in (*section.metrics.items(), *section.not_tested.items()):
            yield {**columns, **section.key, "metric": name, **change.to_dict()}


def _panels(diff: Diff) -> Iterator[Panel]:
    """The family's factors, its differences, and the leading metric in each group."""
    known = [(name, change) for name, change in ordered(diff.whole.metrics) if change.low is not None]
    for scale, heading in (("ratio", "B over A"), ("difference", "B less A")):
        if of_scale := [(name, change) for name, change in known if change.scale == scale]:
            yield Panel(heading, partial(_forest, of_scale, SINGLE if scale == known[0][1].scale else ""))
    if not known:
        return
    leading, of_whole = known[0]
    of_groups = [
        (where(section.key), section.metrics[leading])
        for section in diff.sections[1:]
        if section.metrics[leading].low is not None and section.metrics[leading].scale == of_whole.scale
    ]
    if of_groups:
        left_out = f"{len(of_groups) - MOST_ROWS:,} groups are left out." if len(of_groups) > MOST_ROWS else ""
        yield Panel(f"{leading} by group", partial(_forest, of_groups[:MOST_ROWS], left_out))


def _forest(changes: Named, words: str, ax: Axes) -> str:
    """A row each: a dot and its interval, filled and coloured where the metric moved; words: what stands below."""
    is_ratio = changes[0][1].scale == "ratio"
    for place, (_, change) in enumerate(changes):
        low, middle, high = (float(end or 0.0) for end in (change.low, change.change, change.high))
        color, label = (style.RED, "moved") if change.moved else (style.GREY, "no evidence")
        known_labels = ax.get_legend_handles_labels()[1]
        ax.plot([low, high], [place, place], color=color, linewidth=2)
        ax.plot(
            middle,
            place,
            "o",
            color=color,
            markersize=6,
            markerfacecolor=color if change.moved else style.PAPER,
            label="_" if label in known_labels else label,
        )
    ax.axvline(1.0 if is_ratio else 0.0, color=style.INK, linewidth=1)
    ax.set_yticks(range(len(changes)), [style.label(name) for name, _ in changes])
    ax.set_ylim(len(changes) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    if is_ratio:
        low, high = min(change.low or 1.0 for _, change in changes), max(change.high or 1.0 for _, change in changes)
        ax.set_xscale("log")
        ticks.logarithmic(ax.xaxis, min(low, 0.9) / 1.05, max(high, 1.1) * 1.05)
    else:
        ticks.linear(ax.xaxis)
    ax.set_xlabel(f"{'factor' if is_ratio else 'difference'}, 95 % interval")
    return words
