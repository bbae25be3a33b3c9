"""The panels: each draws one question about a report on its axes and returns one sentence on what is to be seen.

A panel that has nothing to draw raises Missing with the reason.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from rlcorr_cli.plans.plan import Bounds
from rlcorr_cli.present.figures import style
from rlcorr_cli.present.figures.data import rebinned
from rlcorr_cli.present.figures.style import BLUE, GREEN, GREY, INK, MAP, ORANGE, PURPLE, RED, mark
from rlcorr_cli.present.numbers import number, share, signed
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.trends import (
    MIN_LENGTH_COUNT,
    Missing,
    length_trend,
    lorenz,
    position_trend,
    profile,
    surprise_trend,
)
from rlcorr_cli.totals.binned import SURPRISE, BinnedTotals, square
from rlcorr_cli.totals.bins import Binned, Grid


def counted(report: Report) -> BinnedTotals:
    """The report's bins; a report of an older run, or of `analyze --json`, has none."""
    if report.pictures is None:
        raise Missing("The report was saved without the counts that pictures are drawn from.")
    return report.pictures


def ratio(ax: Axes, report: Report) -> str:
    """Histogram of the log-ratio, log counts, with the plan's token bounds."""
    values, counts = report.log_ratios.by_value
    if not len(values):
        raise Missing("No valid token.")
    values, n = report.whole.values, int(counts.sum())
    largest = values["logprob_abs_diff_max"] or 0.0
    if largest == 0:
        raise Missing(f"All {n:,} log-ratios are 0: the two columns are equal.")
    outer = max(abs(report.log_ratios.quantile(q) or 0.0) for q in (0.001, 0.999)) or largest
    bounds = _token_bounds(report)
    reach = 1.4 * max(outer, *(abs(at) for _, at in bounds if abs(at) < 4 * outer), 0.0)
    edges = np.linspace(-reach, reach, 82)
    drawn = rebinned(report.log_ratios, edges)
    ax.stairs(drawn, edges, fill=True, color=BLUE, alpha=0.85)
    style.log_counts(ax.yaxis)
    ax.set_ylim(bottom=0.3)
    ax.axvline(0, color=INK, linewidth=0.8)
    for at in sorted({at for _, at in bounds if abs(at) <= reach}):
        mark(ax, at, ", ".join(name for name, other in bounds if other == at))
    ax.set(xlabel="log-ratio, training − rollout (nats)", ylabel="tokens")
    text = _spread_words(report, n)
    far = n - drawn.sum()
    if far >= 0.5:
        text += f"; {share(far / n)} lie beyond the picture"
    outside = _outside(report)
    return f"{text}{'; ' + outside if outside else ''}."


def _spread_words(report: Report, n: int) -> str:
    """Where the log-ratios lie: their extremes if they are few, else their outer quantiles."""
    low, middle, high = (signed(report.whole.values[f"log_ratio_{name}"]) for name in ("p01", "p50", "p999"))
    if n < 1000:  # then these quantiles are the smallest and the largest
        return f"Median {middle} nats, from {low} to {high}"
    if low == high:
        values, _ = report.log_ratios.by_value
        return f"Nearly all at {middle} nats, the others from {signed(values[0])} to {signed(values[-1])}"
    return f"Median {middle} nats, 0.1 % of the tokens below {low} and 0.1 % above {high}"


def _token_bounds(report: Report) -> list[tuple[str, float]]:
    """The plan's bounds on single ratios, as log-ratios."""
    named_bounds: list[tuple[str, Bounds]] = []
    weighting = report.plan.weighting
    if weighting is not None and weighting.scope == "token" and weighting.of == "mismatch":
        named_bounds.append(("weight", weighting.bounds))
    named_bounds += [
        (rejection.name, rejection.bounds)
        for rejection in report.plan.rejections
        if rejection.statistic == "ratio"
        and rejection.scope in ("token", "seq_min", "seq_max")
        and rejection.of == "mismatch"
    ]
    ends = [(f"{name} {end:g}", end) for name, bounds in named_bounds for end in (bounds.low, bounds.high) if end]
    return [(name, math.log(end)) for name, end in ends]


def _outside(report: Report) -> str:
    """The reported shares of tokens outside those bounds."""
    values, parts = report.whole.values, list[str]()
    weighting = report.plan.weighting
    if weighting is not None and weighting.scope == "token":
        low, high = (values.get(f"rollout_is_ratio_fraction_{end}") for end in ("low", "high"))
        if weighting.bounds.high is not None:
            parts.append(f"{share(high)} above the weights' bound")
        if weighting.bounds.low:
            parts.append(f"{share(low)} below it")
    for rejection in report.plan.rejections:
        if rejection.scope == "token":
            lost = share(values.get(f"rollout_rs_{rejection.name}_masked_fraction"))
            parts.append(f"{rejection.name} takes {lost}")
    return ", ".join(parts)


def probabilities(ax: Axes, report: Report) -> str:
    """Rollout against training probability, a count per square."""
    _scatter(ax, counted(report).counts["probability"])
    ax.set(xlabel="rollout probability", ylabel="training probability")
    pearson = report.whole.values["prob_pearson"]
    if pearson is None:
        return "All probabilities of one side are the same, so they correlate with nothing."
    return f"The probabilities correlate with {number(pearson)} (ideal 1)."


def log_probabilities(ax: Axes, report: Report) -> str:
    """Rollout against training log-prob."""
    _scatter(ax, counted(report).counts["log_probability"])
    ax.set(xlabel="rollout log-prob (nats)", ylabel="training log-prob (nats)")
    far = 1 - rebinned(report.log_ratios, np.array([-1.0, 1.0])).sum() / report.log_ratios.counts.sum()
    return f"{share(max(float(far), 0.0))} of the tokens lie more than 1 nat off the diagonal."


def _scatter(ax: Axes, scatter: Binned[Grid]) -> None:
    if not len(scatter.bins):
        raise Missing("No valid token.")
    edges, most = scatter.binning.edges, max(2, int(scatter.counts.max()))
    shown = np.ma.masked_equal(square(scatter).T, 0)
    mesh = ax.pcolormesh(edges, edges, shown, cmap=MAP, norm=LogNorm(1, most), rasterized=True)
    ax.plot(edges[[0, -1]], edges[[0, -1]], color=RED, linewidth=0.8)
    ax.set_aspect("equal")
    ax.set_facecolor(
        style.PALE
    )  # the darkest cells are single tokens, and outliers: they must show on a dark page, too
    ax.grid(visible=False)
    assert ax.figure is not None
    bar = ax.figure.colorbar(mesh, ax=ax, label="tokens", shrink=0.7)
    style.plain_numbers(bar.ax.yaxis)


def surprise(ax: Axes, report: Report) -> str:
    """Spread of the log-ratio by how unlikely the token was."""
    bins = profile(counted(report).spread["surprise"])
    ax.plot(-bins.centre, bins.std, "o-", color=BLUE, label="std")
    ax.plot(-bins.centre, bins.mean, "s--", color=ORANGE, label="mean")
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xscale("symlog", linthresh=2.0**SURPRISE.first)
    ax.set(xlabel="rollout log-prob (nats; unlikely tokens left)", ylabel="log-ratio (nats)")
    _symlog_ticks(ax)
    ax.legend()
    trend = surprise_trend(bins)
    if trend is None:
        return "There are too few tokens to tell likely from unlikely ones."
    words = {"level": "is much the same at any surprise"}.get(trend.change, f"{trend.change} with surprise")
    likely, unlikely = number(trend.likely_std), number(trend.unlikely_std)
    return f"The spread {words}: std {likely} for the likeliest tokens, {unlikely} for the unlikeliest."


def _symlog_ticks(ax: Axes) -> None:
    ticks = [-10.0, -1.0, -0.1, -0.01, -0.001]
    ax.set_xticks(ticks)
    style.plain_numbers(ax.xaxis)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(-40, -(2.0**SURPRISE.first))


def position(ax: Axes, report: Report) -> str:
    """Mean and spread by place in the sequence."""
    bins = profile(counted(report).spread["position"])
    ax.plot(bins.centre, bins.std, "o-", color=BLUE, label="std")
    ax.plot(bins.centre, bins.mean, "s--", color=ORANGE, label="mean")
    ax.axhline(0, color=INK, linewidth=0.8)
    _log_counts(ax)
    ax.set(xlabel="place among the sequence's valid tokens", ylabel="log-ratio (nats)")
    ax.legend()
    trend = position_trend(bins)
    if trend is None:
        return "Sequences are too short for a course along them."
    words = {"level": "stays as wide"}.get(trend.change, trend.change)
    early, late = number(trend.early_std), number(trend.late_std)
    return f"Along the sequence the gap {words}: std {early} in the first places, {late} in the last."


def length_spread(ax: Axes, report: Report) -> str:
    """The sequence log-ratio S by length: the length trap."""
    bins = profile(counted(report).spread["length"], MIN_LENGTH_COUNT)
    ax.fill_between(bins.centre, bins.mean - bins.std, bins.mean + bins.std, color=BLUE, alpha=0.25, linewidth=0)
    ax.plot(bins.centre, bins.mean, "o-", color=BLUE, label="mean ± std of S")
    for at, name in ((math.log(2), "ratio 2"), (-math.log(2), "ratio 1/2")):
        mark(ax, at, name, vertical=False)
    _log_counts(ax)
    ax.set(xlabel="valid tokens of the sequence", ylabel="S, log of the sequence ratio (nats)")
    ax.legend(loc="best")
    trend = length_trend(bins)
    if trend is None:
        raise Missing("No valid token.")
    shortest, longest = number(trend.shortest), number(trend.longest)
    if len(bins.std) == 1:
        return f"S is {shortest} nats large at the one length that enough sequences have; a ratio of 2 is 0.69."
    trap = " A bound on the product rejects long sequences more often." if trend.trap else ""
    return (
        f"S is {shortest} nats large at the shortest lengths and {longest} at the longest; "
        f"a ratio of 2 is {math.log(2):.2f}.{trap}"
    )


def length_kept(ax: Axes, report: Report) -> str:
    """Share of tokens that the rejections keep, by length."""
    if not report.plan.rules:
        raise Missing("The plan rejects nothing, so there is no acceptance by length.")
    lengths = counted(report).spread["length"]
    tokens, kept_tokens = lengths.sums["tokens"], lengths.sums["kept_tokens"]
    use = tokens > 0
    centre, kept = lengths.binning.centres(lengths.bins[use]), kept_tokens[use] / tokens[use]
    ax.plot(centre, kept, "o-", color=GREEN)
    ax.set_ylim(-0.02, 1.02)
    _log_counts(ax)
    ax.set(xlabel="valid tokens of the sequence", ylabel="share of tokens kept")
    first, last = share(float(kept[0])), share(float(kept[-1]))
    if len(kept) == 1:
        return f"Kept are {first} of the tokens."
    return f"Kept are {first} of the tokens at the shortest lengths, {last} at the longest."


def _log_counts(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    style.plain_numbers(ax.xaxis)
    ax.xaxis.set_minor_locator(NullLocator())


def weights(ax: Axes, report: Report) -> str:
    """Distribution of the applied weights."""
    weighting = report.plan.weighting
    if weighting is None:
        raise Missing("The plan weights nothing: every token that is kept counts 1.")
    histogram = counted(report).histograms["weights"]
    values, counts = histogram.by_value
    positive = values[values > 0]
    zero = float(counts[values == 0].sum() / counts.sum())
    if not len(positive):
        raise Missing("Every weight is 0.")
    high = float(positive[-1]) * 1.05
    low = max(float(positive[0]), high * 1e-6) / 1.05
    edges = np.geomspace(low, high, 70)
    ax.stairs(rebinned(histogram, edges), edges, fill=True, color=PURPLE)
    stage = ", before the batch mean" if weighting.normalize == "batch" else ""
    ax.set(xscale="log", ylabel="tokens", xlabel=f"applied weight{stage}")
    style.log_counts(ax.yaxis)
    ax.set_ylim(bottom=0.3)
    style.plain_numbers(ax.xaxis)
    if high / low < 30:
        style.plain_numbers(ax.xaxis, minor=True)
        ax.tick_params(axis="x", which="minor", labelsize=7)
    else:
        ax.xaxis.set_minor_formatter(NullFormatter())
    mark(ax, 1.0, "1", INK, style="-")
    for end in (weighting.bounds.low, weighting.bounds.high):
        if end and low <= end <= high:
            mark(ax, end, f"{end:g}")
    ess = number(report.whole.values.get("rollout_is_eff_sample_size"))
    nothing = f", {share(zero)} of the tokens weigh 0" if zero else ""
    gone = " Rejection then keeps nothing." if report.whole.values.get("kept_tokens") == 0 else ""
    return f"The weights leave an effective sample of {ess} of all units{nothing}.{gone}"


def gradient(ax: Axes, report: Report) -> str:
    """Lorenz curve: which share of sequences carries which share of the weight."""
    if report.plan.normalizes:
        raise Missing("Each batch's weights are divided by their own mean: who carries the gradient is not counted.")
    curve = lorenz(counted(report).histograms["loads"])
    ax.plot(curve.sequences, curve.weight, color=PURPLE)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", label="all the same")
    ax.set(xlabel="share of sequences, lightest first", ylabel="share of the weight", xlim=(0, 1), ylim=(0, 1))
    ax.set_aspect("equal")
    ax.legend(loc="upper left")
    half = 1 - float(np.interp(0.5, curve.sequences, curve.weight))
    return (
        f"The heavier half of the sequences carries {share(half)} of the weight, the heaviest 1 % {share(curve.top)}."
    )
