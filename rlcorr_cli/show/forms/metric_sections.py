"""Every metric of a report, in sections by what it is about, with interval, ideal, limit and formula."""

from rlcorr_cli.metrics.catalog import define
from rlcorr_cli.metrics.divergence import DIVERGENCE
from rlcorr_cli.metrics.framework_names import LOGGED
from rlcorr_cli.metrics.gaps import GAPS
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.cells import Cell, Rows, marks
from rlcorr_cli.show.forms.key_figures import limit
from rlcorr_cli.show.numbers import interval, metric_value, number

HEADINGS = ("metric", "value", "95 % interval", "ideal", "limit", "formula")
WORDS = ("limit", "formula")
SECTIONS = ("Divergence", "Sample size", "Weights", "Rejections", "Kept", "Other")

_DIVERGENCE = {row.name for row in (*DIVERGENCE, *GAPS)}
_SAMPLE_SIZE = ("seq_ess", "token_ess", "pareto_k_", "extreme_token_fraction", "retention_")
_REJECTIONS = ("rollout_rs_", "rollout_is_veto_", "rollout_is_catastrophic_")
_CANONICAL = {row.name: row.canonical for row in LOGGED}


def metric_sections(report: Report) -> dict[str, Rows]:
    """Section -> its metrics; only sections that hold any."""
    by_section: dict[str, list[tuple[Cell, ...]]] = {section: [] for section in SECTIONS}
    status_of = marks(report)
    for name, value in report.whole.metrics.items():
        by_section[_section(name)].append(_row(name, value, report, status_of.get(name, "")))
    return {
        section: Rows(headings=HEADINGS, rows=tuple(rows), words=WORDS) for section, rows in by_section.items() if rows
    }


def formulas(report: Report) -> str:
    """Every formula of the report's metrics, to look for symbols in."""
    definitions = map(define, report.whole.metrics)
    return " ".join(definition.formula for definition in definitions if definition is not None)


def _section(name: str) -> str:
    """The section of a metric under its own name or a framework's."""
    stem = _CANONICAL.get(name, name.rsplit("/", 1)[-1].removeprefix("mismatch_"))
    if stem in _DIVERGENCE:
        return "Divergence"
    if stem.startswith("kept_"):
        return "Kept"
    if stem.startswith(_SAMPLE_SIZE):
        return "Sample size"
    if stem.startswith(_REJECTIONS):
        return "Rejections"
    return "Weights" if stem.startswith("rollout_is_") else "Other"


def _row(name: str, value: float | None, report: Report, status: str) -> tuple[Cell, ...]:
    ends, definition = report.intervals.get(name), define(name)
    best = None if definition is None else definition.ideal
    return (
        Cell(name),
        Cell(metric_value(value, report.profile), value, status),
        Cell(interval(*ends), ends[0]) if ends else Cell(""),
        Cell("" if best is None else number(best), best),
        Cell(limit(name, report)),
        Cell("" if definition is None else definition.formula),
    )
