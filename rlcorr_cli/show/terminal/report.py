"""The report on a terminal: a verdict, what is wrong and its fix, then the numbers.

What is fine is quiet.  Readable at 80 columns, without colour, and piped; metric names are those of the JSON report
and of people's dashboards.
"""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.metrics.catalog import ideal
from rlcorr_cli.metrics.samples import QUANTILES
from rlcorr_cli.results.report import QUANTILE_NOTE, Report
from rlcorr_cli.results.rules import worst_first
from rlcorr_cli.results.suggest import SuggestedBounds
from rlcorr_cli.show.cells import Rows
from rlcorr_cli.show.correction import rejections, weights
from rlcorr_cli.show.inputs import named
from rlcorr_cli.show.numbers import (
    amounts,
    duration,
    histogram_line,
    interval,
    metric_value,
    number,
    plural,
    signed,
)
from rlcorr_cli.show.objective import objective_sentences, objective_tables
from rlcorr_cli.show.stdout import clean, is_unicode, render
from rlcorr_cli.show.terminal.cause import print_cause
from rlcorr_cli.show.terminal.groups import print_groups
from rlcorr_cli.show.terminal.impossible import print_impossible
from rlcorr_cli.show.terminal.verdict import anomaly_sentence, fixes, suggestion, verdict
from rlcorr_cli.totals.histogram import HISTOGRAM_RELATIVE_ERROR

DIVERGENCE = ("kl", "k3_kl", "chi2_token", "chi2_seq", "ppl_ratio", "prob_abs_diff_mean", "prob_pearson")
SAMPLE = ("token_ess", "seq_ess", "extreme_token_fraction")
SHIFT = "advantage_shift"
LEFT = ("", "keeps", "read as", "row", "rejected by", "take", "flag", "plan", "objective", "verdict", "parameter")


def print_report(report: Report) -> None:
    """Print the whole report on stdout."""
    render(lambda console: _draw(console, report))


def _draw(console: Console, report: Report) -> None:
    print_headline(console, report)
    print_cause(console, report.cause)
    print_impossible(console, report.impossible)
    print_anomalies(console, report.anomalies)
    console.print(Padding(Text(verdict(report), style="bold"), (0, 2)))
    console.print()
    _findings(console, report)
    if report.profile == "canonical":
        _diagnostics(console, report)
        _distribution(console, report)
        print_weights(console, report)
        print_rejections(console, report)
    else:
        _framework_metrics(console, report)
    _objective(console, report)
    print_groups(console, report)
    print_notes(console, report)
    _closing(console, report)


def print_headline(console: Console, report: Report) -> None:
    """Print what was read, and under which plan."""
    counts, columns = report.whole.counts, report.inputs[0].columns
    names = list(columns.values())
    where = named(report.inputs)
    parts = [where, *amounts(counts, report.clusters)]
    if report.groups:
        parts.append(plural(len(report.groups), "group"))
    parts.append(duration(report.seconds))
    print_facts(console, parts)
    console.print(Text(f"{clean(names[1])} against {clean(names[0])}  plan {_plan(report)}", style="dim"))
    print_left_out(console, counts)
    console.print()


def print_facts(console: Console, facts: Sequence[str]) -> None:
    """Print facts in a row, which breaks between them alone: a number stays beside its unit."""
    lines: list[str] = []
    for fact in facts:
        if lines and cell_len(f"{lines[-1]}  {fact}") <= console.width:
            lines[-1] += f"  {fact}"
        else:
            lines.append(fact)
    console.print(Text("\n".join(lines)))


def print_left_out(console: Console, counts: Mapping[str, int]) -> None:
    """Print how many tokens and rows are not looked at, if any."""
    left_out = [
        f"{plural(counts[name], noun)} {label}"
        for name, noun, label in (
            ("masked_tokens", "token", "masked"),
            ("empty_sequences", "sequence", "empty"),
            ("bad_rows", "bad row", "left out"),
        )
        if counts[name]
    ]
    if left_out:
        console.print(Text(", ".join(left_out), style="dim"))


def _plan(report: Report) -> str:
    profile = "" if report.profile == "canonical" else f", profile {report.profile}"
    return f"{clean(report.plan.name)}{profile}"


def _findings(console: Console, report: Report) -> None:
    """Print the broken rules, worst first, and the rejections that take too much, each with its fix."""
    broken = worst_first(report.health)
    for finding, fix in zip(broken, fixes(broken), strict=True):
        line = Text(
            f"! {finding.metric} {number(finding.value)}", style="bold red" if finding.status == "fail" else "yellow"
        )
        line.append(f"  should be {finding.rule}. {fix}".rstrip(), style="default")
        console.print(Padding(line, (0, 2)))
    print_suggestions(console, report.advised_bounds, report.profile)
    if broken or report.advised_bounds:
        console.print()


def print_suggestions(console: Console, suggestions: Sequence[SuggestedBounds], profile: str) -> None:
    """Print each rejection that takes too much, and below it the bounds that would not, in a line to copy."""
    for bounds in suggestions:
        takes, keeps, other_bounds = suggestion(bounds, profile)
        line = Text(f"! {takes} ", style="yellow")
        line.append(keeps, style="default")
        console.print(Padding(line, (0, 2)))
        console.print(Padding(Text(other_bounds), (0, 4)))


def print_anomalies(console: Console, anomalies: Sequence[AnomalyFinding]) -> None:
    """Print each anomaly of whole files with its evidence and its fix."""
    for anomaly in anomalies:
        line = Text(f"? {anomaly.name}  ", style="yellow")
        line.append(f"{clean(anomaly_sentence(anomaly))} {anomaly.fix}", style="default")
        console.print(Padding(line, (0, 2)))
    if anomalies:
        console.print()


def _diagnostics(console: Console, report: Report) -> None:
    table = bare_table("divergence", "value", "ideal", "95 % interval")
    for name in (*DIVERGENCE, *SAMPLE):
        drawn = interval(*report.intervals[name]) if name in report.intervals else ""
        table.add_row(_metric_name(name, report), number(report.whole.values[name]), number(ideal(name)), drawn)
    if (shift := report.whole.values.get(SHIFT)) is not None:
        error = report.whole.values[f"{SHIFT}_se"] or 0.0
        drawn = interval(shift - 1.96 * error, shift + 1.96 * error)
        table.add_row(_metric_name(SHIFT, report), number(shift), number(ideal(SHIFT)), drawn)
    _print(console, table)


def _distribution(console: Console, report: Report) -> None:
    """Print quantiles of the log-ratio, and its histogram between the outermost of them."""
    values = report.whole.values
    columns = [(f"{100 * q:g} %", signed(values[f"log_ratio_{name}"])) for name, q in QUANTILES.items()]
    _print_quantiles(console, f"+-{100 * HISTOGRAM_RELATIVE_ERROR:.1f} %", columns)
    low, high = values["log_ratio_p01"], values["log_ratio_p999"]
    if low is not None and high is not None and high > low:
        reach = max(abs(low), abs(high))
        line = histogram_line(report.log_ratios, -reach, reach, width=41, unicode=is_unicode())
        console.print(Padding(Text(f"{number(-reach)} |{line}| +{number(reach)}  log counts"), (0, 2)))
    console.print()


def _print_quantiles(console: Console, precision: str, columns: Sequence[tuple[str, str]]) -> None:
    """Print headings over their numbers in one table, or in several where a line has no room for all of them."""
    table = bare_table("log_ratio at", *(heading for heading, _ in columns))
    table.add_row(precision, *(text for _, text in columns))
    if len(columns) > 1 and table.__rich_measure__(console, console.options).maximum + 2 > console.width:
        half = (len(columns) + 1) // 2
        _print_quantiles(console, precision, columns[:half])
        _print_quantiles(console, precision, columns[half:])
    else:
        _print(console, table, gap=False)


def print_weights(console: Console, report: Report) -> None:
    """Print the plan's weights, raw and as applied."""
    for rows in weights(report):
        print_rows(console, rows)


def print_rejections(console: Console, report: Report) -> None:
    """Print what each rejection takes, and the batch before and after."""
    for rows in rejections(report):
        print_rows(console, rows)


def _objective(console: Console, report: Report) -> None:
    """Print what the objective makes of the dump, and how to read it."""
    for rows in objective_tables(report):
        print_rows(console, rows)
    for sentence in objective_sentences(report):
        console.print(Padding(Text(sentence, style="dim"), (0, 2)))
    if report.objective is not None:
        console.print()


def print_rows(console: Console, rows: Rows) -> None:
    """Print a table, and which of its spare columns have no room.

    Beside a marked value, the others of its column leave the mark's room free.
    """
    rows, left_out = rows.within(console.width - 2)
    table = bare_table(*rows.headings)
    widened = [any(row[i].status for row in rows.rows) for i in range(len(rows.headings))]
    for row in rows.rows:
        is_total = rows.has_total and row is rows.rows[-1]
        cells = [
            Text(cell.marked, style="yellow") if cell.status else Text(f"{cell.text}{'  ' * wide}")
            for cell, wide in zip(row, widened, strict=True)
        ]
        table.add_row(*cells, style="bold" if is_total else None)
    _print(console, table, gap=not left_out)
    if left_out:
        console.print(Padding(Text(f"no room here for {', '.join(left_out)}", style="dim"), (0, 0, 1, 2)))


def _framework_metrics(console: Console, report: Report) -> None:
    """A profile's metrics under the framework's own names, with six digits, to be compared with a dashboard."""
    table = bare_table(f"as {report.profile} logs it", "value")
    for name, value in report.whole.metrics.items():
        table.add_row(name, metric_value(value, report.profile))
    _print(console, table)


def print_notes(console: Console, report: Report) -> None:
    """Print the report's notes: what was chosen for the user, and what the data call for."""
    for note in (note for note in report.notes if note != QUANTILE_NOTE):
        console.print(Padding(Text(clean(note), style="dim"), (0, 2)))


def _closing(console: Console, report: Report) -> None:
    broken = [finding.metric for finding in report.health if finding.broken]
    n_warnings = len(broken) + len(report.advised_bounds)
    warnings = {0: "No warnings.", 1: "1 warning."}.get(n_warnings, f"{n_warnings} warnings.")
    name = broken[0] if broken else "kl"
    more = f"`rlcorr explain {name}` defines a metric; --json has all {len(report.whole.metrics)}."
    console.print(Padding(Text(f"{warnings} {more}"), (0, 2)))


def _metric_name(name: str, report: Report) -> Text:
    """A metric's name, marked when a rule on it is broken."""
    broken = any(finding.metric == name and finding.broken for finding in report.health)
    return Text(f"{name} !", style="yellow") if broken else Text(name)


def bare_table(first: str, *others: str) -> Table:
    """A table without lines: words (the first column, and those of LEFT) on the left, numbers unbroken on the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for name in others:
        if name in LEFT:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table


def _print(console: Console, table: Table, gap: bool = True) -> None:
    console.print(Padding(table, (0, 0, int(gap), 2)))
