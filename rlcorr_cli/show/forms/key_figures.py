"""The few numbers that a report begins with, each with its interval, its limit and a word on what it is."""

from collections.abc import Iterator
from dataclasses import dataclass

from rlcorr_cli.metrics.catalog import ideal
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.cells import Cell, marks, value_cell
from rlcorr_cli.show.numbers import interval, number, share

OF_POLICIES = {
    "ratio_mean": "mean ratio",
    "kl": "KL, mean log-ratio",
    "k3_kl": "KL, low variance",
    "ppl_ratio": "perplexity ratio",
    "prob_abs_diff_mean": "mean gap of probabilities",
    "token_ess": "effective share of tokens",
    "seq_ess": "effective share of sequences",
}
OF_WEIGHTS = {
    "rollout_is_applied_mean": "mean of applied weights",
    "rollout_is_eff_sample_size": "effective share under weights",
}
"""Metric -> what it is, in a few words."""
LOST = "rollout_rs_masked_fraction"


@dataclass(frozen=True, kw_only=True)
class KeyFigure:
    """One number.  ends: its 95 % interval; limit: what the rule on it asks for; empty where there is none."""

    name: str
    about: str
    value: Cell
    ends: str
    ideal: str
    limit: str


def key_figures(report: Report) -> list[KeyFigure]:
    """The distance of the policies and the samples that are left; under a plan what it keeps, and its weights."""
    names = dict(OF_POLICIES)
    if report.plan.weighting is not None:
        names |= OF_WEIGHTS
    return [_figure(name, about, report) for name, about in names.items()] + list(_kept(report))


def _figure(name: str, about: str, report: Report) -> KeyFigure:
    ends, best = report.intervals.get(name), ideal(name)
    return KeyFigure(
        name=name,
        about=about,
        value=value_cell(name, report.whole.values, marks(report)),
        ends=interval(*ends) if ends else "",
        ideal="" if best is None else number(best),
        limit=limit(name, report),
    )


def _kept(report: Report) -> Iterator[KeyFigure]:
    lost = report.whole.values.get(LOST)
    if not report.plan.rules or lost is None:
        return
    asked = limit(LOST, report)
    value = Cell(share(1 - lost), 1 - lost, marks(report).get(LOST, ""))
    yield KeyFigure(
        name="kept tokens",
        about="share that rejections keep",
        value=value,
        ends="",
        ideal="100 %",
        limit=asked and f"lost {asked}",
    )


def limit(name: str, report: Report) -> str:
    """What the rule on a metric asks for: '<= 0.01'; empty where no rule is on it."""
    if report.impossible is not None and report.impossible.metric == name:
        return f"{number(ideal(name))}, up to chance"
    return next((finding.rule for finding in report.health if finding.metric == name), "")
