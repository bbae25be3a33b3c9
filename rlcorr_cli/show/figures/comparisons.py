"""The panels of results that set one thing beside another.

Of `compare`, what plans are worth and keep; of `sweep`, what a bound keeps at every threshold; of `diff`, how far
metrics moved from one dump to another, with their intervals.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes

from rlcorr_cli.results.compared import Comparison
from rlcorr_cli.results.diffed import Change
from rlcorr_cli.results.swept import Point, Sweep
from rlcorr_cli.show.figures import style, ticks
from rlcorr_cli.show.numbers import number, plural, share

MOST_BARS = 24
UNSAFE = ("far", "moved")
"""What a recommendation rests on where no plan is safe."""
WIDE = 20.0
"""From this factor between the smallest and the largest on, bounds and k3 stand on a logarithmic axis."""


def worth(comparison: Comparison, axes: Axes) -> str:
    """A bar per plan, what it leaves (pale) and is worth (full), the best on top."""
    plans = comparison.sorted_plans("worth")[:MOST_BARS]
    taken = comparison.recommendation.plan
    for place, plan in enumerate(reversed(plans)):
        colour = style.ORANGE if plan.name == taken else style.BLUE
        axes.barh(place, plan.info, color=style.GRID, height=0.7)
        axes.barh(place, plan.worth, color=colour, height=0.7)
    axes.set_yticks(range(len(plans)), [style.label(plan.name) for plan in reversed(plans)], fontsize=7)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("worth (bar), info (pale)")
    axes.grid(axis="y", visible=False)
    best, left = plans[0], len(comparison.whole.plans) - len(plans)
    sentence = f"{style.label(best.name)} is worth the most: {best.worth:.3f}."
    if any(plan.name == taken for plan in plans):
        is_safe = not comparison.story.is_fault and comparison.recommendation.flags[0] not in UNSAFE
        why = f"it is worth the most, {best.worth:.3f}." if taken == best.name else sentence
        name = f"{style.label(taken)} (orange)"
        sentence = f"Use {name}: {why}" if is_safe else f"{name} is the least harmful. {sentence}"
    return f"{sentence} {plural(left, 'plan')} worth less are not shown." if left else sentence


def kept(comparison: Comparison, axes: Axes) -> str:
    """A point per plan: the tokens kept, and their k3; the legend names the one to take and the one of least k3."""
    taken = comparison.recommendation.plan
    points = [
        (plan, plan.values["kept"], plan.values["k3_left"])
        for plan in comparison.sorted_plans("worth")
        if plan.values["kept"] is not None and plan.values["k3_left"] is not None
    ]
    least = min(points, key=lambda point: point[2], default=None)
    # The plan to take is drawn last, where no other hides it.
    for plan, share_kept, k3 in sorted(points, key=lambda point: point[0].name == taken):
        is_least = least is not None and plan is least[0]
        color = style.ORANGE if plan.name == taken else style.GREEN if is_least else style.BLUE
        label = None if color == style.BLUE else style.label(plan.name)
        axes.plot(share_kept, k3, "o", color=color, label=label)
    axes.set_xlim(-0.02, 1.05)
    highest = max((k3 for _, _, k3 in points), default=1.0) or 1.0
    if least is not None and highest > WIDE * least[2] > 0:
        axes.set_yscale("log")
        ticks.logarithmic(axes.yaxis, least[2] / 1.5, highest * 1.5)
    else:
        axes.set_ylim(0, 1.12 * highest)
    axes.set_xlabel("tokens kept")
    axes.set_ylabel("k3 of what is kept (nats)")
    if least is None:
        return "No plan keeps a token."
    return f"{style.label(least[0].name)} keeps the closest tokens: k3 {number(least[2])}, {share(least[1])} kept."


def curve(sweep: Sweep, axes: Axes) -> str:
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
    for (label, colour, values), look in zip(lines, ("o-", "s--", "^:"), strict=True):
        known = [(end, value) for end, value in zip(ends, values, strict=True) if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), look, markersize=3, color=colour, label=label)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel(f"{'upper' if sweep.points[-1].high is not None else 'lower'} bound of {sweep.what}")
    axes.set_ylabel("share")
    if min(ends) > 0 and max(ends) > WIDE * min(ends):
        axes.set_xscale("log")
        ticks.logarithmic(axes.xaxis, min(ends) / 1.2, max(ends) * 1.2)
    where, point = "Under the loosest bounds", sweep.points[-1]
    if sweep.target is not None and sweep.target.reached:
        where, point = "At the target", sweep.target.point
        style.mark(axes, _bound(point), "target")
    return f"{where} {share(point.kept_units)} of the {sweep.units} are {'not capped' if sweep.is_cap else 'kept'}."


def _bound(point: Point) -> float:
    bound = point.high if point.high is not None else point.low
    assert bound is not None
    return bound


def forest(changes: Sequence[tuple[str, Change]], words: str, ax: Axes) -> str:
    """A row each: a dot and its interval, filled and coloured where the metric moved; words: what stands below."""
    is_ratio = changes[0][1].scale == "ratio"
    for place, (_, change) in enumerate(changes):
        low, middle, high = (float(end or 0.0) for end in (change.low, change.change, change.high))
        color, label = (style.RED, "moved") if change.moved else (style.GREY, "no evidence")
        ax.plot([low, high], [place, place], color=color, linewidth=2)
        ax.plot(
            middle,
            place,
            "o",
            color=color,
            markersize=6,
            markerfacecolor=color if change.moved else style.PAPER,
            label=style.once_in_legend(ax, label),
        )
    ax.axvline(1.0 if is_ratio else 0.0, color=style.INK, linewidth=1)
    ax.set_yticks(range(len(changes)), [style.label(name) for name, _ in changes])
    ax.set_ylim(len(changes) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    if is_ratio:
        low, high = min(change.low or 1.0 for _, change in changes), max(change.high or 1.0 for _, change in changes)
        low, high = min(low, 0.9), max(high, 1.1)
        margin = (high / low) ** 0.03
        ax.set_xscale("log")
        ticks.logarithmic(ax.xaxis, low / margin, high * margin)
    ax.set_xlabel(f"{'factor' if is_ratio else 'difference'}, 95% interval")
    return words
