"""The panels on tokens, sequences and weights.

Each draws one question about a report on its axes and returns one sentence on what is to be seen.
A panel that has nothing to draw raises Missing with the reason.  The last ones are on a plan's weights: how they are
distributed, and which sequences carry them.  `courses.py` has the panels over groups.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from rlcorr_cli.plans.plan import Bounds
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.trends import (
    MIN_LENGTH_COUNT,
    POSITION_FACTOR,
    SURPRISE_FACTOR,
    Missing,
    Profile,
    length_trend,
    lorenz,
    position_trend,
    profile,
    shifted_mean,
    surprise_trend,
    turn,
)
from rlcorr_cli.show.figures import style, ticks
from rlcorr_cli.show.figures.style import BLUE, GREEN, GREY, INK, MAP, ORANGE, PURPLE, RED, mark
from rlcorr_cli.show.numbers import number, plural, share, signed
from rlcorr_cli.totals.bins import DEEPEST, POSITION, SURPRISE, Binned, BinnedTotals, Grid, Histogram, Octaves, square
from rlcorr_cli.totals.flat import Floats

ASIDE = "Advantages are not counted: `rlcorr plot DUMP --kind weights` counts them where the dump has any."
LONGER = 1.1
"""Responses of late steps are longer beyond this factor."""
LINEAR_BELOW = 8.0
"""Weights that lie within this factor of one another stand on a linear axis."""
WIDEST_GAP = 3.0
"""Neighbours further apart than this factor are not joined by a line."""


def rebinned(histogram: Histogram, edges: Floats) -> Floats:
    """Counts between edges, whole numbers f64[K]: a bucket's values are taken to lie evenly over it.

    Their sum is exact: the counts below each edge are rounded, and the differences of these taken.
    """
    if not len(histogram.bins):
        return np.zeros(len(edges) - 1)
    near, far = histogram.binning.ends(histogram.bins)
    counts = histogram.counts.astype(np.float64)
    return np.diff(np.round(counts_below(counts, np.minimum(near, far), np.maximum(near, far), edges)))


def counts_below(counts: Floats, low: Floats, high: Floats, edges: Floats) -> Floats:
    """How many lie below each edge, of counts that lie evenly over bins from low to high."""
    width = np.maximum(high - low, 1e-300)
    return np.array([(counts * np.clip((edge - low) / width, 0.0, 1.0)).sum() for edge in edges])


def unbroken(places: Floats, values: Floats) -> tuple[Floats, Floats]:
    """A curve over a logarithmic axis, in pieces (NaN between them) where bins without enough tokens lie between."""
    size = np.abs(places)
    apart = 1 + np.flatnonzero(np.maximum(size[1:], size[:-1]) > WIDEST_GAP * np.minimum(size[1:], size[:-1]))
    return np.insert(places, apart, np.nan), np.insert(values, apart, np.nan)


def binned_totals(report: Report) -> BinnedTotals:
    """The report's bins; a report of an older run, or of `analyze --json`, has none."""
    if report.pictures is None:
        raise Missing("The report was saved without the counts that pictures are drawn from.")
    return report.pictures


def ratio(ax: Axes, report: Report) -> str:
    """Histogram of the log-ratio, log counts, with the plan's token bounds."""
    if not len(report.log_ratios.bins):
        raise Missing("No valid token.")
    values, n = report.whole.values, int(report.log_ratios.counts.sum())
    largest = values["logprob_abs_diff_max"] or 0.0
    if largest == 0:
        raise Missing(f"All {n:,} log-ratios are 0: the two columns are equal.")
    outer = max(abs(report.log_ratios.quantile(q) or 0.0) for q in (0.001, 0.999)) or largest
    bounds = _token_bounds(report)
    ends = [abs(at) for _, places, _ in bounds for at in places]
    reach = 1.4 * max(outer, *(at for at in ends if at < 4 * outer), 0.0)
    edges = np.linspace(-reach, reach, 82)
    drawn = rebinned(report.log_ratios, edges)
    ax.stairs(drawn, edges, fill=True, color=BLUE, alpha=0.85)
    mark(ax, 0, "equal", color=INK, style="-")
    for name, places, color in bounds:
        for at in places:
            if abs(at) <= reach:
                mark(ax, at, name, color=color)
    ax.set(xlabel="log-ratio, training − rollout (nats)", ylabel="tokens", xlim=(-reach, reach))
    ticks.counts(ax.yaxis)
    sentences, far = [_spread_words(report, n)], n - drawn.sum()
    if far:
        sentences.append(f"{share(far / n)} lie beyond the picture.")
    if outside := _outside(report):
        sentences.append(f"{outside}.")
    return " ".join(sentences)


def _spread_words(report: Report, n: int) -> str:
    """Where the log-ratios lie: their extremes if they are few, else their outer quantiles."""
    low, middle, high = (signed(report.whole.values[f"log_ratio_{name}"]) for name in ("p01", "p50", "p999"))
    if n < 1000:  # then these quantiles are the smallest and the largest
        return f"The log-ratios lie between {low} and {high} nats; the median is {middle}."
    if low == high:
        values, _ = report.log_ratios.by_value
        ends = f"{signed(values[0])} and {signed(values[-1])}"
        return f"Nearly all log-ratios are {middle} nats; the others lie between {ends}."
    return f"99.8% of the log-ratios lie between {low} and {high} nats; the median is {middle}."


def _token_bounds(report: Report) -> list[tuple[str, list[float], str]]:
    """The plan's bounds on single ratios: their name, the log-ratios they are at, and their colour."""
    named_bounds: list[tuple[str, Bounds, str]] = []
    weighting = report.plan.weighting
    if weighting is not None and weighting.scope == "token" and weighting.of == "mismatch":
        named_bounds.append(("weight", weighting.bounds, RED))
    named_bounds += [
        (style.label(rejection.name), rejection.bounds, PURPLE)
        for rejection in report.plan.rejections
        if rejection.statistic == "ratio"
        and rejection.scope in ("token", "seq_min", "seq_max")
        and rejection.of == "mismatch"
    ]
    return [
        (f"{name} {bounds_words(bounds)}", [math.log(end) for end in (bounds.low, bounds.high) if end], color)
        for name, bounds, color in named_bounds
        if bounds.low or bounds.high
    ]


def bounds_words(bounds: Bounds) -> str:
    """'0.8 to 1.25', 'low 0.8' or 'high 2', of ratios."""
    if bounds.low and bounds.high:
        return f"{bounds.low:g} to {bounds.high:g}"
    return f"low {bounds.low:g}" if bounds.low else f"high {bounds.high:g}"


def _outside(report: Report) -> str:
    """The reported shares of tokens outside those bounds."""
    values, parts = report.whole.values, list[str]()
    weighting = report.plan.weighting
    if weighting is not None and weighting.scope == "token":
        low, high = (values.get(f"rollout_is_ratio_fraction_{end}") for end in ("low", "high"))
        if weighting.bounds.high is not None:
            parts.append(f"{share(high)} lie above the weights' bound")
        if weighting.bounds.low:
            parts.append(f"{share(low)} lie below it")
    for rejection in report.plan.rejections:
        if rejection.scope == "token":
            lost = share(values.get(f"rollout_rs_{rejection.name}_masked_fraction"))
            parts.append(f"{rejection.name} rejects {lost}")
    return ", ".join(parts)


def probabilities(ax: Axes, report: Report) -> str:
    """Rollout against training probability, a count per square."""
    _scatter(ax, binned_totals(report).counts["probability"])
    ax.set(xlabel="rollout probability", ylabel="training probability")
    pearson = report.whole.values["prob_pearson"]
    if pearson is None:
        return "All probabilities of one side are the same, so they correlate with nothing."
    return f"The probabilities correlate with {number(pearson)} (ideal 1)."


def log_probabilities(ax: Axes, report: Report) -> str:
    """Rollout against training log-prob."""
    scatter = binned_totals(report).counts["log_probability"]
    _scatter(ax, scatter)
    places = [(DEEPEST * part / 4, f"−{-DEEPEST * part / 4:g}" if part else "0") for part in (3, 2, 1, 0)]
    for axis in (ax.xaxis, ax.yaxis):
        ticks.fixed(axis, DEEPEST - 0.8, 0.0, [(DEEPEST, f"≤ −{-DEEPEST:g}"), *places])
    ax.set(xlabel="rollout log-prob (nats)", ylabel="training log-prob (nats)")
    far = 1 - rebinned(report.log_ratios, np.array([-1.0, 1.0])).sum() / report.log_ratios.counts.sum()
    text = f"{share(max(float(far), 0.0))} of the tokens lie more than 1 nat off the diagonal"
    counts = square(scatter)
    edge = int(counts[0].sum() + counts[1:, 0].sum())
    if edge:
        are = "is" if edge == 1 else "are"
        text += f"; {plural(edge, 'token')} below {scatter.binning.edges[1]:g} nats on either side {are} at the edge"
    return f"{text}."


def _scatter(ax: Axes, scatter: Binned[Grid]) -> None:
    if not len(scatter.bins):
        raise Missing("No valid token.")
    edges, most = scatter.binning.edges, max(12, int(scatter.counts.max()))
    shown = np.ma.masked_equal(square(scatter).T, 0)
    mesh = ax.pcolormesh(edges, edges, shown, cmap=MAP, norm=LogNorm(1, most), rasterized=True)
    ax.plot(edges[[0, -1]], edges[[0, -1]], color=RED, linewidth=0.8, label="equal")
    # The darkest cells are single tokens, and outliers: they must show on a dark page, too.
    ax.set_facecolor(style.PALE)
    ax.grid(visible=False)
    assert ax.figure is not None
    bar = ax.figure.colorbar(mesh, ax=ax, label="tokens", fraction=0.05, pad=0.02)
    ticks.logarithmic(bar.ax.yaxis, 1, most)


def _mean_and_std(ax: Axes, places: Floats, bins: Profile) -> None:
    """Both curves of a profile; the mean with twice its standard error."""
    ax.plot(*unbroken(places, bins.std), "o-", color=BLUE, label="std")
    ax.plot(*unbroken(places, bins.mean), "s--", color=ORANGE, label="mean ± 2 standard errors")
    error = 2 * bins.std / np.sqrt(bins.count)
    (x, low), (_, high) = unbroken(places, bins.mean - error), unbroken(places, bins.mean + error)
    ax.fill_between(x, low, high, color=ORANGE, alpha=0.3, linewidth=0)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_ylabel("log-ratio (nats)")


def surprise(ax: Axes, report: Report) -> str:
    """Spread of the log-ratio by how unlikely the token was."""
    if not len(binned_totals(report).spread["surprise"].bins):
        raise Missing("No valid token.")
    bins = profile(binned_totals(report).spread["surprise"])
    _mean_and_std(ax, -bins.centre, bins)
    surprise_axis(ax)
    trend = surprise_trend(bins)
    if trend is None:
        return "There are too few tokens to tell likely from unlikely ones."
    if apart := _of_other_tokens(report):
        return apart
    words = {"level": "is much the same at any surprise"}.get(trend.change, f"{trend.change} with surprise")
    likely, unlikely = number(trend.likely_std), number(trend.unlikely_std)
    if (turned := turn(bins, SURPRISE_FACTOR, trend.likely_std, trend.unlikely_std)) is not None:
        size, at = turned
        words = f"is {size} at log-probs near {-bins.centre[at]:.2g}, {number(float(bins.std[at]))} nats"
    spread = f"The spread {words}: std {likely} nats for the likeliest tokens, {unlikely} for the unlikeliest."
    return f"{spread} {_shift_words(shifted_mean(bins))}".rstrip()


OF_OTHER_TOKENS = ("shifted_columns", "mispaired_rows", "slipped_rows", "top1_recorded", "wrong_labels")
"""Faults under which a log-ratio is of two different tokens."""


def _of_other_tokens(report: Report) -> str:
    """That a spread says nothing of the policies; empty where it does."""
    fault = next((name for name in report.story.fault_names if name in OF_OTHER_TOKENS), None)
    return "" if fault is None else f"These spreads say nothing about the policies: {fault} compares different tokens."


def surprise_axis(ax: Axes) -> None:
    """The axis of a rollout log-prob, by octaves."""
    nearest = 2.0**SURPRISE.first
    ax.set_xscale("symlog", linthresh=nearest)
    ax.set_xlabel("rollout log-prob (nats; unlikely tokens left)")
    places = [(-10.0, "−10"), (-1.0, "−1"), (-0.1, "−0.1"), (-0.01, "−0.01"), (-nearest, "> −0.001")]
    ticks.fixed(ax.xaxis, -40, -nearest, places)


def _shift_words(shifted: tuple[float, float] | None) -> str:
    """Whether the mean leaves 0 by much of the spread around it, as it does not under noise."""
    if shifted is None:
        return "The mean stays small against the spread."
    place, mean = shifted
    return (
        f"The mean leaves 0: {signed(mean)} nats at log-probs near {place:.2g}. Noise does not move it; a temperature, "
        "a cut of the distribution, misaligned rows or another policy does."
    )


def position(ax: Axes, report: Report) -> str:
    """Mean and spread by place in the sequence."""
    spread = binned_totals(report).spread
    if not len(spread["position"].bins):
        raise Missing("No valid token.")
    bins = profile(spread["position"])
    trend = position_trend(bins)
    if trend is None:
        raise Missing("Sequences are too short or too few for a course along them.")
    # The mean of the whole numbers in each bin.
    places = (np.ceil(POSITION.edges[bins.bins]) + np.ceil(POSITION.edges[bins.bins + 1]) - 1) / 2
    reached = spread["length"].bins == bins.bins[-1]
    if reached.any():
        # The last bin goes no further than the sequences do that end in it.
        mean_length = spread["length"].sums["tokens"][reached][0] / spread["length"].counts[reached][0]
        places[-1] = (math.ceil(POSITION.edges[bins.bins[-1]]) + mean_length) / 2
    _mean_and_std(ax, places, bins)
    ticks.octaves(ax.xaxis, float(places[0]) / 1.15, float(places[-1]) * 1.15)
    ax.set_xlabel(f"position in the sequence (at least {int(bins.count.min()):,} tokens each)")
    if apart := _of_other_tokens(report):
        return apart
    words = {"level": "does not change along the sequence"}.get(trend.change, f"{trend.change} along the sequence")
    if (turned := turn(bins, POSITION_FACTOR, trend.early_std, trend.late_std)) is not None:
        size, at = turned
        words = f"is {size} near position {places[at]:,.0f}, std {number(float(bins.std[at]))} nats"
    early = f"std {number(trend.early_std)} nats up to position {trend.early_end:,}"
    late = f"{number(trend.late_std)} from {trend.late_start:,} on"
    return f"The gap {words}: {early}, {late}. {_late_steps(report) if trend.change == 'widens' else ''}".rstrip()


def _late_steps(report: Report) -> str:
    """That late positions are of late steps, where the gap rises over steps whose responses become longer."""
    steps = report.by_step
    if report.course is None or report.course.rise is None:
        return ""
    quarter = max(1, len(steps) // 4)
    early, late = (
        sum(step.counts["tokens"] for step in some) / max(1, sum(step.counts["sequences"] for step in some))
        for some in (steps[:quarter], steps[-quarter:])
    )
    if late < LONGER * early:
        return ""
    return "At least in part that is because long responses are of late steps, whose gap is larger."


def length_spread(ax: Axes, report: Report) -> str:
    """The sequence log-ratio S by length: the length trap."""
    lengths = binned_totals(report).spread["length"]
    bins = profile(lengths, MIN_LENGTH_COUNT)
    trend = length_trend(bins)
    if trend is None:
        raise Missing("No valid token.")
    centre, enough = _mean_lengths(lengths), np.isin(lengths.bins, bins.bins)
    if not enough.all():
        mean = lengths.sums["sum"] / lengths.counts
        few = f"mean of fewer than {MIN_LENGTH_COUNT}"
        ax.plot(centre[~enough], mean[~enough], "o", color=BLUE, markerfacecolor="none", label=few)
    line = ax.errorbar(centre[enough], bins.mean, bins.std, fmt="o-", color=BLUE, ecolor=BLUE, elinewidth=1, capsize=3)
    line.set_label("mean ± std of S")
    for at in (math.log(2), -math.log(2)):
        mark(ax, at, "ratio 2, 1/2", vertical=False)
    ax.set_ylabel("S = sequence log-ratio (nats)")
    _length_axis(ax, lengths)
    shortest, longest = number(trend.shortest), number(trend.longest)
    ratio_2 = f" (a ratio of 2 is {math.log(2):.2f})"
    if len(bins.std) == 1:
        enough_there = bins.count[0] >= MIN_LENGTH_COUNT
        where = "at the one length that enough sequences have" if enough_there else "over the few sequences there are"
        return f"The log-ratio of a sequence is typically {shortest} nats {where}{ratio_2}."
    if not trend.trap:
        return (
            f"The log-ratio of a sequence is typically {shortest} nats at the shortest lengths and {longest} at the "
            f"longest{ratio_2}."
        )
    return (
        f"The log-ratio of a sequence grows with length, from typically {shortest} nats to {longest}{ratio_2}: a "
        "fixed bound on the ratio rejects long responses."
    )


def _mean_lengths(lengths: Binned[Octaves]) -> Floats:
    """The mean length of the sequences in each bin."""
    return lengths.sums["tokens"] / lengths.counts


def _length_axis(ax: Axes, lengths: Binned[Octaves]) -> None:
    """The same axis for every panel over length: of all lengths there are."""
    places = _mean_lengths(lengths)
    ax.set_xlabel("valid tokens of the sequence")
    ticks.octaves(ax.xaxis, float(places[0]) / 1.15, float(places[-1]) * 1.15)


def length_kept(ax: Axes, report: Report) -> str:
    """Share of tokens that the rejections keep, by length."""
    if not report.plan.rules:
        raise Missing("The plan rejects nothing, so every token is kept at any length.")
    lengths = binned_totals(report).spread["length"]
    if not len(lengths.bins):
        raise Missing("No valid token.")
    kept = lengths.sums["kept_tokens"] / lengths.sums["tokens"]
    ax.plot(_mean_lengths(lengths), kept, "o-", color=GREEN)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("share of tokens kept")
    _length_axis(ax, lengths)
    first, last = share(float(kept[0])), share(float(kept[-1]))
    if len(kept) == 1:
        return f"Rejection keeps {first} of the tokens."
    return f"Rejection keeps {first} of the tokens of the shortest sequences, {last} of those of the longest."


def weights(ax: Axes, report: Report) -> str:
    """Distribution of the applied weights, of the tokens that are kept and of all."""
    weighting = report.plan.weighting
    if weighting is None:
        raise Missing("The plan weights nothing: every token that is kept counts 1.")
    histograms = binned_totals(report).histograms
    everything, kept = histograms["weights"], histograms.get("kept_weights", Histogram.empty())
    positive = everything.by_value[0][everything.by_value[0] > 0]
    if not len(positive):
        raise Missing("Every weight is 0.")
    largest, cap = float(positive[-1]), weighting.bounds.high
    is_capped = cap is not None and 1 < cap <= largest and weighting.normalize != "batch"
    edges = _weight_edges(float(positive[0]), cap if is_capped and cap is not None else 1.05 * largest)
    # The bucket of all capped weights is wider than the one value that they have: it ends at the cap.
    ends = np.append(edges[:-1], np.inf) if is_capped else edges
    rejects = len(kept.bins) > 0 and kept.counts.sum() < everything.counts.sum()
    alpha, label = (0.35, "all tokens") if rejects else (1.0, None)
    ax.stairs(rebinned(everything, ends), edges, fill=True, color=PURPLE, alpha=alpha, label=label)
    if rejects:
        ax.stairs(rebinned(kept, ends), edges, fill=True, color=PURPLE, label="kept")
    stage = ", before division by the batch mean" if weighting.normalize == "batch" else ""
    ax.set(ylabel="tokens", xlabel=f"applied weight{stage}")
    mark(ax, 1.0, "weight 1", color=INK, style="-")
    for end in (weighting.bounds.low, weighting.bounds.high):
        if end and edges[0] <= end <= edges[-1]:
            mark(ax, end, bounds_words(weighting.bounds))
    ticks.counts(ax.yaxis)
    if edges[-1] / edges[0] < LINEAR_BELOW:
        ax.set_xlim(edges[0], edges[-1] + 0.02 * (edges[-1] - edges[0]))
    else:
        ax.set_xscale("log")
        ticks.logarithmic(ax.xaxis, float(edges[0]), 1.05 * float(edges[-1]))
    return _weight_words(report, everything, kept)


def _weight_edges(smallest: float, largest: float) -> Floats:
    """70 bins that reach from the smallest weight (or a millionth of the largest) to the largest, with 1 among them."""
    high, low = largest if largest > 1 else 1.05, min(1.0, max(smallest, largest * 1e-6)) / 1.05
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
    if len(kept.bins):
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
    histograms = binned_totals(report).histograms
    loads = histograms.get("gradient", Histogram.empty())
    has_advantages = len(loads.bins) > 0
    if not has_advantages:
        loads = histograms["loads"]
    if not has_advantages and report.plan.weighting is None and not report.plan.rules:
        raise Missing("Without weights, rejection and advantages each sequence carries just its length.")
    curve = lorenz(loads)
    ax.plot(curve.sequences, curve.weight, color=PURPLE, label="this dump")
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", label="equal shares")
    what, title = "weight", "Which sequences carry the weight"
    if has_advantages:
        what, title = "weight × |advantage|", "Which sequences carry the gradient"
    elif report.plan.weighting is None:
        what, title = "kept tokens", "Which sequences hold the kept tokens"
    ax.set_title(title)
    ax.set(xlabel="share of sequences, lightest first", ylabel=f"share of {what}", xlim=(0, 1), ylim=(0, 1))
    half = 1 - float(np.interp(0.5, curve.sequences, curve.weight))
    words = (
        f"The heavier half of the sequences carries {share(half)} of the {what}, and the heaviest 1% carries "
        f"{share(curve.top)}."
    )
    return words if has_advantages else f"{words} {ASIDE}"
