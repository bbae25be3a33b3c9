"""What the page and the Markdown report say, in the same order: plain rows, for either to lay out."""

from dataclasses import dataclass

from rlcorr_cli import __version__
from rlcorr_cli.metrics.catalog import define
from rlcorr_cli.metrics.symbols import symbols_in
from rlcorr_cli.plans.files import plan_to_toml
from rlcorr_cli.present.figures import KINDS, Drawn, draw
from rlcorr_cli.present.numbers import NOTHING, interval, metric_value, more, number
from rlcorr_cli.present.stdout import clean
from rlcorr_cli.present.terminal.groups import ends_and_worst, ends_and_worst_of
from rlcorr_cli.present.terminal.presets import records
from rlcorr_cli.present.terminal.verdict import anomaly_sentence, fixes, impossible_sentence, suggestion, verdict
from rlcorr_cli.report.report import Group, Report
from rlcorr_cli.rules.judge import worst_first

LONGEST = 120
MOST_GROUPS = 1000
"""As many rows of groups, the first and the last beside them: a page with many more is slow to open and to sort."""
ALL_GROUPS = "-o report.csv and -o report.json hold every group."


@dataclass(frozen=True)
class Metric:
    """One line of the metrics table."""

    name: str
    value: str
    interval: str
    ideal: str
    rule: str
    status: str
    formula: str


@dataclass(frozen=True)
class Cell:
    """One cell of the groups' table.  sort_key: None for text.  status: of the worst rule broken here, or empty."""

    text: str
    sort_key: float | None = None
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class Content:
    """A report in words and rows.

    impossible: the sentence on a number that cannot be; empty where there is none.  symbols: each letter of the
    metrics' formulas, and its meaning.  groups: rows of cells under the headings.  groups_shown: which groups these
    are, where they are not all.
    """

    title: str
    impossible: str
    verdict: str
    facts: list[tuple[str, str]]
    todo: list[tuple[str, str, str]]
    metrics: list[Metric]
    symbols: dict[str, str]
    headings: list[str]
    groups: list[list[Cell]]
    groups_shown: str
    figures: list[tuple[str, Drawn]]
    plan: str
    notes: list[str]


def content(report: Report) -> Content:
    """What either form says about a report, in their order."""
    metrics = [_metric(name, value, report) for name, value in report.whole.metrics.items()]
    n_groups = len(report.groups)
    groups = report.groups if n_groups <= MOST_GROUPS else ends_and_worst(report.groups, MOST_GROUPS)
    return Content(
        title=_title(report),
        impossible=impossible_sentence(report.impossible),
        verdict=verdict(report),
        facts=_facts(report),
        todo=_todo(report),
        metrics=metrics,
        symbols=symbols_in(" ".join(metric.formula for metric in metrics)),
        headings=[*map(short, report.groups[0].key), "sequences", "tokens", *_columns(report)] if report.groups else [],
        groups=[_cells(group, _columns(report), report) for group in groups],
        groups_shown="" if len(groups) == n_groups else f"{ends_and_worst_of(MOST_GROUPS, n_groups)}. {ALL_GROUPS}",
        figures=[(KINDS[kind].about, draw(kind, report, captioned=False)) for kind in KINDS if kind != "overview"],
        plan=plan_to_toml(report.plan),
        notes=[clean(note) for note in report.notes],
    )


def _todo(report: Report) -> list[tuple[str, str, str]]:
    """What is wrong: its status, the finding, and its fix."""
    anomalies = [("warn", f"{found.name}: {clean(anomaly_sentence(found))}", found.fix) for found in report.anomalies]
    broken_rules = worst_first(report.health)
    broken = [
        (rule.status, f"{rule.metric} is {number(rule.value)}, should be {rule.rule}", fix)
        for rule, fix in zip(broken_rules, fixes(broken_rules), strict=True)
    ]
    words = [suggestion(bounds, report.profile) for bounds in report.advised_bounds]
    return [*anomalies, *broken, *(("warn", takes, f"{keeps} {bounds}") for takes, keeps, bounds in words)]


def short(value: object) -> str:
    """Text from a dump in one printable line of at most LONGEST characters."""
    text = clean(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _title(report: Report) -> str:
    first = report.inputs[0].path
    name = "stdin" if first == "-" else short(first.rsplit("/", 1)[-1])
    return name if len(report.inputs) == 1 else f"{name} {more(len(report.inputs) - 1, 'file')}"


def _facts(report: Report) -> list[tuple[str, str]]:
    counts, columns = report.whole.counts, report.inputs[0].columns
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name] or name == "tokens"]
    facts += [(short(name), short(column)) for name, column in columns.items()]
    facts.append(("plan", f"{clean(report.plan.name)}: {records(report.plan)}"))
    facts.append(("profile", report.profile))
    facts += [
        ("input", f"{short(file.path)}, {file.rows:,} rows, {file.n_bytes:,} bytes") for file in report.inputs[:20]
    ]
    if len(report.inputs) > 20:
        facts.append(("input", f"and {len(report.inputs) - 20} more"))
    return [*facts, ("rlcorr", __version__)]


def _metric(name: str, value: float | None, report: Report) -> Metric:
    finding = next((finding for finding in report.health if finding.metric == name), None)
    ends = report.intervals.get(name)
    definition = define(name)
    ideal = None if definition is None else definition.ideal
    return Metric(
        name,
        metric_value(value, report.profile),
        interval(*ends) if ends else "",
        "" if ideal is None else number(ideal),
        finding.rule if finding else "",
        finding.status if finding else "",
        "" if definition is None else definition.formula,
    )


def _columns(report: Report) -> list[str]:
    """Metrics in the groups' table: the usual few, or a profile's own."""
    if report.profile != "canonical":
        return list(report.whole.metrics)[:12]
    wanted = ("kl", "k3_kl", "chi2_token", "seq_ess", "ppl_ratio", "rollout_is_mean", "rollout_is_eff_sample_size")
    rest = ("rollout_rs_masked_fraction", "reward_mean")
    return [name for name in (*wanted, *rest) if report.whole.metrics.get(name) is not None]


def _cells(group: Group, columns: list[str], report: Report) -> list[Cell]:
    keys = [_key(value) for value in group.key.values()]
    counts = [Cell(f"{group.counts[name]:,}", float(group.counts[name])) for name in ("sequences", "tokens")]
    # The worst first, so that it is the one that stays.
    statuses = {finding.metric: finding.status for finding in reversed(worst_first(report.findings(group)))}
    values = [Cell(number(group.metrics[name]), group.metrics[name], statuses.get(name, "")) for name in columns]
    return [*keys, *counts, *values]


def _key(value: object) -> Cell:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(short(NOTHING if value is None else value), float(value) if is_number else None)  # type: ignore[arg-type]
