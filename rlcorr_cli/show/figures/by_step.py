"""The panels of --by-step: a curve for each step, or group, where other panels hold all rows together.

As in `panels.py`, each draws on its axes, returns one sentence, and raises Missing where there is nothing to draw.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.results.report import Group, GroupCurves, Report
from rlcorr_cli.results.trends import MIN_LENGTH_COUNT, Missing, course, profile
from rlcorr_cli.show.figures import style, ticks
from rlcorr_cli.show.figures.data import rebinned, unbroken, whole_centres
from rlcorr_cli.show.figures.panels import surprise_axis
from rlcorr_cli.show.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED
from rlcorr_cli.show.numbers import number
from rlcorr_cli.totals.binned import POSITION
from rlcorr_cli.totals.bins import Binned, Octaves
from rlcorr_cli.totals.histogram import Floats

MOST_CURVES = 6
"""More cannot be told apart."""
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY)
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 1)))
RISING = LinearSegmentedColormap.from_list("steps", [BLUE, PURPLE, ORANGE])
BINS = 60
"""Of the log-ratios' histogram."""


@frozen
class Curve:
    """One group's: what the legend calls it, how it looks, and what it is drawn from."""

    label: str
    look: dict[str, Any]
    curves: GroupCurves


def ratio(ax: Axes, report: Report) -> str:
    """The share of each group's tokens by log-ratio, on a logarithmic axis."""
    drawn = _curves(ax, report)
    reach = 1.2 * max(abs(curve.curves.log_ratios.quantile(q) or 0.0) for curve in drawn for q in (0.001, 0.999))
    if not reach:
        raise Missing("Nearly all log-ratios of every group are 0.")
    edges = np.linspace(-reach, reach, BINS + 1)
    least = 1.0
    for curve in drawn:
        ratios = curve.curves.log_ratios
        shares = rebinned(ratios, edges) / ratios.counts.sum()
        least = min(least, float(shares[shares > 0].min(initial=1.0)))
        ax.stairs(np.where(shares > 0, shares, np.nan), edges, baseline=None, label=curve.label, **curve.look)
    ax.set(xlabel="log-ratio, training − rollout (nats)", ylabel="share of its tokens", xlim=(-reach, reach))
    ticks.linear(ax.xaxis)
    ax.set_yscale("log")
    ticks.logarithmic(ax.yaxis, least / 1.5, 1.0)
    return _range_words("The standard deviation of the log-ratio", [(c.label, _std(c.curves)) for c in drawn])


def surprise(ax: Axes, report: Report) -> str:
    """The spread of each group's log-ratios by how unlikely the token was."""
    ends = _spreads(ax, report, "surprise", lambda bins: -bins.binning.centres(bins.bins))
    surprise_axis(ax)
    return _range_words("The spread at its unlikeliest tokens", ends)


def position(ax: Axes, report: Report) -> str:
    """The spread of each group's log-ratios by place in the sequence."""
    ends = _spreads(ax, report, "position", lambda bins: whole_centres(POSITION, bins.bins))
    ticks.octaves(ax.xaxis, ax.dataLim.x0 / 1.15, ax.dataLim.x1 * 1.15)
    ax.set_xlabel("position in the sequence")
    return _range_words("The spread at its last positions", ends)


def length(ax: Axes, report: Report) -> str:
    """The spread of each group's sequence log-ratios S by length."""
    ends = _spreads(ax, report, "length", lambda bins: bins.sums["tokens"] / bins.counts)
    ax.set(xlabel="valid tokens of the sequence", ylabel="std of S, the sequence log-ratio (nats)")
    ticks.octaves(ax.xaxis, ax.dataLim.x0 / 1.15, ax.dataLim.x1 * 1.15)
    return _range_words("The spread of S at its longest sequences", ends)


def _spreads(
    ax: Axes, report: Report, axis: str, places: Callable[[Binned[Octaves]], Floats]
) -> list[tuple[str, float]]:
    """Draw the standard deviation of each group by an axis; returns each label with that of its last bin."""
    ends: list[tuple[str, float]] = []
    for curve in _curves(ax, report):
        binned = curve.curves.bins.spread[axis]
        bins = profile(binned, MIN_LENGTH_COUNT) if axis == "length" else profile(binned)
        shown = places(binned)[np.isin(binned.bins, bins.bins)]
        ax.plot(*unbroken(shown, bins.std), marker="o", markersize=3, label=curve.label, **curve.look)
        ends.append((curve.label, float(bins.std[-1])))
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_ylabel("std of the log-ratio (nats)")
    ticks.linear(ax.yaxis)
    return ends


def _curves(ax: Axes, report: Report) -> list[Curve]:
    """The groups to draw: of steps the first, the last and some between, else those of the largest k3_kl."""
    groups = [group for group in report.groups if group.curves is not None]
    if not groups:
        raise Missing("There are no steps to draw a curve each of: name a column with --group-by COLUMN.")
    in_order = len(groups[0].key) == 1 and not course(groups, ()).labels
    chosen = _evenly(sorted(groups, key=_place)) if in_order else _widest(groups)
    if len(chosen) < len(groups):
        which = "evenly chosen" if in_order else "the largest k3_kl"
        ax.set_title(f"{ax.get_title(loc='left')} ({len(chosen)} of {len(groups)}, {which})")
    looks = [
        {"color": RISING(i / max(1, len(chosen) - 1)) if in_order else COLORS[i], "linestyle": LINES[i]}
        for i in range(len(chosen))
    ]
    return [
        Curve(_label(group), look, group.curves)
        for group, look in zip(chosen, looks, strict=True)
        if group.curves is not None
    ]


def _place(group: Group) -> float:
    (value,) = group.key.values()
    return float(value)


def _evenly(groups: Sequence[Group]) -> list[Group]:
    places = np.linspace(0, len(groups) - 1, min(len(groups), MOST_CURVES)).round().astype(int)
    return [groups[i] for i in places]


def _widest(groups: Sequence[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: group.values.get(GAP) or 0.0, reverse=True)[:MOST_CURVES]


def _label(group: Group) -> str:
    """'step 3', or values alone where they are no numbers."""
    words = (f"{name} {value:g}" if isinstance(value, int | float) else f"{value}" for name, value in group.key.items())
    return style.label(", ".join(words), 16)


def _std(curves: GroupCurves) -> float:
    """Of all its log-ratios, from its bins by position, which hold every token."""
    places = curves.bins.spread["position"]
    n = float(places.counts.sum())
    mean, square = (float(places.sums[name].sum()) / n for name in ("sum", "sum_of_squares"))
    return max(square - mean**2, 0.0) ** 0.5


def _range_words(what: str, sizes: Sequence[tuple[str, float]]) -> str:
    """'What is from 0.058 nats (step 1) to 0.26 (step 4).'"""
    smallest, largest = (pick(sizes, key=lambda size: size[1]) for pick in (min, max))
    if len(sizes) == 1:
        return f"{what} is {number(smallest[1])} nats ({smallest[0]})."
    range_of = f"{number(smallest[1])} nats ({smallest[0]}) to {number(largest[1])} ({largest[0]})"
    return f"{what} is from {range_of}."
