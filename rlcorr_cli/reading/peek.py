"""Single rows of a dump: the first ones of its files, and one by its id or number.

The first rows of each file are read before the rest of the dump, to see anomalies of whole files (`samples`).  One row
is found whatever is wrong with it (`find_rows`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Place
from rlcorr_cli.reading import checks
from rlcorr_cli.reading.arrow_values import call
from rlcorr_cli.reading.batches import BadRows, CheckedRows, Rows, checked_batches, lists_of
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import reader
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.find import blaming_changes
from rlcorr_cli.reading.row_places import LineCounter, all_resolved, resolved
from rlcorr_cli.reading.sample import Sample
from rlcorr_cli.reading.values import keys, texts

MAX_FILES = 64
"""Of a dump of more files, this many are looked at, from the first to the last."""


def samples(dump: Dump) -> Iterator[Sample]:
    """One per file, in the files' order; none of a file without rows."""
    firsts = list({shard.path: shard for shard in reversed(dump.shards)}.values())[::-1]
    step = dump.step
    roles = replace(dump.roles, batch=None, group_keys=(step,) if step else (), ids=(), drawn_by=(), cluster=None)
    for i in sorted({round(i) for i in np.linspace(0, len(firsts) - 1, MAX_FILES)}) if firsts else []:
        shard, index = firsts[i], dump.indexes[firsts[i].path]
        inner = roles.without(index.partition.names)
        schema = pa.schema([index.schema.field(name) for name in inner.needed])
        with blaming_changes(shard.files, shard.format):
            rows = reader(shard.format).peek(replace(shard, schema=schema), inner, dump.stdin)
        if rows is not None:
            yield _sample(index.partition.given_to(rows, roles.needed), roles, shard.path)


def _sample(rows: Rows, roles: Roles, path: str) -> Sample:
    """Rows whose lists differ in length, or are null, are left out."""
    lists = lists_of(rows, roles)
    bad = {fault.row for fault in checks.structural(lists, roles.rollout)}
    if bad:
        rows = rows.take(np.array([i for i in range(rows.data.num_rows) if i not in bad], np.int64))
        lists = lists_of(rows, roles)
    rollout, train = lists[roles.rollout], lists[roles.train]
    valid = None if roles.mask is None else lists[roles.mask].values == 1
    first = last = None  # step, where that is a number
    if roles.group_keys and rows.data.num_rows:
        column = rows.data.column(roles.group_keys[0])
        ends = (*keys(column[:1]), *keys(column[-1:]))
        first, last = (float(end) if isinstance(end, int | float) else None for end in ends)
    return Sample(
        path=path,
        offsets=rollout.offsets,
        rollout=rollout.values,
        train=train.values,
        valid=valid,
        columns=(roles.rollout, roles.train),
        step=(first, last),
    )


STEP_TOKENS = 1 << 18
NAMED = 3
"""Rows of one id that a message names."""
TEXTS = ("prompt", "response", "completion", "output", "input")
"""Columns of text that are shown above a row's tokens."""


@frozen
class NamedRow:
    """place: as errors name it.  values: every column of the row.  read: it as read, or why it is set aside."""

    place: str
    values: dict[str, Any]
    read: CheckedRows | BadRows


def find_rows(dump: Dump, names: Sequence[str]) -> list[NamedRow]:
    """The rows whose sample_ids are these, or else whose numbers are, in one reading; a UsageError if there is none of
    a name, or more than one.

    A number is what errors call a row: from 0 in Parquet, the line from 1 in JSON lines.
    """
    rows = list[NamedRow]()
    for name, matches in _matching(dump, names).items():
        asked = f"sample_id {name}" if dump.roles.ids else f"number {name}"
        if matches.row is None:
            raise UsageError(f"There is no row of {asked}.", "`rlcorr inspect DUMP --worst 5` names some rows.")
        if matches.n > 1:
            places = ", ".join(place.text for place in all_resolved(matches.places))
            raise UsageError(f"{matches.n} rows have {asked}: {places}.", "Name one file, or a row by its number.")
        rows.append(_named_row(dump, matches.row))
    return rows


@dataclass
class _Matches:
    """How many rows match, the places of the first few, and the first of them: the others are not kept."""

    n: int = 0
    places: list[Place] = field(default_factory=list[Place])
    row: Rows | None = None

    def add(self, rows: Rows, i: int) -> None:
        """Count a row of that name: the first is kept, and the places of the first few."""
        self.n += 1
        if self.row is None:
            self.row = rows.part(i, i + 1)
        if len(self.places) < NAMED:
            self.places.append(rows.places[i])


def _matching(dump: Dump, names: Sequence[str]) -> dict[str, _Matches]:
    """Rows by id; where no row has it, by number."""
    by_id, by_number = ({name: _Matches() for name in names} for _ in range(2))
    numbers, lines = {name: int(name) for name in names if name.isascii() and name.isdigit()}, LineCounter()
    for shard in dump.shards:
        for rows in dump.reader.rows(shard, STEP_TOKENS, whole=True):
            if dump.roles.ids:
                column = texts(rows.data.column(dump.roles.ids[0]))
                for name, matches in by_id.items():
                    is_named = call("equal", column, pa.scalar(name, pa.large_string()))
                    for i in call("indices_nonzero", is_named).to_pylist():
                        matches.add(rows, i)
            for name, number in numbers.items():
                row = rows.places.row_of(number, lines)
                if row is not None:
                    by_number[name].add(rows, row)
    return {name: matches if matches.n else by_number[name] for name, matches in by_id.items()}


def _named_row(dump: Dump, rows: Rows) -> NamedRow:
    # What is told of single tokens comes before the row.
    *_, read = checked_batches(
        rows, dump.roles, STEP_TOKENS, bad_rows=replace(dump.request.bad_rows, action="quarantine")
    )
    assert rows.original is not None
    return NamedRow(resolved(rows.places[0]).text, rows.original.values(0), read)
