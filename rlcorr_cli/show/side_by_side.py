"""Dumps side by side in words and rows, which every form shows: what tells them apart, a column for each."""

from collections.abc import Sequence

from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.results.side_by_side import METRICS, DumpColumn, SideBySide
from rlcorr_cli.show.compare import PLAN_COLUMNS
from rlcorr_cli.show.document import Cell
from rlcorr_cli.show.document import Table as Rows
from rlcorr_cli.show.inputs import named
from rlcorr_cli.show.numbers import amounts, number, share
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.totals.families import Value

NOTE = (
    "`rlcorr explain k3_kl` defines a row, `rlcorr explain compare` tells how a plan is chosen; `rlcorr diff A B` "
    "tests two dumps for what moved."
)
SHARES = ("extreme_token_fraction", "token_tv", "seq_tv")
SIZES = ("token_ess", "seq_ess")
"""Sample sizes, whose nines just below 1 would take the room of two columns."""
LARGEST_FACTOR = 1000
"""Beyond this a factor says no more."""


def headline(sides: SideBySide) -> str:
    """What tells the dumps apart, and where the plan leaves least."""
    return " ".join(filter(None, (_largest(sides), _plan(sides))))


def _largest(sides: SideBySide) -> str:
    largest = sides.largest
    if largest is None:
        return _nothing_apart(sides)
    most, least = (
        _value(largest.metric, sides.of(name).metrics[largest.metric]) for name in (largest.most, largest.least)
    )
    beside = (
        f"{largest.factor:#.3g} times".replace(". ", " ")
        if largest.factor <= LARGEST_FACTOR
        else f"over {LARGEST_FACTOR:,} times"
    )
    return f"{largest.metric} differs most: {most} in {largest.most}, {beside} the {least} in {largest.least}."


def _nothing_apart(sides: SideBySide) -> str:
    """Why no metric tells the dumps apart."""
    few = {
        dump.name: "none" if dump.comparison.clusters is None else dump.comparison.clusters.counted
        for dump in sides.too_few
    }
    enough = [dump.name for dump in sides.dumps if dump.name not in few]
    if len(enough) < 2:
        counts = _and([f"{name} has {counted}" for name, counted in few.items()])
        return f"Too few to tell these dumps apart: {counts}, and it takes {FEWEST_CLUSTERS}."
    if sides.is_rounding:
        return "The policies are equal but for rounding in all dumps: nothing tells them apart."
    told = _and(enough) if few else "these dumps"
    have = "has" if len(few) == 1 else "have"
    left_out = f" {_and(list(few))} {have} too few to tell: {_and(list(few.values()))}." if few else ""
    return f"No metric tells {told} apart: 95 % intervals overlap in all.{left_out}"


def _plan(sides: SideBySide) -> str:
    """What the plan leaves of the dump that it leaves most of, and of the other end."""
    known = [(dump.plan.info, dump) for dump in sides.dumps if dump.plan is not None]
    if sides.plan is None or not known:
        return ""
    name = clean(sides.plan.name)
    (low, least), (high, most) = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    if high - low < 0.0005:
        return f"{name} leaves {share(low)} of each."
    return f"{name} leaves {share(low)} of {least.name}, {share(high)} of {most.name}."


def recommendations(sides: SideBySide) -> list[str]:
    """A sentence for each plan that is to be taken, with the dumps that it is for; and for each that cannot tell."""
    by_plan: dict[str, list[str]] = {}
    sentences: list[str] = []
    for dump in sides.dumps:
        recommended = dump.comparison.recommendation
        if recommended.plan is None:
            sentences.append(f"{dump.name}: {recommended.headline}")
        else:
            by_plan.setdefault(recommended.plan, []).append(dump.name)
    n_dumps = len(sides.dumps)
    takes = [
        f"Take {clean(plan)} on {'each' if len(names) == n_dumps else _and(names)}." for plan, names in by_plan.items()
    ]
    return [*takes, *sentences]


def anomalies(sides: SideBySide) -> list[tuple[str, AnomalyFinding]]:
    """What is wrong with the data of each dump, by what the dump and it are called."""
    return [(f"{dump.name}: {each.name}", each) for dump in sides.dumps for each in dump.comparison.anomalies]


def notes(sides: SideBySide) -> list[str]:
    """The notes of all, each once, with the dumps that it is on where it is not on all."""
    of_dumps: dict[str, list[str]] = {}
    for dump in sides.dumps:
        for note in dump.comparison.notes:
            of_dumps.setdefault(clean(note), []).append(dump.name)
    n_dumps = len(sides.dumps)
    return [
        *map(clean, sides.notes),
        *(note if len(names) == n_dumps else f"{', '.join(names)}: {note}" for note, names in of_dumps.items()),
    ]


def legend(sides: SideBySide) -> list[tuple[str, str]]:
    """Each letter, and what it stands for."""
    return [
        (
            dump.name,
            "  ".join(
                (
                    named(dump.comparison.inputs),
                    *amounts(dump.comparison.whole.counts, dump.comparison.clusters),
                )
            ),
        )
        for dump in sides.dumps
    ]


def dump_rows(dumps: Sequence[DumpColumn]) -> Rows:
    """A row for each diagnostic, then one for the headline's flag, a column for each dump."""
    rows = [
        (Cell(name), *(Cell(_value(name, dump.metrics.get(name)), dump.metrics.get(name)) for dump in dumps))
        for name in METRICS
        if any(dump.metrics.get(name) is not None for dump in dumps)
    ]
    rows.append((Cell("flag"), *(Cell(dump.comparison.recommendation.flags[0]) for dump in dumps)))
    return Rows(headings=("", *(dump.name for dump in dumps)), rows=tuple(rows))


def plan_rows(dumps: Sequence[DumpColumn], name: str) -> Rows:
    """A row for each of the plan's columns, a column for each dump."""
    plans = [dump.plan for dump in dumps if dump.plan is not None]
    cells = [(column.heading, *map(column.cell, plans)) for column in PLAN_COLUMNS[1:]]
    rows = [(Cell(heading), *row) for heading, *row in cells if any(cell.sort_key is not None for cell in row)]
    return Rows(headings=(clean(name), *(dump.name for dump in dumps)), rows=tuple(rows))


def _value(name: str, value: Value) -> str:
    if value is not None and name in SIZES:
        return f"{value:.3f}"
    return share(value) if name in SHARES else number(value)


def _and(names: Sequence[str]) -> str:
    """'A', 'A and B', 'A, B and C'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
