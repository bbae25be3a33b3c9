"""The first rows of a dump's files, and single rows by their id or number.

The first rows of each file are read before the rest of the dump, to see anomalies of whole files.  `looked_at` chooses
the files, `sample_of` reads the first rows of one as a Sample, and `Sample.pairs` has the log-probs in it that can be
compared.  `find_rows` reads the rows that `inspect --row` names, whatever is wrong with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Place
from rlcorr_cli.reading import batches, checks
from rlcorr_cli.reading.arrow_values import call
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import reader
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.find import blaming_changes
from rlcorr_cli.reading.values import group_values, texts

FAR = 1000.0
"""Numbers beyond this size are marks (-9999 is one), not log-probs, and would rule every sum of squares."""


@frozen
class Pairs:
    """V pairs (rollout, train) in their rows: valid tokens on which both are finite and no farther out than FAR.

    offsets: i64[B+1] from 0 to V, empty rows included.  rollout, train: f64[V].
    """

    offsets: NDArray[np.int64]
    rollout: NDArray[np.float64]
    train: NDArray[np.float64]

    @property
    def n(self) -> int:
        """The number of pairs, V."""
        return len(self.rollout)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each pair, i64[V]."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def runs(self, hit: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every unbroken run of hits, cut where rows end: where each starts, and one past its end.  hit: bool[V]."""
        border = self.borders
        around = np.concatenate([[False], hit, [False]])
        starts = hit & (~around[:-2] | border[:-1])
        ends = hit & (~around[2:] | border[1:])
        return np.flatnonzero(starts), np.flatnonzero(ends) + 1

    @property
    def borders(self) -> NDArray[np.bool_]:
        """Whether a row starts (or the last one ends) before pair i: bool[V+1]."""
        border = np.zeros(self.n + 1, bool)
        border[self.offsets] = True
        return border


@frozen(kw_only=True)
class Sample:
    """The first rows of one file, masked tokens included; nothing in it has been checked but the lengths.

    offsets: i64[B+1] from 0.  rollout, train: float [T], aligned; rows of unequal length were left out before.
    valid: the mask, bool[T], None without a mask column.  columns: the dump's names of (rollout, train).
    step: those of the first and the last row, None where a row has no number there.
    """

    path: str
    offsets: NDArray[np.int64]
    rollout: NDArray[Any]
    train: NDArray[Any]
    valid: NDArray[np.bool_] | None
    columns: tuple[str, str]
    step: tuple[float | None, float | None]

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs of valid tokens on which both columns hold a log-prob."""
        with np.errstate(all="ignore"):  # the cast of a huge or a signalling number
            rollout, train = np.asarray(self.rollout, np.float64), np.asarray(self.train, np.float64)
        use = np.maximum(np.abs(rollout), np.abs(train)) <= FAR  # false where either is NaN
        if self.valid is not None:
            use &= np.asarray(self.valid, bool)
        kept = np.concatenate([[0], np.cumsum(use)])
        return Pairs(kept[self.offsets], rollout[use], train[use])


MAX_FILES = 64
"""Of a dump of more files, this many are looked at, spread evenly from the first to the last."""


def looked_at(dump: Dump) -> list[Shard]:
    """The first part of each file, in the files' order; of MAX_FILES of them where there are more."""
    firsts = list({shard.path: shard for shard in reversed(dump.shards)}.values())[::-1]
    return [firsts[i] for i in sorted({round(i) for i in np.linspace(0, len(firsts) - 1, MAX_FILES)})] if firsts else []


def sample_of(dump: Dump, shard: Shard) -> Sample | None:
    """The first rows of a file, whose first part is `shard`; None where it has no rows."""
    step = dump.step
    roles = replace(dump.roles, batch=None, group_keys=(step,) if step else (), ids=(), drawn_by=(), cluster=None)
    index = dump.indexes[shard.path]
    inner = roles.without(index.partition.names)
    schema = pa.schema([index.schema.field(name) for name in inner.needed])
    with blaming_changes(shard.files, shard.format):
        rows = reader(shard.format).peek(replace(shard, schema=schema), inner)
    return None if rows is None else _sample_of_rows(index.partition.given_to(rows, roles.needed), roles, shard.path)


def _sample_of_rows(rows: batches.Rows, roles: Roles, path: str) -> Sample:
    """Rows whose lists differ in length, or are null, are left out."""
    lists = batches.lists_of(rows, roles)
    bad = {fault.row for fault in checks.structural(lists, roles.rollout)}
    if bad:
        rows = rows.take(np.array([i for i in range(rows.data.num_rows) if i not in bad], np.int64))
        lists = batches.lists_of(rows, roles)
    rollout, train = lists[roles.rollout], lists[roles.train]
    valid = None if roles.mask is None else lists[roles.mask].values == 1
    first = last = None  # step, where that is a number
    if roles.group_keys and rows.data.num_rows:
        column = rows.data.column(roles.group_keys[0])
        ends = (*group_values(column[:1]), *group_values(column[-1:]))
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
    """place: as errors name it.  values: every column of the row.  read: the checked row, or why it is bad."""

    place: str
    values: dict[str, Any]
    read: batches.CheckedRows | batches.BadRows


def find_rows(dump: Dump, names: Sequence[str]) -> list[NamedRow]:
    """The row of each name, in one reading of the dump: by its sample_id, or else by its number.

    A number is what errors call a row: from 0 in Parquet, the line from 1 in JSON lines.  A name of no row, or of
    several, is a UsageError.
    """
    rows: list[NamedRow] = []
    for name, matches in _matching(dump, names).items():
        asked = f"sample_id {name}" if dump.roles.ids else f"number {name}"
        if matches.row is None:
            raise UsageError(f"There is no row of {asked}.", "`⟦inspect(DUMP)⟧ ⟦worst 5⟧` names some rows.")
        if matches.n > 1:
            places = ", ".join(place.text for place in batches.all_resolved(matches.places))
            raise UsageError(f"{matches.n} rows have {asked}: {places}.", "Name one file, or a row by its number.")
        policy = replace(dump.request.bad_rows, action="quarantine")
        # Counts of tokens that were left out come first, as BadRows of their own; the row comes last.
        *_, read = batches.checked_batches(matches.row, dump.roles, STEP_TOKENS, bad_rows=policy)
        assert matches.row.original is not None
        rows.append(NamedRow(batches.resolved(matches.row.places[0]).text, matches.row.original.values(0), read))
    return rows


@dataclass
class _Matches:
    """How many rows match, the places of the first few, and the first of them: the others are not kept."""

    n: int = 0
    places: list[Place] = field(default_factory=list[Place])
    row: batches.Rows | None = None

    def add(self, rows: batches.Rows, i: int) -> None:
        """Count a row of that name: the first is kept, and the places of the first few."""
        self.n += 1
        if self.row is None:
            self.row = rows.part(i, i + 1)
        if len(self.places) < NAMED:
            self.places.append(rows.places[i])


def _matching(dump: Dump, names: Sequence[str]) -> dict[str, _Matches]:
    """Rows by id; where no row has it, by number."""
    by_id, by_number = ({name: _Matches() for name in names} for _ in range(2))
    numbers, lines = {name: int(name) for name in names if name.isascii() and name.isdigit()}, batches.LineCounter()
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
