"""The panels over groups: metrics along one ordered column, with the bounds of their rules, and staleness.

As in `panels.py`, each draws on its axes, returns one sentence, and raises Missing where there is nothing to draw.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, SymmetricalLogLocator

from rlcorr_cli.present.figures import style
from rlcorr_cli.present.figures.style import BLUE, GREEN, GREY, ORANGE, RED, mark
from rlcorr_cli.present.numbers import number
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.trends import Missing, course, lags
from rlcorr_cli.rules.defaults import rule_on
from rlcorr_cli.totals.histogram import Floats


def staleness(ax: Axes, report: Report) -> str:
    """k3 by how many versions the rollout policy lay behind."""
    lag, k3, n = lags(report.groups)
    ax.plot(lag, k3, "o", color=GREY, alpha=0.5, label="a step's rows of one version")
    places = np.unique(lag)
    averages = np.array([np.average(k3[lag == place], weights=n[lag == place]) for place in places])
    ax.plot(places, averages, "o-", color=BLUE, label="all of them")
    ax.set(xlabel="steps behind, step − policy_version", ylabel="k3_kl (nats)")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    if len(places) < 2:
        return f"All rows are {places[0]:g} steps behind: k3_kl is {number(float(averages[0]))}."
    first, last = float(averages[0]), float(averages[-1])
    return f"k3_kl goes from {number(first)} at {places[0]:g} steps behind to {number(last)} at {places[-1]:g}."


def _along(ax: Axes, report: Report, metrics: Sequence[tuple[str, str]], ideal: float | None) -> dict[str, Floats]:
    """Draw a line for each metric along the groups; returns the values by metric, those without any data left out."""
    curves = course(report.groups, [name for name, _ in metrics])
    known = {name: values for name, values in curves.values.items() if np.isfinite(values).any()}
    if not known:
        raise Missing(f"{' and '.join(name for name, _ in metrics)}: no data.")
    for (name, text), color, point in zip(metrics, (BLUE, ORANGE), "os", strict=False):
        if name in known:
            dense = len(curves.places) > 60
            ax.plot(curves.places, known[name], "-" if dense else f"{point}-", color=color, label=text)
    ax.set_xlabel(style.label(curves.name))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if ideal is not None:
        mark(ax, ideal, f"ideal {ideal:g}", GREEN, vertical=False, style="-")
    if len(metrics) > 1:
        ax.legend()
    return known


def _rule_lines(ax: Axes, report: Report, metric: str, about: str = "") -> None:
    """The bounds of the rule on a metric, where there is one."""
    rule = rule_on(metric, report.rules)
    worry = f"worry about {about}" if about else "worry"
    for bound, side in () if rule is None else ((rule.low, "below"), (rule.high, "above")):
        if bound is not None:
            mark(ax, bound, f"{worry} {side} {bound:g}", RED, vertical=False)


def _ends(values: Floats) -> str:
    known = values[np.isfinite(values)]
    first, last = number(float(known[0])), number(float(known[-1]))
    return first if len(known) == 1 else f"{first} to {last}"


def mean_weight(ax: Axes, report: Report) -> str:
    """Mean raw IS weight, ideally 1."""
    if report.plan.weighting is None:
        raise Missing("The plan weights nothing, so there is no mean weight.")
    known = _along(ax, report, [("rollout_is_mean", "mean")], 1.0)
    ax.set_ylabel("mean IS weight, raw")
    return f"mean weight {_ends(known['rollout_is_mean'])}"


def sample_size(ax: Axes, report: Report) -> str:
    """Effective sample size with the bounds of its rule."""
    name = "seq_ess" if report.plan.weighting is None else "rollout_is_eff_sample_size"
    known = _along(ax, report, [(name, "ESS")], None)
    ax.set_ylim(0, 1.02)
    ax.set_ylabel("effective sample size" + (", raw sequences" if name == "seq_ess" else ""))
    _rule_lines(ax, report, name)
    return f"ESS {_ends(known[name])}"


def rejected(ax: Axes, report: Report) -> str:
    """Share of tokens lost to all rejections, and of sequences vetoed where there is a veto."""
    if not report.plan.rules:
        raise Missing("The plan rejects nothing.")
    lines = [("rollout_rs_masked_fraction", "tokens lost")]
    if any(rejection.is_veto for rejection in report.plan.rejections):
        lines.append(("rollout_is_veto_fraction", "sequences vetoed"))
    known = _along(ax, report, lines, None)
    ax.set_ylim(-0.02, max(0.15, 1.1 * max(float(np.nanmax(values)) for values in known.values())))
    ax.set_ylabel("share rejected")
    if len(lines) > 1:
        _rule_lines(ax, report, "rollout_is_veto_fraction", "a veto")
    return "; ".join(f"{words} {_ends(known[name])}" for name, words in lines if name in known)


def divergence(ax: Axes, report: Report) -> str:
    """KL and K3."""
    known = _along(ax, report, [("kl", "KL (k1)"), ("k3_kl", "KL (k3)")], 0.0)
    ax.set_ylabel("KL(rollout || training), nats")
    return f"k3 {_ends(known.get('k3_kl', next(iter(known.values()))))}"


def perplexity(ax: Axes, report: Report) -> str:
    """Ratio of perplexities."""
    known = _along(ax, report, [("ppl_ratio", "ratio")], 1.0)
    ax.set_ylabel("perplexity, training / rollout")
    return f"perplexity ratio {_ends(known['ppl_ratio'])}"


def chi2(ax: Axes, report: Report) -> str:
    """chi squared of token and sequence ratios."""
    known = _along(ax, report, [("chi2_token", "token"), ("chi2_seq", "sequence")], None)
    ax.set_yscale("symlog", linthresh=1e-3)
    locator = SymmetricalLogLocator(base=10, linthresh=1e-3)
    locator.set_params(numticks=6)
    ax.yaxis.set_major_locator(locator)
    style.plain_numbers(ax.yaxis)
    ax.set_ylabel("χ²")
    _rule_lines(ax, report, "chi2_token")
    return f"χ² of tokens {_ends(known['chi2_token'])}" if "chi2_token" in known else "χ² overflows"


def k3_course(ax: Axes, report: Report) -> str:
    """k3 alone, for the overview."""
    known = _along(ax, report, [("k3_kl", "k3")], None)
    ax.set_ylim(0, 1.1 * float(np.nanmax(known["k3_kl"])) or 1.0)
    ax.set_ylabel("k3_kl (nats)")
    return f"k3_kl along the groups: {_ends(known['k3_kl'])}."
