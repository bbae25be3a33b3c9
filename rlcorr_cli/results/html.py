"""The small table that a notebook shows of a report: no script, no style sheet, every text escaped."""

from collections.abc import Mapping, Sequence
from html import escape

from rlcorr_cli.results.judge import Finding

KEY_METRICS = ("kl", "k3_kl", "chi2_token", "token_ess", "seq_ess", "ppl_ratio")


def table(title: str, metrics: Mapping[str, float | None], findings: Sequence[Finding]) -> str:
    """A caption, a row per metric, and a row per broken rule with its fix."""
    rows = [_row(name, "no data" if value is None else f"{value:.4g}") for name, value in metrics.items()]
    rows += [
        _row(f"{finding.status}: {finding.metric}", f"{finding.message} {finding.fix or ''}") for finding in findings
    ]
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(rows)}</tbody></table>"


def _row(name: str, text: str) -> str:
    return f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
