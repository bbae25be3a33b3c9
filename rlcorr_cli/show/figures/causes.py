"""EVIDENCE: the panel that shows a cause, each a function of a diagnosed dump and a finding.

As in `panels.py`, each draws on its axes, returns one sentence on what is to be seen, and raises Missing where there is
nothing to draw.  u is the log-odds of a token under rollout, d the difference of both policies', a the log-prob of
training and b that of rollout.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rlcorr_cli.causes.diagnosis import CauseFinding, LevelGap
from rlcorr_cli.causes.gap import (
    CERTAIN_LEAST,
    CERTAIN_STEP,
    FIELDS,
    INDEX_EDGES,
    LINE_SUMS,
    LINES,
    N_CERTAIN,
    N_SURPRISE,
    PARTS,
    PLACE_SUMS,
    SIZE_LEAST,
    SIZE_STEP,
    SIZE_SUMS,
    SPREAD_FACTOR,
    SPREAD_LEAST,
    SPREAD_STEPS,
    SURPRISE_EDGES,
    GapTotals,
    order_of_keys,
)
from rlcorr_cli.causes.numbers import line_of, ratio as divided, typical
from rlcorr_cli.causes.steps import STEP
from rlcorr_cli.causes.wording import levels_named, percent, steps_named
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show.figures import style, ticks
from rlcorr_cli.show.figures.panels import counts_below
from rlcorr_cli.show.figures.style import BLUE, GREEN, GREY, INK, ORANGE, mark
from rlcorr_cli.show.numbers import number, plural, share
from rlcorr_cli.show.words import column_at_fault
from rlcorr_cli.totals.flat import Floats

Finding = CauseFinding | None
Panel = Callable[[Axes, DiagnosedDump, Finding], str]

FEWEST = 15
"""Tokens in a bin below which nothing is drawn of it."""
FEWEST_OF_INDEX = 40
MIDDLE = (0.1587, 0.8413)
"""Ends of the middle 68%."""
_SIDE: Floats = SPREAD_LEAST * np.power(SPREAD_FACTOR, np.arange(SPREAD_STEPS + 1), dtype=np.float64)
SPREAD_EDGES: Floats = np.concatenate([-_SIDE[::-1], _SIDE])
"""Edges of the bins of d."""
INSIDE = range(len(SURPRISE_EDGES) - 1)
"""Bins of u that lie between edges."""
AT_ONCE = 10
"""Neighbouring bins of ln(-a) that are drawn as one."""
MOST_LEVELS = 12
UNLIKELY, LIKELY = -1.0, 1.0
"""Log-odds below which a token is unlikely, and above which it is likely."""
FAR = 6.0
"""Half widths of the middle 68% beyond which a token lies far out."""
REACH = 8.0
"""Typical spreads that a distribution is drawn to."""
LINED = ("temperature", "logit_softcap", "unnormalised")
"""Causes whose line is drawn."""
PART_NAMES = {
    "first": "first",
    "early": "second\nto fourth",
    "body": "all others",
    "gap": "first\nafter a gap",
    "after_gap": "next three",
    "last": "last",
}
GUILTY_PARTS = {"first_token": ("first",), "last_token": ("last",), "mask_boundary": ("gap", "after_gap")}
SIDE = "log-odds, training − rollout"


def bound(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """How many tokens the rollout column holds at exactly 0, and below 0, over training's surprise at them."""
    certain = dump.whole.totals.certain
    starts = np.arange(AT_ONCE, N_CERTAIN, AT_ONCE)  # surer tokens are left out
    zero, unsure = (np.add.reduceat(row, starts) for row in certain)
    if not zero.sum():
        raise Missing("No token has a log-prob of exactly 0.")
    filled = np.flatnonzero(zero + unsure)
    first, last = int(filled[0]), int(filled[-1])
    zero, unsure = zero[first : last + 1], unsure[first : last + 1]
    edges = np.exp(CERTAIN_LEAST + CERTAIN_STEP * np.append(starts, N_CERTAIN))[first : last + 2]
    rollout, train = (style.label(name) for name in dump.columns)
    ax.stairs(unsure, edges, color=BLUE, linewidth=1.4, label=f"{rollout} < 0")
    ax.stairs(zero, edges, fill=True, color=ORANGE, alpha=0.75, label=f"{rollout} = 0")
    ax.set_xscale("log")
    ticks.logarithmic(ax.xaxis, float(edges[0]), float(edges[-1]))
    ax.set(xlabel=f"−{train} (nats)", ylabel="tokens")
    p = None if finding is None else finding.parameters.get("top_p")
    if not isinstance(p, float) or not 0 < p < 1:
        tokens = plural(int(zero.sum()), "token")
        return f"{rollout} is exactly 0 on {tokens}, and no one bound parts them from the others."
    mark(ax, -float(np.log(p)), f"log {p:.3g}", color=INK, style="-")
    # A bin counts by its middle, so the bound is true to half a bin; the first holds all that training is sure of.
    above = np.exp(CERTAIN_LEAST + CERTAIN_STEP * (np.arange(1, N_CERTAIN) + 0.5)) < -np.log(p)
    left, right = certain[:, 1:][:, above].sum(axis=1), certain[:, 1:][:, ~above].sum(axis=1)
    return (
        f"Left of the bound {rollout} is exactly 0 on {int(left[0]):,} of {int(left.sum()):,} tokens, right of it on "
        f"{int(right[0]):,} of {int(right.sum()):,}; tokens that training gives more than 0.999 are not drawn."
    )


def line(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """Mean difference in log-odds by surprise, the middle 68% of the tokens, and a temperature's line."""
    totals = dump.whole.totals
    sums, spread = totals.sums("body"), totals.spread[FIELDS.index("body")]
    bins = [k for k in INSIDE if sums["n_inside"][k] >= FEWEST and spread[k].sum() >= FEWEST]
    if len(bins) < 2:
        raise Missing("Too few tokens at any level of surprise to draw the difference in log-odds.")
    u, d = (sums[name][bins] / sums["n_inside"][bins] for name in "ud")
    low, high = np.array([[quantile(spread[k], q) for q in MIDDLE] for k in bins]).T
    if float(np.max(np.abs([low, high]))) <= SPREAD_LEAST:
        raise Missing("The log-odds agree to a thousandth.")
    ax.fill_between(u, low, high, color=BLUE, alpha=0.2, linewidth=0, label="middle 68%")
    ax.plot(u, d, "o-", color=BLUE, label="mean")
    mark(ax, 0.0, "equal", color=INK, vertical=False, style="-")
    groups = totals.lines[FIELDS.index("body"), :, LINES.index("u")]
    of_line = dict(zip(LINE_SUMS, groups.sum(axis=0).tolist(), strict=True))
    slope = line_of(groups).slope
    is_lined = finding is not None and finding.cause in LINED
    if is_lined:
        intercept, ends = divided(of_line["d"] - slope * of_line["x"], of_line["n"]), u[[0, -1]]
        ax.plot(ends, intercept + slope * ends, "--", color=ORANGE, label=f"line, slope {_signed(slope)}")
    ax.set(xlabel="log-odds of the token under rollout, rarer to the left", ylabel=SIDE)
    half = int(np.clip(np.searchsorted(u, 0.0), 1, len(u) - 1))  # of likely tokens, with one bin at least beside it
    least, most = (float(np.abs(part).mean()) for part in (d[:half], d[half:]))
    narrow, wide = number(float((high - low).min()) / 2), number(float((high - low).max()) / 2)
    reach = f"68% of the tokens lie within {narrow} to {wide} of it"
    if is_lined:
        return f"The mean runs along a line of slope {_signed(slope)}; {reach}."
    return f"The mean lies {number(least)} from 0 at unlikely tokens and {number(most)} at likely ones; {reach}."


def quantile(counts: Floats, q: float) -> float:
    """Of d by its bins, over which tokens are taken to lie evenly."""
    total = np.concatenate([[0.0], np.cumsum(counts)])
    return float(np.interp(q * total[-1], total, SPREAD_EDGES))


def between(counts: Floats, edges: Floats) -> Floats:
    """Counts of d between other edges than its bins', those beyond the outermost left out."""
    return np.diff(counts_below(counts, SPREAD_EDGES[:-1], SPREAD_EDGES[1:], edges))


def _spread_counts(totals: GapTotals, low: float, high: float, part: str = "body") -> Floats:
    """Counts of d by its bins, of tokens whose bin of u lies between two values."""
    bins = [k for k in INSIDE if low <= SURPRISE_EDGES[k] and SURPRISE_EDGES[k + 1] <= high]
    return totals.spread[FIELDS.index(part)][bins].sum(axis=0)


def _signed(value: float) -> str:
    return f"{value:+.2g}".replace("-", "−")


def places(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """The share of tokens that are far off, by where they stand."""
    columns = dict(zip(PLACE_SUMS, dump.whole.totals.places.T, strict=True))
    far = {part: (int(columns["n_far"][k]), int(columns["n"][k])) for k, part in enumerate(PARTS) if columns["n"][k]}
    shown = [part for part in PART_NAMES if part in far]
    accused = [part for part in GUILTY_PARTS.get("" if finding is None else finding.cause, ()) if part in far]
    if "body" not in far or not accused:
        raise Missing("There are no such tokens to draw.")
    for place, part in enumerate(shown):
        n_far, n = far[part]
        ax.bar(place, n_far / n, width=0.6, color=ORANGE if part in accused else BLUE)
        ax.annotate(percent(n_far / n), (place, n_far / n), xytext=(0, 3), textcoords="offset points", ha="center")
    ax.set_xticks(range(len(shown)), [PART_NAMES[part] for part in shown])
    ax.set(ylabel="share of tokens off by a factor of 2 or more", xlabel="where the token stands in its response")
    ax.set_ylim(0, 1.12 * max(n_far / n for n_far, n in far.values()) or 1.0)
    ax.grid(visible=False, axis="x")
    n_far, n = (sum(far[part][k] for part in accused) for k in range(2))
    others_far, others = far["body"]
    return (
        f"{n_far:,} of {n:,} such tokens are off by a factor of 2 or more, and {others_far:,} of the {others:,} that "
        "stand in no special place."
    )


def index(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """The typical |r| along the response."""
    columns = dict(zip(PLACE_SUMS, dump.whole.totals.indexes.T, strict=True))
    kept = columns["n_graded"] >= FEWEST_OF_INDEX
    if kept.sum() < 3:
        raise Missing("Too few tokens along the response to draw a course.")
    at = ((np.array(INDEX_EDGES) + np.array([*INDEX_EDGES[1:], 2 * INDEX_EDGES[-1]]) - 1) / 2)[kept] + 1
    sizes = np.array([typical(x) for x in columns["x"][kept] / columns["n_graded"][kept]])
    ax.plot(at, sizes, "o-", color=BLUE)
    ticks.octaves(ax.xaxis, float(at[0]) / 1.1, float(at[-1]) * 1.1)
    ax.set_yscale("log")
    ticks.logarithmic(ax.yaxis, float(sizes.min()) / 1.3, float(sizes.max()) * 1.3)
    ax.set(xlabel="place in the response, counted from 1", ylabel="typical size of a token's gap, |r|")
    onset = None if finding is None else finding.parameters.get("index")
    if isinstance(onset, int | float):
        mark(ax, float(onset) + 1, f"from token {onset:,.0f} on")
    return (
        f"The typical size goes from {number(float(sizes[0]))} at the start to {number(float(sizes[-1]))} at the end."
    )


def column(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """Each level's share of the gap against what the surprise of its tokens alone gives."""
    named = None if finding is None else column_at_fault(finding, dump.whole.diagnosis)
    if named is None:
        raise Missing("No column stands out.")
    ordered = named.levels if named.grows else sorted(named.levels, key=lambda level: -level.gap)
    return _draw_levels(ax, ordered[:MOST_LEVELS], named.column, len(named.levels))


def _draw_levels(ax: Axes, levels: Sequence[LevelGap], name: str, n_levels: int) -> str:
    for place, level in enumerate(levels):
        ax.barh(place, level.gap, height=0.6, color=ORANGE if level.is_hot else BLUE)
    edge = {"edgecolor": INK, "linewidth": 1.6, "label": "expected from surprise alone"}
    ax.barh(range(len(levels)), 0.0, left=[level.expected for level in levels], height=0.84, color=INK, **edge)
    known = [(place, level.gap, *level.gap_interval) for place, level in enumerate(levels) if level.gap_interval]
    if known:
        places, gaps, lows, highs = np.array(known).T
        arms = np.maximum(0, [gaps - lows, highs - gaps])
        ax.errorbar(gaps, places, xerr=arms, fmt="none", ecolor=GREY, elinewidth=1.2, label="95% interval")
    ax.set_yticks(range(len(levels)), [style.label(_level_name(level)) for level in levels])
    ax.set_ylim(len(levels) - 0.4, -0.6)
    ends = [level.gap if level.gap_interval is None else level.gap_interval[1] for level in levels]
    ax.set_xlim(0, min(1.05, 1.15 * max(*ends, *(level.expected for level in levels), 0.01)))
    ax.set(xlabel="share of the gap", ylabel=style.label(name))
    ax.grid(visible=False, axis="y")
    hot = [level for level in levels if level.is_hot] or [max(levels, key=lambda level: level.gap - level.expected)]
    held = sum(level.gap for level in hot)
    expected = sum(level.expected for level in hot)
    names = _names(name, [level.level for level in hot])
    left = f" {plural(n_levels - len(levels), 'level')} with less are not shown." if n_levels > len(levels) else ""
    holds, its = ("holds", "its") if len(hot) == 1 else ("hold", "their")
    return (
        f"{names[0].upper()}{names[1:]} {holds} {percent(held)} of the gap; the surprise of {its} tokens alone would "
        f"give {percent(expected)}.{left}"
    )


def _names(name: str, levels: Sequence[Any]) -> str:
    """A column's levels with its name: 'worker w1 and w3', 'steps 43 to 59'."""
    levels = [level if isinstance(level, int) else style.label(level) for level in sorted(levels, key=order_of_keys)]
    return steps_named(levels) if name == STEP else f"{style.label(name)} {levels_named(levels)}"


def _level_name(level: LevelGap) -> object:
    return f"{level.level:g}" if isinstance(level.level, float) else level.level


def histogram(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """How the difference in log-odds is distributed at unlikely, middling and likely tokens."""
    totals = dump.whole.totals
    groups = (
        ("unlikely", ORANGE, _spread_counts(totals, -9.0, UNLIKELY)),
        ("middling", GREEN, _spread_counts(totals, UNLIKELY, LIKELY)),
        ("likely", BLUE, _spread_counts(totals, LIKELY, 9.0)),
    )
    shown = [(name, colour, counts) for name, colour, counts in groups if counts.sum() >= FEWEST]
    widths = [_draw_distribution(ax, shown, place, dump) for place in range(len(shown))]
    if not shown:
        raise Missing("Too few tokens that both policies are unsure of.")
    words = ", ".join(f"{number(width)} at {name} ones" for (name, _, _), width in zip(shown, widths, strict=True))
    beyond = sum(
        counts.sum() - float(between(counts, np.array([-FAR * width, FAR * width])).sum())
        for (_, _, counts), width in zip(shown, widths, strict=True)
    ) / sum(counts.sum() for _, _, counts in shown)
    words = words.replace(" at", " of the middle at", 1)
    return f"68% of the tokens lie within {words}; {share(beyond)} lie beyond {FAR:g} times that."


def odd_rows(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """The same of rows whose columns do not go together, and of all others."""
    totals = dump.whole.totals
    groups = [
        (f"{plural(totals.n_odd, 'odd row')}", ORANGE, _spread_counts(totals, -9.0, 9.0, "odd")),
        ("all others", BLUE, _spread_counts(totals, -9.0, 9.0)),
    ]
    shown = [group for group in groups if group[2].sum() >= FEWEST]
    if len(shown) < 2:
        raise Missing("There are no odd rows to draw.")
    odd, others = (_draw_distribution(ax, shown, place, dump) for place in range(2))
    words = f"{number(odd)} of the middle in odd rows, and within {number(others)} in the others"
    return f"68% of the tokens lie within {words}."


def _draw_distribution(ax: Axes, groups: Sequence[tuple[str, str, Floats]], place: int, dump: DiagnosedDump) -> float:
    """Draw one group's distribution as shares of its tokens, log counts; returns half the width of its middle 68%."""
    name, colour, counts = groups[place]
    widths = [_half_width(each) for _, _, each in groups]
    reach = min(max(REACH * max(widths), 4 * (dump.whole.diagnosis.gap.core or 0.0), 0.01), SPREAD_EDGES[-1])
    edges = np.linspace(-reach, reach, 62)
    shares = between(counts, edges) / counts.sum()
    ax.stairs(np.where(shares > 0, shares, np.nan), edges, color=colour, label=name, linewidth=1.4)
    if place == len(groups) - 1:
        ax.set_yscale("log")
        ticks.logarithmic(ax.yaxis, 0.5 / max(float(each.sum()) for _, _, each in groups), 1.0)
        ax.set_xlim(-reach, reach)
        ax.set(xlabel=SIDE, ylabel="share of tokens")
    return widths[place]


def _half_width(counts: Floats) -> float:
    low, high = (quantile(counts, q) for q in MIDDLE)
    return (high - low) / 2


def rows(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """How many rows have which typical |r|."""
    counts = dump.whole.totals.sizes[:, SIZE_SUMS.index("rows")]
    filled = np.flatnonzero(counts)
    if not len(filled):
        raise Missing("No row has enough tokens to have a size.")
    first, last = int(filled[0]), int(filled[-1])
    counts = counts[first : last + 1]
    edges = np.array([typical(SIZE_LEAST + SIZE_STEP * k) for k in range(first, last + 2)])
    ax.stairs(counts, edges, fill=True, color=BLUE)
    ax.set_xscale("log")
    ticks.logarithmic(ax.xaxis, float(edges[0]) / 1.1, float(edges[-1]) * 1.1)
    ax.set(xlabel="typical size of a row's tokens, |r|", ylabel="rows")
    middle = float(np.interp(0.5 * counts.sum(), np.cumsum(counts), edges[1:]))
    mark(ax, middle, "median", color=INK, style="-")
    return (
        f"Half of the {int(counts.sum()):,} rows lie below {number(middle)}, and the farthest at {number(edges[-1])}."
    )


def repeated(ax: Axes, dump: DiagnosedDump, finding: Finding) -> str:
    """Mean difference in log-odds of tokens that stood in the response before, and of new ones."""
    vocabulary = dump.whole.totals.vocabulary
    if vocabulary is None:
        raise Missing("The dump has no token ids.")
    n, d = vocabulary.repeats[:, :, 0], vocabulary.repeats[:, :, 1]
    bins = [k for k in range(N_SURPRISE) if k in INSIDE and n[k].min() >= FEWEST]
    if len(bins) < 2:
        raise Missing("Too few tokens that repeat.")
    u = np.array([(SURPRISE_EDGES[k] + SURPRISE_EDGES[k + 1]) / 2 for k in bins])
    first, again = d[bins, 0] / n[bins, 0], d[bins, 1] / n[bins, 1]
    ax.plot(u, again, "o-", color=ORANGE, label="token stood there before")
    ax.plot(u, first, "o-", color=BLUE, label="new token")
    mark(ax, 0.0, "equal", color=INK, vertical=False, style="-")
    ax.set(xlabel="log-odds of the token under rollout, rarer to the left", ylabel=SIDE)
    return f"Tokens that repeat lie {_signed(float((again - first).mean()))} from new ones of the same surprise."


_LINE: tuple[str, Panel] = ("Difference in log-odds by surprise", line)
_NOISE: tuple[str, Panel] = ("How the difference in log-odds is spread", histogram)
_CUT: tuple[str, Panel] = ("Tokens that are certain on one side", bound)
_PLACE: tuple[str, Panel] = ("Size of the gap by place", places)
_COURSE: tuple[str, Panel] = ("Size of the gap along the response", index)
EVIDENCE: dict[str, tuple[str, Panel]] = {
    **dict.fromkeys(("top_p", "min_p", "temperature_and_truncation"), _CUT),
    **dict.fromkeys(("first_token", "last_token", "mask_boundary"), _PLACE),
    **dict.fromkeys(("position_onset", "position_grows", "position_decays"), _COURSE),
    **dict.fromkeys(("noise", "heavy_tail", "padded_vocabulary", "other_weights"), _NOISE),
    **dict.fromkeys(("column", "stale_cache"), ("Shares of the gap by level", column)),
    "mispaired_rows": ("Rows whose columns do not go together", odd_rows),
    "some_rows": ("Rows by the size of their gap", rows),
    "repetition_penalty": ("Difference in log-odds of repeated tokens", repeated),
}
"""Cause -> the title of its panel, and the panel; any other shows the difference in log-odds by surprise."""


def evidence(dump: DiagnosedDump, finding: Finding) -> tuple[str, Callable[[Axes], str]]:
    """The panel of a cause, or of a gap without one: its title, and what draws it."""
    is_of_lag = finding is not None and finding.cause == "stale_policy" and "column" in finding.parameters
    title, panel = EVIDENCE["column"] if is_of_lag else EVIDENCE.get(finding.cause if finding else "", _LINE)
    return title, lambda ax: panel(ax, dump, finding)
