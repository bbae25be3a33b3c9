"""The panels over groups: metrics along one ordered column, with the bounds of their rules, and staleness.

As in `panels.py`, each draws on its axes, returns one sentence, and raises Missing where there is nothing to draw.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rlcorr_cli.present.figures import style, ticks
from rlcorr_cli.present.figures.style import BLUE, GREEN, GREY, ORANGE, RED, mark
from rlcorr_cli.present.numbers import number
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.trends import Course, Missing, course, lags
from rlcorr_cli.rules.defaults import rule_on
from rlcorr_cli.totals.histogram import Floats

DENSE = 60
"""From so many places on, a curve has no markers."""


def staleness(ax: Axes, report: Report) -> str:
    """k3 by how many versions the rollout policy lay behind."""
    lag, k3, n = lags(report.groups)
    places = np.unique(lag)
    averages = np.array([np.average(k3[lag == place], weights=n[lag == place]) for place in places])
    if len(lag) > len(places):
        ax.plot(lag, k3, "o", color=GREY, alpha=0.5, label="one step's rows of one lag")
    ax.plot(places, averages, "o-", color=BLUE, label="mean over tokens")
    ax.set(xlabel="steps that the rollout policy lies behind", ylabel="k3_kl (nats)")
    ax.set_ylim(bottom=min(0.0, float(k3.min())))
    _place_ticks(ax, lag)
    ticks.linear(ax.yaxis)
    if len(places) < 2:
        return f"All rows are {places[0]:g} steps behind: k3_kl is {number(float(averages[0]))}."
    first, last = float(averages[0]), float(averages[-1])
    return f"k3_kl goes from {number(first)} at {places[0]:g} steps behind to {number(last)} at {places[-1]:g}."


def _place_ticks(ax: Axes, places: Floats) -> None:
    (ticks.whole if (places == np.round(places)).all() else ticks.linear)(ax.xaxis)


def _followed(report: Report, metrics: Sequence[str] = ()) -> Course:
    """The metrics along the groups, of which there must be two."""
    curves = course(report.groups, metrics)
    if len(curves.places) < 2:
        raise Missing(f"All rows have {style.label(curves.name)} {curves.places[0]:g}: a curve needs two values of it.")
    return curves


def _along(ax: Axes, report: Report, metrics: Sequence[tuple[str, str]], ideal: float | None) -> dict[str, Floats]:
    """Draw a line for each metric along the groups; returns the values by metric, those without any data left out."""
    curves = _followed(report, [name for name, _ in metrics])
    known = {name: values for name, values in curves.values.items() if np.isfinite(values).any()}
    if not known:
        raise Missing(f"{' and '.join(name for name, _ in metrics)}: no data.")
    for (name, text), color, point in zip(metrics, (BLUE, ORANGE), "os", strict=False):
        if name in known:
            line = "-" if len(curves.places) > DENSE else f"{point}-"
            ax.plot(curves.places, known[name], line, color=color, label=text)
    ax.set_xlabel(style.label(curves.name))
    _place_ticks(ax, curves.places)
    if ideal is not None:
        mark(ax, ideal, f"ideal {ideal:g}", GREEN, vertical=False, style="-")
    return known


def _rule_lines(ax: Axes, report: Report, metric: str, about: str = "", line: str = "--") -> None:
    """The limits of the rule on a metric, where there is one."""
    rule = rule_on(metric, report.rules)
    for bound in () if rule is None else (rule.low, rule.high):
        if bound is not None:
            mark(ax, bound, f"{about}limit {bound:g}", RED, vertical=False, style=line)


def _ends(values: Floats) -> str:
    known = values[np.isfinite(values)]
    first, last = number(float(known[0])), number(float(known[-1]))
    return first if first == last else f"{first} to {last}"


def mean_weight(ax: Axes, report: Report) -> str:
    """Mean raw IS weight, ideally 1."""
    _followed(report)
    if report.plan.weighting is None:
        raise Missing("The plan weights nothing, so there is no mean weight.")
    known = _along(ax, report, [("rollout_is_mean", "before clamping")], 1.0)
    ax.set_ylabel("mean IS weight")
    ticks.linear(ax.yaxis)
    return f"mean weight {_ends(known['rollout_is_mean'])}"


def sample_size(ax: Axes, report: Report) -> str:
    """Effective sample size with the bounds of its rule; and what rejection keeps, which it does not count."""
    if report.plan.weighting is None:
        lines = [("seq_ess", "sequence ratios")]
    else:
        unit = "tokens" if report.plan.weighting.scope == "token" else "sequences"
        lines = [("rollout_is_eff_sample_size", f"weights of {unit}")]
    name, label = lines[0]
    known = _along(ax, report, [(name, f"{label}, before rejection" if report.plan.rules else label)], None)
    ax.set_ylim(0, 1.05)
    ax.set_ylabel("ESS, share of all")
    _rule_lines(ax, report, name)
    ticks.linear(ax.yaxis)
    note = " before rejection" if report.plan.rules else ""
    return f"ESS{note} {_ends(known[name])}"


def rejected(ax: Axes, report: Report) -> str:
    """Share of tokens lost to all rejections, and of sequences vetoed where there is a veto."""
    _followed(report)
    if not report.plan.rules:
        raise Missing("The plan rejects nothing.")
    lines = [("rollout_rs_masked_fraction", "tokens")]
    if any(rejection.is_veto for rejection in report.plan.rejections):
        lines.append(("rollout_is_veto_fraction", "vetoed"))
    known = _along(ax, report, lines, None)
    ax.set_ylim(-0.02, max(0.35, 1.1 * max(float(np.nanmax(values)) for values in known.values())))
    ax.set_ylabel("share rejected")
    _rule_lines(ax, report, "rollout_rs_masked_fraction")
    if len(lines) > 1:
        _rule_lines(ax, report, "rollout_is_veto_fraction", "veto ", ":")
    ticks.linear(ax.yaxis)
    words = {
        "rollout_rs_masked_fraction": "share of tokens rejected",
        "rollout_is_veto_fraction": "of sequences vetoed",
    }
    return "; ".join(f"{words[name]} {_ends(known[name])}" for name, _ in lines if name in known)


def divergence(ax: Axes, report: Report) -> str:
    """KL and K3."""
    known = _along(ax, report, [("kl", "k1"), ("k3_kl", "k3")], 0.0)
    ax.set_ylabel("KL(rollout || training), nats")
    ticks.linear(ax.yaxis)
    return f"k3_kl {_ends(known.get('k3_kl', next(iter(known.values()))))}"


def perplexity(ax: Axes, report: Report) -> str:
    """Ratio of perplexities."""
    known = _along(ax, report, [("ppl_ratio", "ppl_ratio")], 1.0)
    ax.set_ylabel("perplexity, training / rollout")
    ticks.linear(ax.yaxis)
    return f"perplexity ratio {_ends(known['ppl_ratio'])}"


def chi2(ax: Axes, report: Report) -> str:
    """chi squared of token and sequence ratios."""
    known = _along(ax, report, [("chi2_token", "tokens"), ("chi2_seq", "sequences")], None)
    ax.set_ylabel("χ²")
    _rule_lines(ax, report, "chi2_token", "tokens: ")
    ticks.symmetric(ax.yaxis, 1e-3)
    return f"χ² of tokens {_ends(known['chi2_token'])}" if "chi2_token" in known else "χ² overflows"


def k3_course(ax: Axes, report: Report) -> str:
    """k3 alone, for the overview."""
    known = _along(ax, report, [("k3_kl", "k3_kl")], None)
    by = ax.get_xlabel()
    ax.set_title(f"k3 KL by {by}" if len(by) < 20 else "k3 KL by group")
    ax.set_ylim(0, 1.1 * float(np.nanmax(known["k3_kl"])) or 1.0)
    ax.set_ylabel("k3_kl (nats)")
    ticks.linear(ax.yaxis)
    return f"Along {by}, k3_kl is {_ends(known['k3_kl'])}."
