"""What `inspect` says: how a dump is read, and what is wrong with it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rlcorr_cli.errors import as_flags
from rlcorr_cli.reading.bad_rows import FIXES
from rlcorr_cli.results.inspected import LENGTH_QUANTILES, Inspected
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
from rlcorr_cli.show.inputs import last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import amounts, more, plural, share
from rlcorr_cli.show.stdout import clean
from rlcorr_cli.show.words import anomaly_cause, anomaly_notes, cause_notes, cause_to_mend

FILES = 8
COLUMNS = 24
"""How many are shown; --json has all."""
CLEAN = "No bad rows, and nothing suspicious."
NOTHING = "No row can be used: none has a valid token."
PARTIAL = "No bad rows among those that are read; the notes say which responses are not, or not whole."


def of_schema(schema: Mapping[str, str]) -> Document:
    """The columns and types alone, of a dump whose columns are not those that rlcorr needs."""
    return Document(lines=_schema_blocks(schema, {}))


def document(inspected: Inspected) -> Document:
    """What is said of how a dump is read."""
    is_warned = _is_suspicious(inspected) or inspected.is_partial
    return Document(
        lines=_lines(inspected),
        command="inspect",
        title=name_of_inputs(inspected.inputs),
        summary=with_commas(*amounts(inspected.counts, None), last_change(inspected.inputs)),
        causes=[anomaly_cause(each) for each in inspected.anomalies],
        headline=_dump_headline(inspected),
        status="fail" if any(each.voids for each in inspected.anomalies) else "warn" if is_warned else "ok",
        sections=_sections(inspected),
        json=json_text(inspected.to_dict),
        records=_column_records(inspected),
    )


def _is_suspicious(inspected: Inspected) -> bool:
    return bool(inspected.problems or inspected.anomalies or cause_to_mend(inspected.cause))


def _dump_headline(inspected: Inspected) -> str:
    """What is wrong with the rows, the files and the gap, in a sentence each."""
    if not _is_suspicious(inspected):
        return NOTHING if not inspected.counts["tokens"] else PARTIAL if inspected.is_partial else CLEAN
    kinds, anomalies = ", ".join(inspected.problems), ", ".join(each.name for each in inspected.anomalies)
    sentences = [f"Rows with problems: {kinds}."] if kinds else []
    sentences += [f"Suspicious: {anomalies}."] if anomalies else []
    cause = cause_to_mend(inspected.cause)
    sentences += [f"Likely cause of the gap: {cause.cause}."] if cause is not None else []
    return " ".join(sentences)


def _sections(inspected: Inspected) -> Iterator[Section]:
    """Columns, amounts and problems, then what was read."""
    roles = inspected.read_as
    yield from sections_of(_schema_blocks(inspected.schema, roles), "Columns")
    yield from sections_of(_amount_blocks(inspected), "Rows and tokens")
    yield from sections_of(_problem_notes(inspected), "Problems")
    yield from what_was_read(inspected.counts, (), inspected.inputs, [clean(note) for note in inspected.notes])


def _column_records(inspected: Inspected) -> Iterator[Mapping[str, object]]:
    """A line for each column: its type, what it is read as, and the ends and mean of its values on valid tokens."""
    roles = inspected.read_as
    for column, type_of in inspected.schema.items():
        values = inspected.tally.values.get(column)
        summary = {} if values is None else values.summary.to_dict()
        numbers = {name: summary.get(name) for name in ("min", "mean", "max", "zero_fraction")}
        yield {"column": column, "type": type_of, "read_as": roles.get(column), **numbers}


def _lines(inspected: Inspected) -> Iterator[Block]:
    for file in inspected.inputs[:FILES]:
        name = "stdin" if file.path == "-" else clean(os.path.basename(file.path))
        size = f"  {file.n_bytes / 1e6:,.2f} MB" if file.n_bytes else ""
        yield Note(f"{name}  {file.format}{size}  {plural(file.rows, 'row')}", indent=0)
    if len(inspected.inputs) > FILES:
        yield Note(more(len(inspected.inputs) - FILES, "file"), indent=0)
    if not inspected.counts["tokens"]:
        yield Note(NOTHING)
    yield BLANK
    yield from _schema_blocks(inspected.schema, inspected.read_as)
    yield from _amount_blocks(inspected)
    yield from _problem_notes(inspected)
    yield from anomaly_notes(inspected.anomalies)
    yield from cause_notes(inspected.cause)
    if not _is_suspicious(inspected) and inspected.counts["tokens"]:
        yield Note(_dump_headline(inspected))
    if inspected.notes:
        yield BLANK
    yield from (Note(clean(note), "dim") for note in inspected.notes)


def _problem_notes(inspected: Inspected) -> Iterator[Note]:
    for name, problem in inspected.problems.items():
        text = f"{plural(problem.rows, 'row')}, first {clean(problem.first)}. {as_flags(FIXES[name])}"
        yield Note(text, lead=f"! {name}  ", lead_look="yellow")


def _schema_blocks(schema: Mapping[str, str], roles: Mapping[str, str]) -> Iterator[Block]:
    columns = (
        Column(heading="column", cell=lambda row: Cell(clean(row[0]))),
        Column(heading="type", cell=lambda row: Cell(clean(row[1])[:30]), words=True),
        Column(heading="read as", cell=lambda row: Cell(roles.get(row[0], "")), words=True),
    )
    table = tabulated(list(schema.items())[:COLUMNS], columns)
    yield replace(table, is_tight=len(schema) > COLUMNS)
    if len(schema) > COLUMNS:
        yield Note(f"and {len(schema) - COLUMNS:,} more columns")
        yield BLANK


def _amount_blocks(inspected: Inspected) -> Iterator[Block]:
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
        row = Cell(plural(tally.sequences, "sequence")), *(Cell(f"{tally.length(q):,}") for q in LENGTH_QUANTILES)
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
