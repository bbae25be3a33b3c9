"""A comparison in words: the sentence that says what moved, and the table below it, for every form."""

import os
from collections.abc import Iterator

from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.results.diffed import LEVEL, Change, Diff, DiffSection, Pairs, ordered
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.document import Cell
from rlcorr_cli.show.document import Table as Rows
from rlcorr_cli.show.numbers import NOTHING, amounts, interval, more, number, plural, signed
from rlcorr_cli.show.stdout import clean

METHOD = (
    "95 % intervals and p from 200 Poisson bootstrap replicates of prompts (of rollouts, where the dumps tell no "
    "prompts), paired where both dumps hold them; Holm's p over all metrics that are tested, of every group."
)
NO_EVIDENCE = "no evidence"
HEADINGS = ("metric", "A", "B", "change", "95 %", "p Holm")
SPARE = ("95 %", "A")
"""What goes where numbers are too long for a terminal; --json has all."""
SIDES = {
    "training": "The training policy's log-probs moved, the rollout's are the same.",
    "rollout": "The rollout policy's log-probs moved, the training's are the same.",
    "both": "Both policies' log-probs moved.",
    "neither": "Neither policy's mean log-prob moved.",
}


def headline(diff: Diff) -> str:
    """What moved most and by how much; whether rows pair; which policy moved."""
    return " ".join(filter(None, (_what_moved(diff), paired(diff.pairs), _which_side(diff))))


def title(diff: Diff) -> str:
    """The names of both."""
    return " against ".join(of_report(report).split("  ")[0] for report in (diff.a, diff.b))


def _what_moved(diff: Diff) -> str:
    whole = ordered(diff.whole.metrics)
    name, change = whole[0]
    if not change.moved:
        groups = len({tuple(key.items()) for key, _, _ in diff.moved})
        return f"Moved in {plural(groups, 'group')}, not as a whole." if groups else _nothing_moved(diff)
    signs = {_is_farther(change) for _, change in whole if change.moved}
    what = "differs from A" if len(signs) > 1 else "is farther apart" if signs.pop() else "is closer"
    if change.scale == "ratio":
        return f"B {what}: {name} is {_factor(change.change)} times A's ({ends(change)})."
    return f"B {what}: {name} is {number(change.b)}, A's is {number(change.a)} (change {ends(change)})."


def _is_farther(change: Change) -> bool:
    return abs(change.b or 0.0) > abs(change.a or 0.0)


def _nothing_moved(diff: Diff) -> str:
    if all(change.a == change.b for change in diff.whole.metrics.values()) and diff.pairs and diff.pairs.both:
        return "B has A's numbers."
    if diff.is_too_few:
        a, b = ("none" if report.clusters is None else report.clusters.counted for report in (diff.a, diff.b))
        return f"Too few to tell: A has {a} and B {b}, and a test takes {FEWEST_CLUSTERS}."
    if diff.is_rounding:
        return "The policies are equal but for rounding in both: nothing is compared."
    smallest = diff.whole.metrics["k3_kl"]
    if smallest.smallest is None or smallest.scale != "ratio":
        return "No evidence that B differs from A."
    share = 100 * (max(smallest.smallest, 1 + diff.min_effect) - 1)
    return f"No evidence that B differs from A; k3_kl would have to change by {share:.0f} %."


def paired(pairs: Pairs | None) -> str:
    """Which rows both hold."""
    if pairs is None:
        return ""
    about = "" if pairs.exact else "about "
    if not pairs.both:
        return "No rows pair."
    if not pairs.only_a and not pairs.only_b:
        text = f"All {pairs.both:,} rows pair" if pairs.both > 1 else "The one row pairs"
    else:
        rows = f"{plural(pairs.both, 'row')} {'pairs' if pairs.both == 1 else 'pair'}"
        text = f"{about}{rows} ({pairs.only_a:,} in A alone, {pairs.only_b:,} in B alone)"
    if pairs.other_text:
        text += f", {about}{pairs.other_text:,} of them with another text"
    return f"{text[0].upper()}{text[1:]}."


def _which_side(diff: Diff) -> str:
    if diff.side is None or not diff.moved:
        return ""
    return SIDES[diff.side.moved]


def rows(section: DiffSection) -> Rows:
    """The table of a section's family, what moved first."""
    return _table(ordered(section.metrics))


def other_rows(section: DiffSection) -> Rows:
    """The same of what is not tested, without p."""
    rows = tuple(_row(*item)[:-1] for item in section.not_tested.items())
    return Rows(headings=HEADINGS[:-1], rows=rows, spare=SPARE)


def _table(changes: list[tuple[str, Change]]) -> Rows:
    return Rows(headings=HEADINGS, rows=tuple(_row(name, change) for name, change in changes), spare=SPARE)


def _row(name: str, change: Change) -> tuple[Cell, ...]:
    return (
        Cell(name),
        Cell(number(change.a), change.a),
        Cell(number(change.b), change.b),
        Cell(_changed(change), change.change),
        Cell(ends(change), change.low),
        Cell(_evidence(change), change.p_holm, "warn" if change.moved else ""),
    )


def ends(change: Change) -> str:
    """Its 95 % interval."""
    if change.low is None or change.high is None:
        return NOTHING
    if change.scale == "ratio":
        return f"{_factor(change.low)} .. {_factor(change.high)}"
    return interval(change.low, change.high)


def _changed(change: Change) -> str:
    if change.change is None:
        return NOTHING
    return f"x {_factor(change.change)}" if change.scale == "ratio" else signed(change.change)


def _factor(factor: float | None) -> str:
    """Three digits are what a factor is known to, zeros at their end among them."""
    return NOTHING if factor is None else f"{factor:#.3g}".rstrip(".")


def _evidence(change: Change) -> str:
    if change.p_holm is None:
        return NOTHING
    if change.moved:
        return "< 1e-9" if change.p_holm < 1e-9 else f"{change.p_holm:.2g}"
    return NO_EVIDENCE if change.p_holm >= LEVEL else "too small"


def detectable(section: DiffSection, min_effect: float) -> str:
    """What would have been seen of the metrics without evidence."""
    unseen = [
        f"{name} {_seen(change, min_effect)}"
        for name, change in section.metrics.items()
        if change.p_holm is not None and change.p_holm >= LEVEL
    ]
    return f"Would have been seen: {', '.join(unseen)}." if unseen else ""


def _seen(change: Change, min_effect: float) -> str:
    """The smallest change that would have been taken for one."""
    smallest = change.smallest or 0.0
    if change.scale == "ratio":
        return f"x {_factor(max(smallest, 1 + min_effect))}"
    return f"+-{number(max(smallest, min_effect * max(abs(change.a or 0.0), abs(change.b or 0.0))))}"


def sides(diff: Diff) -> Iterator[tuple[str, str]]:
    """A and B: the name, and what it is."""
    for name, report in (("A", diff.a), ("B", diff.b)):
        yield name, of_report(report)


def of_report(report: Report) -> str:
    """The name of a dump and how much it holds."""
    first = report.inputs[0].path
    name = "standard input" if first == "-" else clean(os.path.basename(first) or first)
    others = f" {more(len(report.inputs) - 1, 'file')}" if len(report.inputs) > 1 else ""
    return "  ".join((f"{name}{others}", *amounts(report.whole.counts, report.clusters)))
