"""The panels on a plan's weights: how they are distributed, and which sequences carry them."""

import numpy as np
from matplotlib.axes import Axes

from rlcorr_cli.results.report import Report
from rlcorr_cli.results.trends import Missing, lorenz
from rlcorr_cli.show.figures import ticks
from rlcorr_cli.show.figures.data import rebinned
from rlcorr_cli.show.figures.panels import bounds_words, counted
from rlcorr_cli.show.figures.style import GREY, INK, PURPLE, mark
from rlcorr_cli.show.numbers import number, share
from rlcorr_cli.totals.histogram import Floats, Histogram

ASIDE = "Advantages are not counted: `rlcorr plot DUMP --kind weights` counts them where the dump has any."
LINEAR_BELOW = 8.0
"""Weights that lie within this factor of one another stand on a linear axis."""


def weights(ax: Axes, report: Report) -> str:
    """Distribution of the applied weights, of the tokens that are kept and of all."""
    weighting = report.plan.weighting
    if weighting is None:
        raise Missing("The plan weights nothing: every token that is kept counts 1.")
    histograms = counted(report).histograms
    everything, kept = histograms["weights"], histograms.get("kept_weights", Histogram.empty())
    positive = everything.by_value[0][everything.by_value[0] > 0]
    if not len(positive):
        raise Missing("Every weight is 0.")
    edges = _edges(float(positive[0]), float(positive[-1]))
    rejects = len(kept.buckets) > 0 and kept.counts.sum() < everything.counts.sum()
    alpha, label = (0.35, "all tokens") if rejects else (1.0, None)
    ax.stairs(rebinned(everything, edges), edges, fill=True, color=PURPLE, alpha=alpha, label=label)
    if rejects:
        ax.stairs(rebinned(kept, edges), edges, fill=True, color=PURPLE, label="kept")
    stage = ", before division by the batch mean" if weighting.normalize == "batch" else ""
    ax.set(ylabel="tokens", xlabel=f"applied weight{stage}")
    mark(ax, 1.0, "weight 1", color=INK, style="-")
    for end in (weighting.bounds.low, weighting.bounds.high):
        if end and edges[0] <= end <= edges[-1]:
            mark(ax, end, bounds_words(weighting.bounds))
    ticks.counts(ax.yaxis)
    if edges[-1] / edges[0] < LINEAR_BELOW:
        ax.set_xlim(edges[0], edges[-1])
        ticks.linear(ax.xaxis)
    else:
        ax.set_xscale("log")
        ticks.logarithmic(ax.xaxis, float(edges[0]), float(edges[-1]))
    return _weight_words(report, everything, kept)


def _edges(smallest: float, largest: float) -> Floats:
    """70 bins that reach from the smallest weight (or a millionth of the largest) to the largest, with 1 among them."""
    high, low = max(1.0, largest) * 1.05, min(1.0, max(smallest, largest * 1e-6)) / 1.05
    return np.linspace(low, high, 71) if high / low < LINEAR_BELOW else np.geomspace(low, high, 71)


def _weight_words(report: Report, everything: Histogram, kept: Histogram) -> str:
    values, counts = everything.by_value
    zero = float(counts[values == 0].sum() / counts.sum())
    nothing = f"; {share(zero)} of the tokens weigh 0" if zero else ""
    weighting = report.plan.weighting
    assert weighting is not None
    unit = "tokens" if weighting.scope == "token" else "sequences"
    ess = number(report.whole.values.get("rollout_is_eff_sample_size"))
    if not report.plan.rules:
        return f"The weights' effective sample size is {ess} of all {unit}{nothing}."
    if report.whole.values.get("kept_tokens") == 0:
        return f"The weights' effective sample size is {ess} of all {unit}{nothing}. Rejection then keeps nothing."
    left = ""
    if len(kept.buckets):
        size = _sample_size(kept) / counts.sum()
        left = f", and {number(float(size))} of all tokens once rejected ones count as lost"
    return f"The weights' effective sample size is {ess} of all {unit} before rejection{left}{nothing}."


def _sample_size(weighed: Histogram) -> float:
    """(sum w)^2 / sum w^2, in tokens."""
    values, counts = weighed.by_value
    squares = float((counts * values**2).sum())
    return float((counts * values).sum()) ** 2 / squares if squares else 0.0


def gradient(ax: Axes, report: Report) -> str:
    """Lorenz curve: which share of sequences carries which share of weight times |advantage|, or of the weight where
    there are no advantages."""
    if report.plan.normalizes:
        raise Missing("Each batch has its own mean weight: which sequences carry the gradient is not counted.")
    histograms = counted(report).histograms
    loads = histograms.get("gradient", Histogram.empty())
    has_advantages = len(loads.buckets) > 0
    if not has_advantages:
        loads = histograms["loads"]
    if not has_advantages and report.plan.weighting is None and not report.plan.rules:
        raise Missing("Without weights, rejection and advantages each sequence carries just its length.")
    curve = lorenz(loads)
    ax.plot(curve.sequences, curve.weight, color=PURPLE, label="this dump")
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", label="equal shares")
    what, title = "weight", "Which sequences carry the weight, advantages aside"
    if has_advantages:
        what, title = "weight × |advantage|", "Which sequences carry the gradient"
    elif report.plan.weighting is None:
        what, title = "kept tokens", "Which sequences hold the kept tokens"
    ax.set_title(title)
    ax.set(xlabel="share of sequences, lightest first", ylabel=f"share of {what}", xlim=(0, 1), ylim=(0, 1))
    for axis in (ax.xaxis, ax.yaxis):
        ticks.linear(axis)
    half = 1 - float(np.interp(0.5, curve.sequences, curve.weight))
    words = (
        f"The heavier half of the sequences carries {share(half)} of the {what}, and the heaviest 1 % carries "
        f"{share(curve.top)}."
    )
    return words if has_advantages else f"{words} {ASIDE}"
