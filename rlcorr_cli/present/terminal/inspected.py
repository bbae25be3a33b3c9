"""What `inspect` found, on a terminal: how the dump is read, what is wrong with it, and one row token by token."""

import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.present.numbers import number, share, signed
from rlcorr_cli.present.stdout import clean, render
from rlcorr_cli.present.terminal.report import bare_table, print_anomalies
from rlcorr_cli.quality.bad_rows import FIXES
from rlcorr_cli.report.inspected import LENGTH_QUANTILES, Inspected, OneRow, Worst

FILES = 8
COLUMNS = 24
"""So many are shown; --json has all."""
LONGEST = 200
POLICIES = ("rollout", "training", "current")
"""The columns of log-probs, in the order they come in."""


def print_inspected(found: Inspected) -> None:
    """The whole of it on stdout."""
    render(lambda console: _draw(console, found))


def print_row(row: OneRow) -> None:
    """One sequence on stdout."""
    render(lambda console: _draw_row(console, row))


def print_schema(schema: Mapping[str, str]) -> None:
    """Columns and types alone, where no more can be said."""
    render(lambda console: _schema(console, schema, {}))


def _draw(console: Console, found: Inspected) -> None:
    _files(console, found)
    _schema(console, found.schema, {column: name for name, column in found.columns.items()})
    _counts(console, found)
    _values(console, found)
    _problems(console, found)
    for note in found.notes:
        _line(console, Text(clean(note), style="dim"))
    for title, some in (("worst sequences", found.worst_sequences), ("worst tokens", found.worst_tokens)):
        _worst(console, f"{title} by {found.by}", some)


def _files(console: Console, found: Inspected) -> None:
    for one in found.inputs[:FILES]:
        name = "stdin" if one.path == "-" else clean(os.path.basename(one.path))
        size = f"  {one.n_bytes / 1e6:,.2f} MB" if one.n_bytes else ""
        console.print(Text(f"{name}  {one.format}{size}  {one.rows:,} rows"))
    if len(found.inputs) > FILES:
        console.print(Text(f"and {len(found.inputs) - FILES:,} more files"))
    console.print()


def _schema(console: Console, schema: Mapping[str, str], roles: Mapping[str, str]) -> None:
    drawn = bare_table("column", "", "read as")
    for name, type in list(schema.items())[:COLUMNS]:
        drawn.add_row(clean(name), clean(type)[:30], roles.get(name, ""))
    console.print(Padding(drawn, (0, 2)))
    if len(schema) > COLUMNS:
        _line(console, Text(f"and {len(schema) - COLUMNS:,} more columns"))
    console.print()


def _counts(console: Console, found: Inspected) -> None:
    counts, tally = found.counts, found.tally
    tokens = counts["tokens"] + counts["masked_tokens"]
    words = f"{counts['sequences']:,} sequences, {counts['empty_sequences']:,} empty, {counts['bad_rows']:,} bad rows"
    masked = (
        f"{share(counts['masked_tokens'] / tokens)} of {tokens:,} masked" if counts["masked_tokens"] else "none masked"
    )
    _line(console, Text(f"{words}; {counts['tokens']:,} valid tokens, {masked}"))
    if tally.sequences:
        drawn = bare_table("valid tokens a sequence", *(_named(q) for q in LENGTH_QUANTILES))
        drawn.add_row("", *(f"{tally.length(q):,}" for q in LENGTH_QUANTILES))
        console.print(Padding(drawn, (0, 2)))
    console.print()


def _named(q: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(q, f"{100 * q:g} %")


def _values(console: Console, found: Inspected) -> None:
    if not found.tally.values:
        return
    drawn = bare_table("on valid tokens", "min", "mean", "max", "exactly 0")
    for name, one in found.tally.values.items():
        given = one.to_dict()
        drawn.add_row(
            clean(name),
            number(given["min"]),
            number(given["mean"]),
            number(given["max"]),
            share(given["zero_fraction"]),
        )
    console.print(Padding(drawn, (0, 2)))
    console.print()


def _problems(console: Console, found: Inspected) -> None:
    for name, one in found.problems.items():
        line = Text(f"! {name}  ", style="yellow")
        line.append(f"{one['rows']:,} rows, first {clean(one['first'])}. {FIXES[name]}", style="default")
        _line(console, line)
    print_anomalies(console, found.anomalies)
    if not found.problems and not found.anomalies:
        _line(console, Text("No bad rows, and nothing suspicious."))
    if found.notes:
        console.print()


def _worst(console: Console, title: str, some: tuple[Worst, ...]) -> None:
    if not some:
        return
    drawn = bare_table(title, "", "row", "tokens" if some[0].token is None else "token")
    for one in some:
        which = f"{one.n_tokens:,}" if one.token is None else f"{one.token:,} of {one.n_tokens:,}"
        place = clean(os.path.basename(one.place))
        drawn.add_row(number(one.value), clean(one.sample_id or ""), place, which)
    console.print(Padding(drawn, (1, 2, 0, 2)))


def _draw_row(console: Console, row: OneRow) -> None:
    console.print(Text(clean(row.place), style="bold"))
    if row.facts:
        _line(console, Text("  ".join(f"{clean(name)} {_plain(value)}" for name, value in row.facts.items())))
    for name, text in row.texts.items():
        shown = clean(text if len(text) <= LONGEST else text[:LONGEST] + "…")
        _line(console, Text(f"{name}: {shown}", style="dim"))
    if row.problem is not None:
        _line(console, Text(f"! bad row, {clean(row.problem)}", style="yellow"))
    for one in row.says:
        value = "" if one.value is None else f", is {number(one.value)}"
        kept = f"{sum(one.keep):,} of {len(one.keep):,} tokens kept"
        _line(console, Text(f"{clean(one.name)}: keeps {one.rule}{value}; {kept}"))
    names = (f"{policy} = {clean(name)}" for policy, name in zip(POLICIES, row.log_probs, strict=False))
    _line(console, Text(", ".join(names), style="dim"))
    console.print()
    console.print(Padding(_tokens(row), (0, 2)))


def _tokens(row: OneRow) -> Table:
    """One line a token.  A masked one has no log-ratio."""
    token = () if row.tokens is None else ("token",)
    weights = () if row.weights is None else ("weight",)
    rejected = ("rejected by",) if row.says else ()
    drawn = bare_table("", *token, "mask", *POLICIES[: len(row.log_probs)], "log_ratio", *weights, *rejected)
    place = -1
    for i in range(max([len(values) for values in row.log_probs.values()], default=0)):
        counts = i < len(row.valid) and row.valid[i]
        place += counts
        compared = counts and place < len(row.log_ratios)
        cells = [str(i), *([_plain(row.tokens[i])] if row.tokens is not None else []), str(int(counts))]
        cells += [_plain(values[i]) if i < len(values) else "" for values in row.log_probs.values()]
        cells.append(signed(row.log_ratios[place]) if compared else "")
        if row.weights is not None:
            cells.append(number(row.weights[place]) if compared else "")
        if row.says:
            cells.append(clean(", ".join(one.name for one in row.says if compared and not one.keep[place])))
        drawn.add_row(*cells, style=None if counts else "dim")
    return drawn


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float) else clean(value)


def _line(console: Console, text: Text) -> None:
    console.print(Padding(text, (0, 2)))
