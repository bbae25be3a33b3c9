"""What `inspect` found, on a terminal: how the dump is read, what is wrong with it, and one row token by token."""

import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.reading.bad_rows import FIXES
from rlcorr_cli.results.inspected import LENGTH_QUANTILES, Inspected, OneRow, Worst
from rlcorr_cli.show.cause import told_cause
from rlcorr_cli.show.numbers import more, number, plural, share, signed
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.terminal.cause import print_cause
from rlcorr_cli.show.terminal.report import bare_table, print_anomalies

FILES = 8
COLUMNS = 24
"""How many are shown; --json has all."""
LONGEST = 200
POLICIES = ("rollout", "training", "current")
"""The columns of log-probs, in the order they come in."""


def print_inspected(inspected: Inspected) -> None:
    """Print everything that `inspect` says of a dump on stdout."""
    render(lambda console: _draw(console, inspected))


def print_row(row: OneRow) -> None:
    """Print one sequence token by token on stdout."""
    render(lambda console: _draw_row(console, row))


def print_schema(schema: Mapping[str, str]) -> None:
    """Print the columns and types alone, of a dump whose columns are not those that rlcorr needs."""
    render(lambda console: _schema(console, schema, {}))


def _draw(console: Console, inspected: Inspected) -> None:
    _files(console, inspected)
    _schema(console, inspected.schema, {column: name for name, column in inspected.columns.items()})
    _counts(console, inspected)
    _values(console, inspected)
    _problems(console, inspected)
    for note in inspected.notes:
        _line(console, Text(clean(note), style="dim"))
    for title, rows in (("worst sequences", inspected.worst_sequences), ("worst tokens", inspected.worst_tokens)):
        _worst(console, f"{title} by {inspected.by}", rows)


def _files(console: Console, inspected: Inspected) -> None:
    for file in inspected.inputs[:FILES]:
        name = "stdin" if file.path == "-" else clean(os.path.basename(file.path))
        size = f"  {file.n_bytes / 1e6:,.2f} MB" if file.n_bytes else ""
        console.print(Text(f"{name}  {file.format}{size}  {plural(file.rows, 'row')}"))
    if len(inspected.inputs) > FILES:
        console.print(Text(more(len(inspected.inputs) - FILES, "file")))
    console.print()


def _schema(console: Console, schema: Mapping[str, str], roles: Mapping[str, str]) -> None:
    table = bare_table("column", "", "read as")
    for name, type in list(schema.items())[:COLUMNS]:
        table.add_row(clean(name), clean(type)[:30], roles.get(name, ""))
    console.print(Padding(table, (0, 2)))
    if len(schema) > COLUMNS:
        _line(console, Text(f"and {len(schema) - COLUMNS:,} more columns"))
    console.print()


def _counts(console: Console, inspected: Inspected) -> None:
    counts, tally = inspected.counts, inspected.tally
    tokens = counts["tokens"] + counts["masked_tokens"]
    sequences, bad_rows = plural(counts["sequences"], "sequence"), plural(counts["bad_rows"], "bad row")
    words = f"{sequences}, {counts['empty_sequences']:,} empty, {bad_rows}"
    masked = (
        f"{share(counts['masked_tokens'] / tokens)} of {tokens:,} masked" if counts["masked_tokens"] else "none masked"
    )
    _line(console, Text(f"{words}; {counts['tokens']:,} valid tokens, {masked}"))
    if tally.sequences:
        table = bare_table("valid tokens a sequence", *(_quantile_name(q) for q in LENGTH_QUANTILES))
        table.add_row("", *(f"{tally.length(q):,}" for q in LENGTH_QUANTILES))
        console.print(Padding(table, (0, 2)))
    console.print()


def _quantile_name(q: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(q, f"{100 * q:g} %")


def _values(console: Console, inspected: Inspected) -> None:
    if not inspected.tally.values:
        return
    table = bare_table("on valid tokens", "min", "mean", "max", "exactly 0")
    for name, values in inspected.values.items():
        numbers = values.to_dict()
        table.add_row(
            clean(name),
            number(numbers["min"]),
            number(numbers["mean"]),
            number(numbers["max"]),
            share(numbers["zero_fraction"]),
        )
    console.print(Padding(table, (0, 2)))
    console.print()


def _problems(console: Console, inspected: Inspected) -> None:
    for name, problem in inspected.problems.items():
        line = Text(f"! {name}  ", style="yellow")
        line.append(f"{plural(problem.rows, 'row')}, first {clean(problem.first)}. {FIXES[name]}", style="default")
        _line(console, line)
    print_anomalies(console, inspected.anomalies)
    print_cause(console, inspected.cause)
    if not inspected.problems and not inspected.anomalies and told_cause(inspected.cause) is None:
        _line(console, Text("No bad rows, and nothing suspicious."))
    if inspected.notes:
        console.print()


def _worst(console: Console, title: str, rows: tuple[Worst, ...]) -> None:
    if not rows:
        return
    table = bare_table(title, "", "row", "tokens" if rows[0].token is None else "token")
    for worst in rows:
        tokens = f"{worst.n_tokens:,}" if worst.token is None else f"{worst.token:,} of {worst.n_tokens:,}"
        place = clean(os.path.basename(worst.place))
        table.add_row(number(worst.value), clean(worst.sample_id or ""), place, tokens)
    console.print(Padding(table, (1, 2, 0, 2)))


def _draw_row(console: Console, row: OneRow) -> None:
    console.print(Text(clean(row.place), style="bold"))
    if row.facts:
        _line(console, Text("  ".join(f"{clean(name)} {_cell(value)}" for name, value in row.facts.items())))
    for name, text in row.texts.items():
        shown = clean(text if len(text) <= LONGEST else text[:LONGEST] + "…")
        _line(console, Text(f"{name}: {shown}", style="dim"))
    if row.problem is not None:
        _line(console, Text(f"! bad row, {clean(row.problem)}", style="yellow"))
    for rejection in row.says:
        value = "" if rejection.value is None else f", is {number(rejection.value)}"
        kept = f"{sum(rejection.keep):,} of {len(rejection.keep):,} tokens kept"
        _line(console, Text(f"{clean(rejection.name)}: keeps {rejection.rule}{value}; {kept}"))
    names = (f"{policy} = {clean(name)}" for policy, name in zip(POLICIES, row.log_probs, strict=False))
    _line(console, Text(", ".join(names), style="dim"))
    console.print()
    console.print(Padding(_tokens(row), (0, 2)))


def _tokens(row: OneRow) -> Table:
    """One line a token.  A masked one has no log-ratio."""
    token = () if row.tokens is None else ("token",)
    weights = () if row.weights is None else ("weight",)
    rejected = ("rejected by",) if row.says else ()
    table = bare_table("", *token, "mask", *POLICIES[: len(row.log_probs)], "log_ratio", *weights, *rejected)
    place = -1
    for i in range(max([len(values) for values in row.log_probs.values()], default=0)):
        counts = i < len(row.valid) and row.valid[i]
        place += counts
        compared = counts and place < len(row.log_ratios)
        cells = [str(i), *([_cell(row.tokens[i])] if row.tokens is not None else []), str(int(counts))]
        cells += [_cell(values[i]) if i < len(values) else "" for values in row.log_probs.values()]
        cells.append(signed(row.log_ratios[place]) if compared else "")
        if row.weights is not None:
            cells.append(number(row.weights[place]) if compared else "")
        if row.says:
            cells.append(
                clean(", ".join(rejection.name for rejection in row.says if compared and not rejection.keep[place]))
            )
        table.add_row(*cells, style=None if counts else "dim")
    return table


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else clean(value)


def _line(console: Console, text: Text) -> None:
    console.print(Padding(text, (0, 2)))
