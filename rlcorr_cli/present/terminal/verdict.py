"""Conclusions in words: a report's verdict and onset, broken rules, suspicions about files.

What is concluded is `report/verdict.py`'s; every form (text, page, Markdown) takes its sentences from here.
"""

import math
import os

from rlcorr_cli.present.numbers import number
from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.verdict import FEWEST_SEQUENCES, Onset, Verdict
from rlcorr_cli.rules.judge import Finding

LEVELS = {
    "equal": "Equal on every token: the two columns hold the same numbers, so there is nothing to correct.",
    "same": "The same policy, to rounding.",
    "far": "Far apart: this is more than weights can repair; see what is wrong first.",
}
USABLE: dict[tuple[str, ...], str] = {
    ("token", "sequence"): "token-level and sequence-level weights are both usable.",
    ("token",): "token-level weights stay usable, sequence-level ones do not.",
    (): "the weights of this plan are not usable.",
}
LITTLE_KEPT = 0.5
"""The share of tokens below which it is worth a sentence that rejections keep so few."""


def verdict(report: Report) -> str:
    """One to four sentences in plain words."""
    conclusion = report.verdict
    sentences = [_level(conclusion), _failing(conclusion), _onset(report.onset), _kept(conclusion.kept_fraction)]
    if conclusion.level == "equal":
        sentences = sentences[:2]
    return " ".join(filter(None, sentences))


def _level(conclusion: Verdict) -> str:
    """How far apart the policies are, and which weights still leave a usable sample."""
    if conclusion.level == "too few":
        n = conclusion.n_sequences
        sequences = "1 sequence is" if n == 1 else f"{n} sequences are"
        return f"Too few to tell: {sequences} measured, and a verdict takes {FEWEST_SEQUENCES}."
    if conclusion.level in ("close", "apart"):
        return f"{conclusion.level.capitalize()}: {USABLE[conclusion.usable]}"
    return LEVELS[conclusion.level]


def _failing(conclusion: Verdict) -> str:
    """The failing rules by name; the lines below the verdict say what to do about each."""
    names = ", ".join(conclusion.failing)
    return f"Failing: {names}." if names else ""


def _onset(onset: Onset | None) -> str:
    if onset is None:
        return ""
    factor = math.floor(10 * onset.factor) / 10  # rounded down, so that "at least" stays true
    place, reference = (f"{onset.column} {value:g}" for value in (onset.place, onset.reference))
    return f"From {place} on k3_kl stays at least {factor:.1f}x its value at {reference}."


def _kept(fraction: float | None) -> str:
    if fraction is None or fraction >= LITTLE_KEPT:
        return ""
    return f"The rejections keep {100 * fraction:.1f} % of the tokens." if fraction else "The rejections keep nothing."


def broken_rule(finding: Finding) -> tuple[str, str]:
    """A broken rule: what the metric is, and what it should be with the fix."""
    return f"{finding.metric} {number(finding.value)}", f"should be {finding.rule}. {finding.fix or ''}".rstrip()


def suspected(suspicion: Suspected) -> str:
    """The file, how many more there are like it, and the evidence."""
    more = f" and {suspicion.n_files - 1:,} more files" if suspicion.n_files > 1 else ""
    return f"{os.path.basename(suspicion.path)}{more}: {suspicion.evidence.rstrip('.')}."
