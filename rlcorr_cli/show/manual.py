"""The manual's page of metrics, from their tables; `python -m rlcorr_cli.show.manual` writes it."""

from collections.abc import Sequence

from rlcorr_cli.metrics.catalog import GROUPS
from rlcorr_cli.metrics.framework_names import LOGGED, VERL_DIFFERENCES, VERL_NAMES, VERL_PREFIXES
from rlcorr_cli.metrics.metric import MEASURED_ON, SYMBOLS, Metric
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.explain import facts
from rlcorr_cli.show.pages import MANUAL

METRICS_PAGE = MANUAL / "metrics.md"

_HEAD = f"""# Metrics

Every metric that a report prints: its formula, what it means, its value if the policies are equal (ideal), typical
sizes and when to worry. `rlcorr explain NAME` prints the same, also for a framework's name of it.

A metric without data is `null` in JSON and a dash in text. `kept_NAME` is the metric NAME over the tokens that a plan's
rejections keep. Typical sizes are of one model, sampled by engines of three precisions ({", ".join(MEASURED_ON)})
and scored again in fp32: the files of `sample_data`.
"""


def metrics_page() -> str:
    """The manual's page of metrics as Markdown."""
    symbols = _table(("symbol", "meaning"), [(f"`{symbol}`", text) for symbol, text in SYMBOLS.items()])
    rules = _table(
        ("metric", "a broken rule", "limits"), [(f"`{r.metric}`", f"{r.severity}s", r.limits) for r in RULES]
    )
    statistics = _table(("statistic", "formula"), [(f"`{row.name}`", row.formula) for row in STATISTICS.values()])
    tables = {"Symbols": symbols, "Default rules": rules, "What rejections bound": statistics}
    lists = [line for heading, rows in tables.items() for line in (f"## {heading}", "", *rows, "")]
    groups = [line for heading, rows in GROUPS.items() for line in (f"## {heading}", "", *_group(rows))]
    return "\n".join([_HEAD, *lists, *groups, *_frameworks()])


def _group(rows: Sequence[Metric]) -> list[str]:
    return [line for row in rows for line in (*_metric(row), "")]


def _metric(row: Metric) -> list[str]:
    """A heading, the formula, and what there is to say, a line each."""
    return [f"### {row.name}", "", f"`{row.formula}`", "", row.meaning, "", *(f"- {fact}" for fact in facts(row))]


def _frameworks() -> list[str]:
    """Names on other dashboards, and where their arithmetic departs from ours."""
    rows = [
        (row.framework, f"`{row.name}`", f"`{row.canonical}`" if row.canonical else "none", row.note) for row in LOGGED
    ]
    for name in sorted(VERL_NAMES):
        rows.append(("verl", f"`{VERL_PREFIXES[0]}{name}`", f"`{name}`", VERL_DIFFERENCES.get(name, "")))
    head = ("framework", "name there", "metric", "what differs")
    return ["## Names in frameworks' logs", "", *_table(head, sorted(rows, key=lambda row: row[0].lower())), ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


if __name__ == "__main__":
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
