"""The panels over groups: metrics along one ordered column, with the bounds of their rules, and staleness.

As in `panels.py`, each draws on its axes, returns one sentence, and raises Missing where there is nothing to draw.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from rlcorr_cli.causes.steps import STEP
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.metrics.weights import KEPT_SIZE
from rlcorr_cli.results.course import FEWEST_EFFECTIVE, is_known
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import RULES, Rule, rule_on
from rlcorr_cli.results.scalars import LoggedMetric
from rlcorr_cli.results.trends import Course, Missing, course
from rlcorr_cli.show.figures import style, ticks
from rlcorr_cli.show.figures.style import BLUE, GREEN, GREY, INK, ORANGE, RED, mark
from rlcorr_cli.show.lags import lag_sentences
from rlcorr_cli.show.numbers import number, plural
from rlcorr_cli.show.words import course_of_metric
from rlcorr_cli.totals.flat import Floats

DENSE = 60
"""From so many places on, a curve has no markers."""
PEAK = 1.5
"""How many times larger than at its ends a curve is where a caption names that place, too; or smaller."""
LARGEST = 1e100
"""No axis has ticks far beyond it."""
WIDE = 30.0
"""From this factor between the smallest and the largest on, values stand on a logarithmic axis."""
INTERVAL = "95% interval"
ROUGH = f"under {FEWEST_EFFECTIVE:g} effective"
"""What a dotted stretch of a curve, or a pale bar, stands on."""
LABEL, SIDE_BY_SIDE = 12, 30
"""Characters of a group's name below its bar, and of all names together that stand side by side."""
Drawn = tuple[str, str, str]
"""A metric, what the legend calls it, and its colour."""


def staleness(ax: Axes, report: Report) -> str:
    """k3 at each lag, and what the lags add to the base within steps, with intervals."""
    if report.lags is None:
        raise Missing(
            "Staleness needs numbers in the columns step and policy_version, or in policy_version_lag, and rows of "
            "two lags."
        )
    lags = report.lags.lags
    known = [each.group.values[GAP] or 0.0 for each in lags]
    ends = [each.group.intervals.get(GAP, (value, value)) for each, value in zip(lags, known, strict=True)]
    places = np.arange(len(lags))
    ax.errorbar(places, known, yerr=_arms(known, ends), fmt="o-", color=BLUE, capsize=3, label=f"k3, {INTERVAL}")
    at_added = np.flatnonzero([each.added is not None for each in lags])
    of_base = next((value for value, each in zip(known, lags, strict=True) if each.lag == report.lags.base), 0.0)
    added = [each.added for each in lags if each.added]
    if added:
        values, ends = [of_base + a.value for a in added], [(of_base + a.low, of_base + a.high) for a in added]
        label = f"what lags add to lag {report.lags.base} within steps"
        ax.errorbar(at_added + 0.1, values, yerr=_arms(values, ends), fmt="s", color=ORANGE, capsize=3, label=label)
    ax.set(xlabel="updates that the rollout policy lies behind", ylabel=f"{GAP} (nats)")
    ticks.fixed(ax.xaxis, -0.6, len(lags) - 0.4, [(float(i), str(each.lag)) for i, each in enumerate(lags)])
    ax.set_ylim(bottom=min(0.0, *known))
    return " ".join(lag_sentences(report))


def _arms(values: Sequence[float], ends: Sequence[tuple[float, float]]) -> Floats:
    """How far intervals reach below and above their values: f64[2, N]."""
    low, high = np.array(ends).T
    return np.maximum([np.array(values) - low, high - np.array(values)], 0.0)


def _place_ticks(ax: Axes, places: Floats) -> None:
    if (places == np.round(places)).all():
        ticks.whole(ax.xaxis)


def _followed(report: Report, metrics: Iterable[str]) -> Course:
    """The metrics along the groups, of which there must be two."""
    curves = course(report.groups, list(metrics))
    if len(curves.places) < 2:
        only = style.label(curves.labels[0]) if curves.labels else f"{curves.places[0]:g}"
        raise Missing(f"All rows have {style.label(curves.name)} {only}: a curve needs two values of it.")
    return curves


def _draw_curves(
    ax: Axes, curves: Course, lines: Mapping[str, str], *, ylabel: str, ideal: float | None = None
) -> list[str]:
    """Draw a line for each metric along the groups, or bars of groups that have no order; returns the metrics that
    have any value.  lines: metric -> what the legend calls it."""
    drawn = [
        (name, text, color)
        for (name, text), color in zip(lines.items(), (BLUE, ORANGE), strict=False)
        if np.isfinite(curves.values[name]).any()
    ]
    if not drawn:
        raise Missing(f"{' and '.join(lines)}: no data.")
    if curves.labels:
        _draw_bars(ax, curves, drawn, ideal or 0.0)
    else:
        _draw_lines(ax, curves, drawn)
    ax.set_ylabel(ylabel)
    if ideal is not None:
        mark(ax, ideal, f"ideal {ideal:g}", color=GREEN, vertical=False, style="-")
    return [name for name, _, _ in drawn]


def _draw_lines(ax: Axes, curves: Course, drawn: Sequence[Drawn]) -> None:
    """Curves with their bands."""
    for (name, text, color), point in zip(drawn, "os", strict=False):
        line = "-" if len(curves.places) > DENSE else f"{point}-"
        values, rough = curves.values[name], curves.rough[name]
        ax.plot(curves.places, np.where(rough, np.nan, values), line, color=color, label=text)
        if rough.any():
            beside = rough | np.roll(np.append(rough, False), 1)[:-1] | np.roll(np.append(rough, False), -1)[:-1]
            ax.plot(curves.places, np.where(beside, values, np.nan), ":", color=color, label=ROUGH)
            if line != "-":
                ax.plot(curves.places[rough], values[rough], point, color=color, markerfacecolor="none")
    for name, _, color in drawn:
        if np.isfinite(curves.intervals[name]).any():
            label = style.once_in_legend(ax, INTERVAL)
            ax.fill_between(curves.places, *curves.intervals[name], color=color, alpha=0.25, linewidth=0, label=label)
    ax.set_xlabel(style.label(curves.name))
    _place_ticks(ax, curves.places)


def _draw_bars(ax: Axes, curves: Course, drawn: Sequence[Drawn], base: float) -> None:
    """Bars from the ideal value on, with their intervals; the groups' names below, upright where they are long."""
    width = 0.8 / len(drawn)
    for i, (name, text, color) in enumerate(drawn):
        values, places = curves.values[name], curves.places + (i - (len(drawn) - 1) / 2) * width
        bars = ax.bar(places, values - base, width, base, color=color, label=text)
        for bar, is_rough in zip(bars, curves.rough[name], strict=True):
            bar.set_alpha(0.4 if is_rough else None)
        ends = curves.intervals[name]
        if np.isfinite(ends).any():
            # A resampled mean need not lie within its interval.
            reach = np.abs(np.clip([values - ends[0], ends[1] - values], 0.0, None))
            whiskers = ax.errorbar(places, values, reach, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
            whiskers.set_label("_" if i else INTERVAL)
    labels = [style.label(label, LABEL) for label in curves.labels]
    ticks.fixed(ax.xaxis, -0.6, len(labels) - 0.4, list(zip(curves.places, labels, strict=True)))
    ax.tick_params("x", rotation=90 if sum(map(len, labels)) > SIDE_BY_SIDE else 0)
    ax.grid(visible=False, axis="x")
    left_out = f" (of {len(labels) + curves.n_left_out:,}, the largest k3_kl)" if curves.n_left_out else ""
    ax.set_xlabel(f"{style.label(curves.name)}{left_out}")


def _rule_lines(
    ax: Axes, rules: Iterable[Rule], metric: str, *, about: str = "", line: str = "--", opens: bool = False
) -> None:
    """The limits of the rule on a metric that lie within what is drawn; opens: those beyond, too, which opens the
    axis."""
    rule, (lowest, highest) = rule_on(metric, rules), sorted(ax.get_ylim())
    for bound in () if rule is None else (rule.low, rule.high):
        if bound is not None and (opens or lowest <= bound <= highest):
            mark(ax, bound, f"{about}limit {bound:g}", color=RED, vertical=False, style=line)


def _course_words(what: str, curves: Course, name: str) -> str:
    """'k3_kl goes from 0.0017 to 0.032': from the first group to the last, or between the ends of unordered ones."""
    is_known = np.isfinite(curves.values[name])
    known = curves.values[name][is_known]
    first, last = (number(float(end)) for end in (np.sort(known) if curves.labels else known)[[0, -1]])
    if curves.labels:
        return f"{what} is {first}." if first == last else f"{what} lies between {first} and {last}."
    went, size = f"{what} is {first}" if first == last else f"{what} goes from {first} to {last}", np.abs(known)
    if name.endswith(("ess", "sample_size", KEPT_SIZE.name)):  # the smaller the worse
        extreme, at, is_far = "smallest", int(size.argmin()), PEAK * size.min() < min(size[0], size[-1])
    else:
        extreme, at, is_far = "largest", int(size.argmax()), size.max() > PEAK * max(size[0], size[-1])
    place = f"{style.label(curves.name)} {curves.places[is_known][at]:g}"
    return f"{went}; it is {extreme}, {number(float(known[at]))}, at {place}." if is_far else f"{went}."


def _by_factors(ax: Axes, values: Floats, *seen: float) -> bool:
    """Make the axis of values logarithmic where they span more than WIDE.  seen: what has to be on it, too."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if not 0 < low * WIDE < high:
        return False
    ax.set_yscale("log")
    ticks.logarithmic(ax.yaxis, min(low, *seen, high) / 1.5, max(high, *seen, low) * 1.5)
    return True


def mean_weight(ax: Axes, report: Report) -> str:
    """Mean raw IS weight, ideally 1."""
    curves = _followed(report, ["rollout_is_mean"])
    if report.plan.weighting is None:
        raise Missing("The plan weights nothing, so there is no mean weight.")
    _draw_curves(ax, curves, {"rollout_is_mean": "before clamping"}, ylabel="mean IS weight", ideal=1.0)
    values = curves.values["rollout_is_mean"]
    _by_factors(ax, values, 1.0)
    _rule_lines(ax, report.rules, "rollout_is_mean")
    return _course_words("The mean weight", curves, "rollout_is_mean")


def sample_size(ax: Axes, report: Report) -> str:
    """Effective sample size with the bounds of its rule, and what rejection leaves of it.

    Under weights it is theirs; without, that of raw sequence ratios, of all sequences and of the kept ones.
    """
    weighting, rejects = report.plan.weighting, bool(report.plan.rules)
    if weighting is None:
        name, kept, what = "seq_ess", "kept_seq_ess", "sequence ratios"
    else:
        name, kept = "rollout_is_eff_sample_size", KEPT_SIZE.name
        what = f"weights of {'tokens' if weighting.scope == 'token' else 'sequences'}"
    lines = {name: "before rejection" if rejects else what}
    if rejects and any(kept in group.values for group in report.groups):
        lines[kept] = "of what is kept" if weighting is None else "after rejection"
    curves = _followed(report, lines)
    drawn = _draw_curves(ax, curves, lines, ylabel=f"ESS of {what}")
    ax.set_ylim(0, 1.05)
    _rule_lines(ax, report.rules, name)
    words = {name: "The effective sample size"}
    if rejects:
        after = "The ESS of what is kept" if weighting is None else "The ESS after rejection"
        words = {name: "The ESS before rejection", kept: after}
    went = (_course_words(text, curves, metric) for metric, text in words.items() if metric in drawn)
    return " ".join((*went, *_rough_sentence(curves, name)))


def _rough_sentence(curves: Course, name: str) -> Iterator[str]:
    """In how many groups an effective sample size is rough, and how these are drawn; nothing where in none."""
    rough, drawn = curves.rough[name], "pale" if curves.labels else "dotted"
    if rough.any():
        few = f"fewer than {FEWEST_EFFECTIVE:g} sequences are effective"
        yield f"It is rough in {rough.sum()} of {len(rough)} groups ({drawn}), where {few}."


def rejected(ax: Axes, report: Report) -> str:
    """Share of tokens lost to all rejections, and of sequences vetoed where there is a veto."""
    lines = {"rollout_rs_masked_fraction": "tokens"}
    if any(rejection.is_veto for rejection in report.plan.rejections):
        lines["rollout_is_veto_fraction"] = "vetoed"
    curves = _followed(report, lines)
    if not report.plan.rules:
        raise Missing("The plan rejects nothing.")
    drawn = _draw_curves(ax, curves, lines, ylabel="share rejected")
    ax.set_ylim(-0.02, max(0.35, 1.1 * max(float(np.nanmax(curves.values[name])) for name in drawn)))
    _rule_lines(ax, report.rules, "rollout_rs_masked_fraction")
    if len(lines) > 1:
        _rule_lines(ax, report.rules, "rollout_is_veto_fraction", about="veto ", line=":")
    words = {
        "rollout_rs_masked_fraction": "The share of tokens rejected",
        "rollout_is_veto_fraction": "The share of sequences vetoed",
    }
    return " ".join(_course_words(words[name], curves, name) for name in drawn)


def divergence(ax: Axes, report: Report) -> str:
    """KL and K3."""
    lines = {"kl": "k1", GAP: "k3"}
    curves = _followed(report, lines)
    name = _draw_curves(ax, curves, lines, ylabel="KL(rollout || training), nats", ideal=0.0)[-1]
    _rule_lines(ax, report.rules, GAP)
    return _course_words(name, curves, name)


def perplexity(ax: Axes, report: Report) -> str:
    """Ratio of perplexities."""
    curves = _followed(report, ["ppl_ratio"])
    _draw_curves(ax, curves, {"ppl_ratio": "ppl_ratio"}, ylabel="perplexity, training / rollout", ideal=1.0)
    return _course_words("The perplexity ratio", curves, "ppl_ratio")


def chi2(ax: Axes, report: Report) -> str:
    """chi squared of token and sequence ratios."""
    lines = {"chi2_token": "tokens", "chi2_seq": "sequences"}
    curves = _followed(report, lines)
    drawn = _draw_curves(ax, curves, lines, ylabel="χ²")
    _rule_lines(ax, report.rules, "chi2_token", about="tokens: ", opens=True)
    ticks.symmetric(ax.yaxis, 1e-3)
    of_tokens = "χ² of tokens"
    sentence = _course_words(of_tokens, curves, "chi2_token") if "chi2_token" in drawn else f"{of_tokens} overflows."
    measured = [group for group in report.groups if group.values.get("chi2_seq") is not None]
    n_blank = sum(not is_known(group, "chi2_seq") for group in measured)
    if n_blank:
        where = f"{n_blank} of {plural(len(report.groups), 'group')}"
        few = f"fewer than {FEWEST_EFFECTIVE:g} effective sequences"
        sentence += f" χ² of sequences is blank in {where}, which have {few}."
    return sentence


def logged(ax: Axes, metric: LoggedMetric) -> str:
    """A metric of a log, with the limits of the default rule on it."""
    places, values = np.array([*metric.values]), np.array([*metric.values.values()]).clip(-LARGEST, LARGEST)
    nowhere = np.full((2, len(places)), np.nan)
    name, rough = metric.name, np.zeros(len(places), bool)
    curves = Course(name=STEP, places=places, values={name: values}, intervals={name: nowhere}, rough={name: rough})
    _draw_lines(ax, curves, [(name, "_", BLUE)])
    _by_factors(ax, values)
    if metric.broken:
        _rule_lines(ax, RULES, metric.metric, opens=True)
    return course_of_metric(metric.course, metric.shift, style.label(name), STEP) if metric.course else ""


def k3_course(ax: Axes, report: Report) -> str:
    """k3 alone, for the overview."""
    curves = _followed(report, [GAP])
    _draw_curves(ax, curves, {GAP: GAP}, ylabel=f"{GAP} (nats)")
    by = ax.get_xlabel()
    ax.set_title(f"k3 KL by {by}" if len(by) < 20 else "k3 KL by group")
    highest = max(float(np.nanmax(curves.values[GAP])), ax.dataLim.y1)  # of the curve, or of its band
    if curves.labels or not _by_factors(ax, curves.values[GAP], highest):
        ax.set_ylim(0, 1.1 * highest or 1.0)
    _rule_lines(ax, report.rules, GAP)
    moved = None if report.course is None else report.course.rise or report.course.fall
    if moved is not None and not curves.labels and isinstance(moved.since, (int, float)):
        goes = "rises" if moved.factor > 1 else "falls"
        mark(ax, float(moved.since), f"{goes} from {by} {moved.since:g} on", color=GREY, style=":")
    return _course_words(GAP, curves, GAP)


def reward(ax: Axes, report: Report) -> str:
    """The mean reward, which is laid beside k3."""
    curves = _followed(report, ["reward_mean"])
    _draw_curves(ax, curves, {"reward_mean": "mean reward"}, ylabel="reward")
    return _course_words("The mean reward", curves, "reward_mean")
