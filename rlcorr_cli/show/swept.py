"""A sweep's table and sentences, which every form shows."""

from rlcorr_cli.results.swept import Point, Sweep
from rlcorr_cli.show.cells import Cell, Rows
from rlcorr_cli.show.numbers import NOTHING, number, plural, share
from rlcorr_cli.totals.families import Value


def headline(sweep: Sweep) -> str:
    """What the target comes to, or what was swept; the option to copy stands below it."""
    target = sweep.target
    if target is None:
        return f"What {sweep.what} keeps at {len(sweep.points)} thresholds; --target-keep 0.95 names one."
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


def point_rows(sweep: Sweep) -> Rows:
    """A row per point of the curve.  What these units cannot tell has no column."""
    names = {"k3_left": "k3 left", "length": "length", "shift": "A shift", "ess": "ESS"}
    known = {name for point in sweep.points for name, value in point.values.items() if value is not None}
    shown = {name: heading for name, heading in names.items() if name in known}
    if sweep.is_cap:
        shown.pop("k3_left", None)
    has_tokens = sweep.units == "sequences" and not sweep.is_cap
    headings = (
        "weights" if sweep.is_cap else "keeps",
        "not capped" if sweep.is_cap else "kept",
        *(("tokens",) if has_tokens else ()),
        "info",
        *shown.values(),
    )
    rows = tuple(
        _row(point, tuple(shown), has_tokens, _beside(sweep, place)) for place, point in enumerate(sweep.points)
    )
    return Rows(headings=headings, rows=rows)


def _beside(sweep: Sweep, place: int) -> tuple[Point, Point]:
    """The points beside one, from which its bounds must be told apart."""
    points = sweep.points
    return points[max(place - 1, 0)], points[min(place + 1, len(points) - 1)]


def _row(point: Point, names: tuple[str, ...], has_tokens: bool, beside: tuple[Point, Point]) -> tuple[Cell, ...]:
    values = point.values
    cells = [Cell(_bounds(point, beside)), Cell(share(point.kept_units), point.kept_units)]
    if has_tokens:
        cells.append(Cell(share(values["kept"]), values["kept"]))
    cells.append(_decimals(values["info"], 3))
    for name in names:
        value = values[name]
        if name == "k3_left":
            cells.append(Cell(number(value), value))
        elif name == "shift":
            cells.append(Cell(NOTHING if value is None else f"{value:+.2f}", value))
        else:
            cells.append(_decimals(value, 3))
    return tuple(cells)


def _bounds(point: Point, beside: tuple[Point, Point]) -> str:
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


def _decimals(value: Value, decimals: int) -> Cell:
    return Cell(NOTHING if value is None else f"{value:.{decimals}f}", value)
