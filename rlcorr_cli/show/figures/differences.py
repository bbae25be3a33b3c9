"""The panels of `diff`: how far metrics moved from one dump to another, with their intervals."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from rlcorr_cli.results.diffed import Change
from rlcorr_cli.show.figures import style, ticks


def forest(changes: Sequence[tuple[str, Change]], words: str, ax: Axes) -> str:
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
        low, high = min(low, 0.9), max(high, 1.1)
        margin = (high / low) ** 0.03
        ax.set_xscale("log")
        ticks.logarithmic(ax.xaxis, low / margin, high * margin)
    ax.set_xlabel(f"{'factor' if is_ratio else 'difference'}, 95% interval")
    return words
