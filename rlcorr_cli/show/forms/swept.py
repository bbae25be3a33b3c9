"""A sweep's Sheet: what it says in every form, and its panel."""

from pathlib import Path
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.swept import Point, Sweep
from rlcorr_cli.show.figures import Axes, style
from rlcorr_cli.show.forms import sheet as sheets
from rlcorr_cli.show.forms.sheet import Panel, Section, Sheet
from rlcorr_cli.show.inputs import input_facts, joined, last_change, named
from rlcorr_cli.show.numbers import plural, share
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.swept import headline, point_rows


def write(sweep: Sweep, path: Path, staging: Outputs) -> None:
    """Stage a sweep in the form of the path's suffix."""
    sheets.write(sheet(sweep), path, staging)


def sheet(sweep: Sweep) -> Sheet:
    """What a sweep says."""
    counts, target = sweep.counts, sweep.target
    reached = target is not None and target.reached
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name]]
    facts += input_facts(sweep.inputs)
    return Sheet(
        title=named(sweep.inputs),
        summary=joined(
            plural(counts["sequences"], "sequence"),
            f"{plural(counts['tokens'], 'token')}; {sweep.what}",
            last_change(sweep.inputs),
        ),
        headline=f"{headline(sweep)} {target.option}" if target is not None and reached else headline(sweep),
        status="ok" if target is None or reached else "warn",
        sections=[Section("Curve", "From the tightest bounds to the loosest.", point_rows(sweep))],
        panels=(Panel(f"What {sweep.what} keeps", lambda axes: _curve(axes, sweep)),),
        facts=[*facts, ("rlcorr", __version__)],
        notes=list(map(clean, sweep.notes)),
        document=sweep.to_dict(),
        records=[_record(point) for point in sweep.points],
        reasons=[target.note] if target is not None and target.note else [],
    )


def _record(point: Point) -> dict[str, Any]:
    return point.to_dict()


def _curve(axes: Axes, sweep: Sweep) -> str:
    """Shares over the bound that moves, and the chosen one as a line."""
    ends = [_bound(point) for point in sweep.points]
    lines = (
        (
            f"{sweep.units} kept" if not sweep.is_cap else "not capped",
            style.BLUE,
            [point.kept_units for point in sweep.points],
        ),
        ("info", style.ORANGE, [point.values["info"] for point in sweep.points]),
        ("ESS", style.GREEN, [point.values["ess"] for point in sweep.points]),
    )
    for label, colour, values in lines:
        known = [(end, value) for end, value in zip(ends, values, strict=True) if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "o-", markersize=3, color=colour, label=label)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel(f"{'upper' if sweep.points[-1].high is not None else 'lower'} bound of {sweep.what}")
    axes.set_ylabel("share")
    if ends and min(ends) > 0 and max(ends) / min(ends) > 20:
        axes.set_xscale("log")
    if sweep.target is None or not sweep.target.reached:
        return f"The loosest bounds keep {share(sweep.points[-1].kept_units)} of the {sweep.units}."
    style.mark(axes, _bound(sweep.target.point), "target")
    return f"{headline(sweep)} {sweep.target.option}"


def _bound(point: Point) -> float:
    bound = point.high if point.high is not None else point.low
    assert bound is not None
    return bound
