"""What the page and the Markdown report say, in the same order: plain rows, for either to lay out."""

from dataclasses import dataclass

from rlcorr_cli import __version__
from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.metrics.symbols import symbols_in
from rlcorr_cli.plans.files import plan_to_toml
from rlcorr_cli.results.report import Group, Report
from rlcorr_cli.results.rules import worst_first
from rlcorr_cli.show.cause import cause_sentence, next_step, told_cause
from rlcorr_cli.show.cells import Cell, Rows, number_of, statuses
from rlcorr_cli.show.correction import correction
from rlcorr_cli.show.forms.key_figures import KeyFigure, key_figures
from rlcorr_cli.show.forms.metric_sections import formulas, metric_sections
from rlcorr_cli.show.inputs import FILES, joined, last_change
from rlcorr_cli.show.numbers import NOTHING, amounts, more, number, plural
from rlcorr_cli.show.objective import objective_sentences, objective_tables
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.terminal.groups import ends_and_worst, ends_and_worst_of
from rlcorr_cli.show.terminal.presets import records
from rlcorr_cli.show.terminal.verdict import anomaly_sentence, fixes, impossible_sentence, suggestion, verdict

LONGEST = 120
MOST_GROUPS = 1000
"""As many rows of groups, the first and the last beside them: a page with many more is slow to open and to sort."""
ALL_GROUPS = "-o report.csv and -o report.json hold every group."
MOST_PROFILE_COLUMNS = 8
MARKS = "! marks a value that breaks its limit."
OWN_DEFINITIONS = "These numbers follow rlcorr's own definitions; those of the profile stand under Metrics."

IN_LIMITS = "Nothing has to be fixed: every number is within its limit."
NOTHING_TO_DO = {
    "equal": "Nothing: the two columns are equal.",
    "too few": "Measure more sequences. So far every number is within its limit.",
    "apart": "Look for the cause of the gap. Every number is still within its limit.",
}
"""Level of the verdict -> what to do where no rule is broken; IN_LIMITS at other levels."""
STATUS_OF_LEVEL = {"equal": "ok", "same": "ok", "close": "ok", "apart": "warn", "too few": "warn"}
"""Level of the verdict -> its status; "fail" at other levels, and where a rule fails."""


@dataclass(frozen=True)
class Cause:
    """What was found in the data and voids or endangers the numbers: the finding, and how to fix it where known."""

    status: str
    finding: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Content:
    """A report in words and rows, in the order in which either form shows them.

    summary: what was read, in one line.  remark: whose definitions the key figures follow, under a profile; empty
    without one.  todo: the status, the finding and the remedy of each; nothing_to_do stands in its place where it is
    empty.
    correction: the plan's tables; objective: its objective's, objective_words: how to read them.  groups_shown: which
    groups these are, where they are not all.  symbols: each letter of the metrics' formulas, and its meaning.
    """

    title: str
    summary: str
    causes: list[Cause]
    verdict: str
    level_status: str
    key_figures: list[KeyFigure]
    remark: str
    todo: list[tuple[str, str, str]]
    nothing_to_do: str
    correction: tuple[Rows, ...]
    objective: tuple[Rows, ...]
    objective_words: list[str]
    groups: Rows | None
    groups_shown: str
    metrics: dict[str, Rows]
    symbols: dict[str, str]
    facts: list[tuple[str, str]]
    plan: str
    notes: list[str]

    @property
    def has_marked_figures(self) -> bool:
        """Whether any key figure breaks its limit."""
        return any(figure.value.status for figure in self.key_figures)


def content(report: Report) -> Content:
    """What either form says about a report, in their order."""
    return Content(
        title=_title(report),
        summary=_summary(report),
        causes=_causes(report),
        verdict=verdict(report),
        level_status="fail" if report.verdict.failing else STATUS_OF_LEVEL.get(report.verdict.level, "fail"),
        key_figures=key_figures(report),
        remark="" if report.profile == "canonical" else OWN_DEFINITIONS,
        todo=_todo(report),
        nothing_to_do=NOTHING_TO_DO.get(report.verdict.level, IN_LIMITS),
        correction=correction(report),
        objective=objective_tables(report),
        objective_words=objective_sentences(report),
        groups=_groups(report),
        groups_shown=_groups_shown(report),
        metrics=metric_sections(report),
        symbols=symbols_in(formulas(report)),
        facts=_facts(report),
        plan=plan_to_toml(report.plan),
        notes=[clean(note) for note in report.notes],
    )


def anomaly_cause(anomaly: AnomalyFinding, name: str = "") -> Cause:
    """An anomaly of files.  name: what it is called here, if not by its own name."""
    sentence = f"{name or anomaly.name}: {clean(anomaly_sentence(anomaly))}"
    return Cause("fail" if anomaly.voids else "warn", sentence, anomaly.fix)


def _causes(report: Report) -> list[Cause]:
    """The likely cause of the gap, a number that cannot be, then the anomalies of files."""
    cause = told_cause(report.cause)
    named = [] if cause is None else [Cause("warn", f"{cause.cause}: {cause_sentence(cause)}", next_step(cause))]
    impossible = impossible_sentence(report.impossible)
    sentence = f"{impossible[:1].upper()}{impossible[1:]}"
    anomalies = [anomaly_cause(anomaly) for anomaly in report.anomalies]
    return [*named, *([Cause("fail", sentence, "")] if impossible else []), *anomalies]


def _todo(report: Report) -> list[tuple[str, str, str]]:
    """What is wrong beside the causes: its status, the finding, and its fix."""
    broken_rules = worst_first(report.health)
    broken = [
        (rule.status, f"{rule.metric} is {number(rule.value)}, should be {rule.rule}", fix)
        for rule, fix in zip(broken_rules, fixes(broken_rules), strict=True)
    ]
    words = [suggestion(bounds, report.profile) for bounds in report.advised_bounds]
    causes = " and ".join(report.causes)
    told = report.cause is not None and report.cause.cause in report.faults
    act = f"Fix {report.cause.cause}" if report.cause is not None and told else f"Explain {causes}"
    first = [("fail", f"{act} first", "Then measure again: broken limits may only follow from it.")]
    return [
        *(first if report.faults else []),
        *broken,
        *(("warn", takes, f"{keeps} {bounds}") for takes, keeps, bounds in words),
    ]


def short(value: object) -> str:
    """Text from a dump in one printable line of at most LONGEST characters."""
    text = clean(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _title(report: Report) -> str:
    first = report.inputs[0].path
    name = "stdin" if first == "-" else short(first.rsplit("/", 1)[-1])
    return name if len(report.inputs) == 1 else f"{name} {more(len(report.inputs) - 1, 'file')}"


def _summary(report: Report) -> str:
    """'320 sequences, 27,465 tokens, 5 groups; plan token_is'."""
    counts = report.whole.counts
    parts = amounts(counts, report.clusters)
    parts += [plural(len(report.groups), "group")] if report.groups else []
    parts += [f"{plural(counts['bad_rows'], 'bad row')} left out"] if counts["bad_rows"] else []
    profile = "" if report.profile == "canonical" else f", profile {report.profile}"
    return joined(f"{', '.join(parts)}; plan {short(report.plan.name)}{profile}", last_change(report.inputs))


def _facts(report: Report) -> list[tuple[str, str]]:
    counts, columns = report.whole.counts, report.inputs[0].columns
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name] or name == "tokens"]
    facts.append(("columns", ", ".join(_column(name, column) for name, column in columns.items())))
    facts.append(("plan", f"{clean(report.plan.name)}: {records(report.plan)}"))
    facts.append(("profile", report.profile))
    for source in report.inputs[:FILES]:
        size = f"{plural(source.rows, 'row')}, {plural(source.n_bytes, 'byte')}"
        facts.append(("input", joined(short(source.path), size, last_change([source]))))
    if len(report.inputs) > FILES:
        facts.append(("input", f"and {len(report.inputs) - FILES:,} more"))
    return [*facts, ("rlcorr", __version__)]


def _column(name: str, column: str) -> str:
    """'reward from score'; the name alone where the column has it."""
    return short(name) if name == column else f"{short(name)} from {short(column)}"


def _groups(report: Report) -> Rows | None:
    """A row per group; None without groups."""
    if not report.groups:
        return None
    keys, columns = tuple(map(short, report.groups[0].key)), _columns(report)
    groups = report.groups if len(report.groups) <= MOST_GROUPS else ends_and_worst(report.groups, MOST_GROUPS)
    return Rows(
        headings=(*keys, "sequences", "tokens", *columns),
        rows=tuple(_cells(group, columns, report) for group in groups),
        n_keys=len(keys),
    )


def _groups_shown(report: Report) -> str:
    n_groups = len(report.groups)
    return "" if n_groups <= MOST_GROUPS else f"{ends_and_worst_of(MOST_GROUPS, n_groups)}. {ALL_GROUPS}"


def _columns(report: Report) -> list[str]:
    """Metrics in the groups' table: the usual few, or a profile's own."""
    if report.profile != "canonical":
        return list(report.whole.metrics)[:MOST_PROFILE_COLUMNS]
    wanted = ("kl", "k3_kl", "chi2_token", "seq_ess", "ppl_ratio", "rollout_is_mean", "rollout_is_eff_sample_size")
    rest = ("rollout_rs_masked_fraction", "reward_mean")
    return [name for name in (*wanted, *rest) if report.whole.metrics.get(name) is not None]


def _cells(group: Group, columns: list[str], report: Report) -> tuple[Cell, ...]:
    keys = [_key(value) for value in group.key.values()]
    counts = [Cell(f"{group.counts[name]:,}", float(group.counts[name])) for name in ("sequences", "tokens")]
    status_of = statuses(report.findings(group))
    values = [Cell(number(group.metrics[name]), group.metrics[name], status_of.get(name, "")) for name in columns]
    return (*keys, *counts, *values)


def _key(value: object) -> Cell:
    return Cell(short(NOTHING if value is None else value), number_of(value))
