"""What a sweep says: the bounds that a target comes to, and the curve from the tightest to the loosest."""

from collections.abc import Callable, Iterator
from functools import partial

from rlcorr_cli.results.swept import Point, Sweep
from rlcorr_cli.show.document import (
    BLANK,
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
    json_text,
    number_cell,
    tabulated,
    what_was_read,
)
from rlcorr_cli.show.inputs import last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import NOTHING, amounts, decimals, duration, number, plural, share
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import story_cause, story_notes
from rlcorr_cli.totals.families import Value


def document(sweep: Sweep) -> Document:
    """What a sweep says."""
    target = sweep.target
    reached = target is not None and target.reached
    return Document(
        lines=_lines(sweep),
        command="sweep",
        title=name_of_inputs(sweep.inputs),
        summary=with_commas(
            f"{', '.join(amounts(sweep.counts, None))}; {sweep.what}",
            last_change(sweep.inputs),
        ),
        headline=f"{sweep_words(sweep)} `{target.option}`" if target is not None and reached else sweep_words(sweep),
        causes=[story_cause(sweep.story)] if sweep.story.effect != "none" else [],
        status="fail" if sweep.story.is_fault else "" if target is None else "ok" if reached else "warn",
        reasons=[target.note] if target is not None and target.note else [],
        sections=_sections(sweep),
        json=json_text(sweep.to_dict),
        records=(point.to_dict() for point in sweep.points),
    )


def _lines(sweep: Sweep) -> Iterator[Block]:
    target = sweep.target
    yield Facts([name_of_inputs(sweep.inputs), *amounts(sweep.counts, None), duration(sweep.seconds)])
    yield BLANK
    yield from story_notes(sweep.story)
    reached = target is not None and target.reached
    yield Note(sweep_words(sweep), "bold", option=target.option if target is not None and reached else "")
    if target is not None and (target.note or not reached):
        yield Note(target.note, option="" if reached else target.option)
    yield BLANK
    yield point_table(sweep)
    for note in sweep.notes:
        yield Note(clean(note), "dim")
    yield Note("`rlcorr explain info` defines a column.", "dim")


def _sections(sweep: Sweep) -> Iterator[Section]:
    from rlcorr_cli.show.figures import comparisons

    curve = Panel(f"What bounds on {sweep.what} keep", partial(comparisons.curve, sweep))
    yield Section(pictures=[Picture(panels=[curve])])
    about = ["From the tightest bounds to the loosest."]
    yield Section(heading="Curve", about=about, tables=[point_table(sweep)], sorts=True)
    yield from what_was_read(sweep.counts, (), sweep.inputs, list(map(clean, sweep.notes)))


def sweep_words(sweep: Sweep) -> str:
    """What the target comes to, or what was swept; the option to copy stands below it."""
    target = sweep.target
    if target is None:
        return f"{len(sweep.points)} bounds on {sweep.what}, and what each keeps. --target-keep 0.95 finds one."
    values = target.point.values
    inside = f"{target.point.n_inside:,} of {plural(sweep.n_units, sweep.units.removesuffix('s'))}"
    if target.kind == "keep" and not target.reached:
        return f"No bounds keep {share(target.share)} of the {sweep.units}: the loosest keep {inside}."
    if target.kind == "keep":
        return f"To keep {share(target.share)} of the {sweep.units} ({inside}; {share(values['info'])} of the batch):"
    if not target.reached:
        return f"No bounds reach an effective sample size of {target.share:g}: the best is {number(values['ess'])}."
    if not target.option:
        return f"An effective sample size of {target.share:g} takes no bound: it is {number(values['ess'])} without."
    return f"For an effective sample size of {target.share:g} (here {number(values['ess'])}):"


def _value_column(heading: str, name: str, show: Callable[[Value], str], drop: int = 0) -> Column:
    """One of a point's values; rows are a point's bounds in words, and the point."""
    return Column(heading=heading, cell=lambda row: number_cell(row[1].values[name], show), drop=drop)


VALUES = {
    "k3_left": _value_column("k3 left", "k3_left", number, drop=3),
    "length": _value_column("length", "length", decimals(3), drop=5),
    "shift": _value_column("advantage error", "shift", lambda v: NOTHING if v is None else f"{v:+.2f}", drop=4),
    "ess": _value_column("ESS", "ess", decimals(3), drop=2),
}


def point_table(sweep: Sweep) -> Table:
    """A row per point of the curve.  What these units cannot tell has no column."""
    points, is_cap = sweep.points, sweep.is_cap
    known = {name for point in points for name, value in point.values.items() if value is not None}
    known -= {"k3_left"} if is_cap else set()
    columns = [
        Column(heading="weights" if is_cap else "keeps", cell=lambda row: Cell(row[0])),
        Column(heading="not capped" if is_cap else "kept", cell=lambda row: number_cell(row[1].kept_units, share)),
        *([_value_column("tokens", "kept", share, drop=6)] if sweep.units == "sequences" and not is_cap else []),
        _value_column("info", "info", decimals(3), drop=1),
        *(column for name, column in VALUES.items() if name in known),
    ]
    # Neighbours, from which its bounds must be told apart.
    beside = [(points[max(i - 1, 0)], points[min(i + 1, len(points) - 1)]) for i in range(len(points))]
    rows = [(_bounds_in_words(point, others), point) for point, others in zip(points, beside, strict=True)]
    return tabulated(rows, columns)


def _bounds_in_words(point: Point, beside: tuple[Point, Point]) -> str:
    """'0.99,1.01', as the option has it; '>= 0.99' or '<= 1.01' of one bound."""
    low, high = (
        None if edge is None else _told_apart(edge, [getattr(other, end) for other in beside])
        for end, edge in (("low", point.low), ("high", point.high))
    )
    if low is not None and high is not None:
        return f"{low},{high}"
    return f"<= {high}" if low is None else f">= {low}"


def _told_apart(edge: float, others: list[Value]) -> str:
    """Five digits, more where that is what its neighbours round to."""
    for digits in range(5, 17):
        text = f"{edge:.{digits}g}"
        if all(other is None or other == edge or f"{other:.{digits}g}" != text for other in others):
            return text
    return repr(edge)
