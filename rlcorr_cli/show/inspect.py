"""What `inspect` says: how a dump is read, what is wrong with it, its worst rows, and one row token by token."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlcorr_cli.reading.bad_rows import FIXES
from rlcorr_cli.results.inspected import LENGTH_QUANTILES, Inspected, OneRow, Worst
from rlcorr_cli.show.document import (
    BLANK,
    Block,
    Cell,
    Column,
    Document,
    Note,
    Section,
    Table,
    json_text,
    number_cell,
    sections_of,
    tabulated,
    what_was_read,
)
from rlcorr_cli.show.inputs import joined, last_change, named
from rlcorr_cli.show.numbers import amounts, more, number, plural, share, signed
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import anomaly_cause, anomaly_notes, cause_notes, told_cause

FILES = 8
COLUMNS = 24
"""How many are shown; --json has all."""
LONGEST = 200
CLEAN = "No bad rows, and nothing suspicious."
POLICIES = ("rollout", "training", "current")
"""The columns of log-probs, in the order they come in."""


def document(result: Inspected | OneRow) -> Document:
    """What is said of a dump, or of a row of it."""
    return _of_dump(result) if isinstance(result, Inspected) else _of_row(result)


def of_schema(schema: Mapping[str, str]) -> Document:
    """The columns and types alone, of a dump whose columns are not those that rlcorr needs."""
    return Document(lines=_schema(schema, {}))


def _of_dump(inspected: Inspected) -> Document:
    is_suspicious = _is_suspicious(inspected)
    return Document(
        lines=_dump(inspected),
        command="inspect",
        title=named(inspected.inputs),
        summary=joined(*amounts(inspected.counts, None), last_change(inspected.inputs)),
        causes=[anomaly_cause(each) for each in inspected.anomalies],
        headline=_headline(inspected),
        status="fail" if any(each.voids for each in inspected.anomalies) else "warn" if is_suspicious else "ok",
        sections=_sections(inspected),
        json=json_text(inspected.to_dict),
        records=_columns(inspected),
    )


def _is_suspicious(inspected: Inspected) -> bool:
    return bool(inspected.problems or inspected.anomalies or told_cause(inspected.cause))


def _headline(inspected: Inspected) -> str:
    """What is wrong with the rows, the files and the gap, in a sentence each."""
    if not _is_suspicious(inspected):
        return CLEAN
    kinds, anomalies = ", ".join(inspected.problems), ", ".join(each.name for each in inspected.anomalies)
    sentences = [f"Rows with problems: {kinds}."] if kinds else []
    sentences += [f"Suspicious: {anomalies}."] if anomalies else []
    cause = told_cause(inspected.cause)
    sentences += [f"Likely cause of the gap: {cause.cause}."] if cause is not None else []
    return " ".join(sentences)


def _sections(inspected: Inspected) -> Iterator[Section]:
    """Columns, amounts, problems and the worst rows, then what was read."""
    roles = {column: name for name, column in inspected.columns.items()}
    yield from sections_of(_schema(inspected.schema, roles), "Columns")
    yield from sections_of(_amounts(inspected), "Rows and tokens")
    yield from sections_of(_problems(inspected), "Problems")
    yield from sections_of(_worst_rows(inspected), "Worst rows")
    yield from what_was_read(inspected.counts, (), inspected.inputs, [clean(note) for note in inspected.notes])


def _columns(inspected: Inspected) -> Iterator[Mapping[str, object]]:
    """A line for each column: its type, what it is read as, and the ends and mean of its values on valid tokens."""
    roles = {column: name for name, column in inspected.columns.items()}
    for column, type_of in inspected.schema.items():
        values = inspected.tally.values.get(column)
        summary = {} if values is None else values.summary.to_dict()
        numbers = {name: summary.get(name) for name in ("min", "mean", "max", "zero_fraction")}
        yield {"column": column, "type": type_of, "read_as": roles.get(column), **numbers}


def _dump(inspected: Inspected) -> Iterator[Block]:
    for file in inspected.inputs[:FILES]:
        name = "stdin" if file.path == "-" else clean(os.path.basename(file.path))
        size = f"  {file.n_bytes / 1e6:,.2f} MB" if file.n_bytes else ""
        yield Note(f"{name}  {file.format}{size}  {plural(file.rows, 'row')}", indent=0)
    if len(inspected.inputs) > FILES:
        yield Note(more(len(inspected.inputs) - FILES, "file"), indent=0)
    yield BLANK
    yield from _schema(inspected.schema, {column: name for name, column in inspected.columns.items()})
    yield from _amounts(inspected)
    yield from _problems(inspected)
    yield from anomaly_notes(inspected.anomalies)
    yield from cause_notes(inspected.cause)
    if not _is_suspicious(inspected):
        yield Note(CLEAN)
    if inspected.notes:
        yield BLANK
    yield from (Note(clean(note), "dim") for note in inspected.notes)
    yield from [BLANK] if inspected.worst_sequences or inspected.worst_tokens else []
    yield from _worst_rows(inspected)


def _problems(inspected: Inspected) -> Iterator[Note]:
    for name, problem in inspected.problems.items():
        text = f"{plural(problem.rows, 'row')}, first {clean(problem.first)}. {FIXES[name]}"
        yield Note(text, lead=f"! {name}  ", lead_look="yellow")


def _worst_rows(inspected: Inspected) -> Iterator[Block]:
    worst = (("worst sequences", inspected.worst_sequences), ("worst tokens", inspected.worst_tokens))
    yield from (_worst(f"{title} by {inspected.by}", rows) for title, rows in worst if rows)
    if inspected.worst_tokens:
        yield Note("Tokens are counted from 0, as rows are.", "dim")


def _schema(schema: Mapping[str, str], roles: Mapping[str, str]) -> Iterator[Block]:
    columns = (
        Column(heading="column", cell=lambda row: Cell(clean(row[0]))),
        Column(heading="", cell=lambda row: Cell(clean(row[1])[:30]), words=True),
        Column(heading="read as", cell=lambda row: Cell(roles.get(row[0], "")), words=True),
    )
    table = tabulated(list(schema.items())[:COLUMNS], columns)
    yield replace(table, is_tight=len(schema) > COLUMNS)
    if len(schema) > COLUMNS:
        yield Note(f"and {len(schema) - COLUMNS:,} more columns")
        yield BLANK


def _amounts(inspected: Inspected) -> Iterator[Block]:
    """How many rows and tokens there are, how long rows are, and what their values lie between."""
    counts, tally = inspected.counts, inspected.tally
    tokens = counts["tokens"] + counts["masked_tokens"]
    sequences, bad_rows = plural(counts["sequences"], "sequence"), plural(counts["bad_rows"], "bad row")
    masked = (
        f"{share(counts['masked_tokens'] / tokens)} of {tokens:,} masked" if counts["masked_tokens"] else "none masked"
    )
    words = f"{sequences}, {counts['empty_sequences']:,} empty, {bad_rows}"
    yield Note(f"{words}; {counts['tokens']:,} valid tokens, {masked}")
    if tally.sequences:
        names = ({0.0: "min", 1.0: "max"}.get(q, f"{100 * q:g}%") for q in LENGTH_QUANTILES)
        row = Cell(""), *(Cell(f"{tally.length(q):,}") for q in LENGTH_QUANTILES)
        yield Table(headings=("valid tokens a sequence", *names), rows=(row,), splits=True)
    else:
        yield BLANK
    if tally.values:
        columns = (
            Column(heading="on valid tokens", cell=lambda row: Cell(clean(row[0]))),
            *(
                Column(heading=name, cell=lambda row, name=name: number_cell(row[1][name]))
                for name in ("min", "mean", "max")
            ),
            Column(heading="exactly 0", cell=lambda row: number_cell(row[1]["zero_fraction"], share)),
        )
        yield tabulated([(name, values.summary.to_dict()) for name, values in tally.values.items()], columns)


def _worst(title: str, rows: tuple[Worst, ...]) -> Table:
    def tokens(worst: Worst) -> Cell:
        return Cell(f"{worst.n_tokens:,}" if worst.token is None else f"{worst.token:,} of {worst.n_tokens:,}")

    columns = (
        Column(heading=title, cell=lambda worst: number_cell(worst.value)),
        Column(heading="", cell=lambda worst: Cell(clean(worst.sample_id or "")), words=True),
        Column(heading="row", cell=lambda worst: Cell(clean(os.path.basename(worst.place))), words=True),
        Column(heading="tokens" if rows[0].token is None else "token", cell=tokens),
    )
    return tabulated(rows, columns)


def _of_row(row: OneRow) -> Document:
    bad = "" if row.problem is None else f" A bad row: {clean(row.problem)}."
    return Document(
        lines=(Note(clean(row.place), "bold", indent=0), *_row(row)),
        command="inspect",
        title=clean(row.place),
        headline=f"{sum(row.valid):,} of {plural(len(row.valid), 'token')} count.{bad}",
        status="ok" if row.problem is None else "fail",
        sections=sections_of(_row(row)),
        json=json_text(row.to_dict),
        records=_token_records(row),
    )


def _token_records(row: OneRow) -> Iterator[Mapping[str, object]]:
    """A line for each token; a masked one has no log-ratio and no weight."""
    valid = iter(range(len(row.log_ratios)))
    for i in range(len(row.valid)):
        place = next(valid, None) if row.valid[i] else None
        log_probs = {name: values[i] if i < len(values) else None for name, values in row.log_probs.items()}
        yield {
            "place": i,
            "token": None if row.tokens is None else row.tokens[i],
            "valid": row.valid[i],
            **log_probs,
            "log_ratio": None if place is None else row.log_ratios[place],
            "weight": None if place is None or row.weights is None else row.weights[place],
            "rejected_by": ", ".join(each.name for each in row.says if place is not None and not each.keep[place]),
        }


def _row(row: OneRow) -> Iterator[Block]:
    if row.facts:
        yield Note("  ".join(f"{clean(name)} {_text(value)}" for name, value in row.facts.items()))
    for name, text in row.texts.items():
        shown = clean(text if len(text) <= LONGEST else text[:LONGEST] + "…")
        yield Note(f"{name}: {shown}", "dim")
    if row.problem is not None:
        yield Note(f"! bad row, {clean(row.problem)}", "yellow")
    for rejection in row.says:
        value = "" if rejection.value is None else f", is {number(rejection.value)}"
        kept = f"{sum(rejection.keep):,} of {len(rejection.keep):,} tokens kept"
        yield Note(f"{clean(rejection.name)}: keeps {rejection.rule}{value}; {kept}")
    names = (f"{policy} = {clean(name)}" for policy, name in zip(POLICIES, row.log_probs, strict=False))
    yield Note(f"{', '.join(names)}; # counts from 0", "dim")
    yield BLANK
    yield _tokens(row)


def _tokens(row: OneRow) -> Table:
    """One line a token.  A masked one has no log-ratio."""
    lines, looks, place = list[tuple[Cell, ...]](), list[str](), -1
    for i in range(max([len(values) for values in row.log_probs.values()], default=0)):
        counts = i < len(row.valid) and row.valid[i]
        place += counts
        compared = counts and place < len(row.log_ratios)
        cells = [str(i), *([_text(row.tokens[i])] if row.tokens is not None else []), str(int(counts))]
        cells += [_text(values[i]) if i < len(values) else "" for values in row.log_probs.values()]
        cells.append(signed(row.log_ratios[place]) if compared else "")
        if row.weights is not None:
            cells.append(number(row.weights[place]) if compared else "")
        if row.says:
            rejected = [rejection.name for rejection in row.says if compared and not rejection.keep[place]]
            cells.append(clean(", ".join(rejected)))
        lines.append(tuple(map(Cell, cells)))
        looks.append("" if counts else "dim")
    token = () if row.tokens is None else ("token",)
    weights = () if row.weights is None else ("weight",)
    rejected = ("rejected by",) if row.says else ()
    headings = ("#", *token, "mask", *POLICIES[: len(row.log_probs)], "log_ratio", *weights, *rejected)
    spare = ("mask", "rejected by", "weight")
    return Table(headings=headings, rows=tuple(lines), words=("rejected by",), spare=spare, looks=tuple(looks))


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) else clean(value)
