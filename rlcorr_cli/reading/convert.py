"""Rows of any dump in canonical columns, as they are: nothing is checked, masked or left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.places import utf8
from rlcorr_cli.reading.arrow_values import as_arrow, as_texts, take
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import Rows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.names import ALIASES
from rlcorr_cli.reading.schema import PREFILL
from rlcorr_cli.reading.values import texts
from rlcorr_cli.reading.whole_rows import ArrowRows

PORTION_TOKENS = 1 << 18
SCORED, RESCORED = "old_log_probs", "rescored_log_probs"
"""What the other engine's log-probs of the same tokens become, in a dump of the rollout policy alone, and beside a
trained policy, where they are the third."""
PAIRED = ("rollout_log_probs", "token_ids", "prompt_log_probs", "prompt_token_ids")
"""What is looked at of the other engine's rows."""


def canonical_rows(dump: Dump) -> Iterator[tuple[Shard, ArrowRows]]:
    """Every row with the shard that it is in, a portion at a time, in the dump's order."""
    state, known = dump.reader.state(), Counter[str]()
    names = {column: canonical for canonical, column in {**dump.of_rows, **dump.marks, **dump.columns}.items()}
    for shard in dump.shards:
        if state.rows_left == 0:
            break
        for rows in dump.reader.rows(shard, PORTION_TOKENS, whole=True):
            table = _canonical(state.cut(rows), names, known[shard.path])
            known[shard.path] += table.num_rows
            if table.num_rows:
                yield shard, ArrowRows(table)


def _canonical(rows: Rows, names: dict[str, str], first: int) -> pa.Table:
    """A portion with the columns that a dump is read by under their canonical names.

    first: how many rows of the file came before.
    """
    if rows.unread:
        row, why = next(iter(rows.unread.items()))
        raise DataError(f"{rows.places[row].text} {why}.", "`rlcorr inspect` counts such rows.")
    assert rows.original is not None, "rows are asked for whole"
    table = rows.original.as_table(None)
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    if "source_file" not in table.column_names:
        table = table.append_column("source_file", as_texts([utf8(rows.places.path)] * len(table)))
    if "source_row" not in table.column_names:
        table = table.append_column("source_row", as_arrow(np.arange(first, first + len(table))))
    return table


@dataclass(kw_only=True)
class Partner:
    """The rows of the dump that is joined, all in memory, by key.

    on: the columns that tell which rows are of the same sequence.  column: SCORED or RESCORED.
    """

    on: Sequence[str]
    column: str
    path: str
    rows: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict[tuple[str, ...], dict[str, Any]])
    used: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])

    @classmethod
    def of(cls, dump: Dump, on: Sequence[str], column: str) -> "Partner":
        """All rows of a dump.  A key that comes twice is a DataError: which row would be meant?"""
        partner = cls(on=on, column=column, path=dump.sources[0].path)
        for shard, rows in canonical_rows(dump):
            path = shard.path
            wanted = [name for name in PAIRED if name in rows.table.column_names]
            for key, row in zip(_join_keys(rows.table, on, path), rows.table.select(wanted).to_pylist(), strict=True):
                if key in partner.rows:
                    raise DataError(
                        f"{path} has two rows of {_key_in_words(on, key)}.", "Join on more columns: ⟦on A,B⟧."
                    )
                partner.rows[key] = row
        return partner

    def with_partners(self, rows: ArrowRows, path: str) -> ArrowRows:
        """The rows that have a partner, with its log-probs as another policy's."""
        taken = {PREFILL, *ALIASES[PREFILL]}.intersection(rows.table.column_names)
        if taken and self.column == RESCORED:
            raise UsageError(f"The dump holds a trained policy and {min(taken)} already.", "Leave ⟦join⟧ out.")
        keys = _join_keys(rows.table, self.on, path)
        here = [i for i, key in enumerate(keys) if key in self.rows]
        table = take(rows.table, np.array(here, np.int64))
        rows_here = table.to_pylist()
        partners = [_scored(row, self.rows[keys[i]]) for i, row in zip(here, rows_here, strict=True)]
        for i, row, partner in zip(here, rows_here, partners, strict=True):
            self._check_same(row, partner, keys[i], path)
        self.used.update(keys[i] for i in here)
        log_probs = [partner["rollout_log_probs"] for partner in partners]
        type = table.schema.field("rollout_log_probs").type
        column = pa.array(log_probs, type if pa.types.is_list(type) else pa.list_(pa.float64()))
        at = table.column_names.index("rollout_log_probs") + 1
        return ArrowRows(table.add_column(at, self.column, column))

    def _check_same(self, row: dict[str, Any], partner: dict[str, Any], key: tuple[str, ...], path: str) -> None:
        """A DataError where the two are not of the same tokens."""
        mine, theirs = (len(side["rollout_log_probs"] or ()) for side in (row, partner))
        if mine != theirs:
            message = f"{_key_in_words(self.on, key)} has {mine:,} tokens in {path} and {theirs:,} in {self.path}"
            raise DataError(f"{message}: these are not the same tokens.", "Check what the two were joined on.")
        if row.get("token_ids") is not None and partner.get("token_ids") not in (None, row["token_ids"]):
            message = f"{_key_in_words(self.on, key)} holds other tokens in {path} than in {self.path}."
            raise DataError(message, "Check what the two were joined on.")


def _scored(row: dict[str, Any], partner: dict[str, Any]) -> dict[str, Any]:
    """The partner; where its engine was given the row's tokens as the end of a prompt, with what it scored of them."""
    tokens, prompt, log_probs = row.get("token_ids"), partner.get("prompt_token_ids"), partner.get("prompt_log_probs")
    if not tokens or not prompt or not log_probs or partner.get("token_ids") == tokens:
        return partner
    return {"rollout_log_probs": log_probs[-len(tokens) :], "token_ids": prompt[-len(tokens) :]}


def _join_keys(table: pa.Table, on: Sequence[str], path: str) -> list[tuple[str, ...]]:
    lacking = next((name for name in on if name not in table.column_names), None)
    if lacking is not None:
        raise UsageError(f"{path} has no column {lacking} to join on.", f"It has {', '.join(table.column_names)}.")
    columns = [texts(table.column(name).combine_chunks()).to_pylist() for name in on]
    return [tuple(str(value) for value in row) for row in zip(*columns, strict=True)]


def _key_in_words(on: Sequence[str], key: Sequence[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(on, key, strict=True))
