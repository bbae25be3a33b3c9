"""From a shard to batches: one Reader per format.

A new format is one module with these three functions and its row here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rlcorr_cli.batch import Batch, Format, Shard
from rlcorr_cli.io import jsonl, parquet
from rlcorr_cli.io.batches import Portion, Rows, portions
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.sources import Source
from rlcorr_cli.io.streams import Stdin

if TYPE_CHECKING:
    from rlcorr_cli.io.dump import Dump

Piece = tuple[tuple[int, int] | None, int]
"""What Shard calls part and n_bytes."""


@dataclass(frozen=True)
class Reader:
    """One format: schema gives all columns of a file, parts cuts it, read yields one part's needed columns.

    The last arguments of read: how many tokens a batch will hold (what it yields may be more or less), and whether
    the rows are to come whole, with all columns or their own lines.
    """

    schema: Callable[[str, Stdin | None], pa.Schema]
    parts: Callable[[Source, Roles], Sequence[Piece]]
    read: Callable[[Shard, Roles, pa.Schema, Stdin | None, int, bool], Iterator[Rows]]


READERS: dict[Format, Reader] = {
    "parquet": Reader(parquet.schema, parquet.parts, parquet.read),
    "jsonl": Reader(jsonl.schema, jsonl.parts, jsonl.read),
}


@dataclass
class Allowance:
    """How many more rows a reading of the whole dump may take; its shards are then read in order, one at a time."""

    rows: int

    def cut(self, rows: Rows) -> Rows:
        """The first of these rows that may still be taken."""
        n = min(self.rows, rows.data.num_rows)
        self.rows -= n
        if n == rows.data.num_rows:
            return rows
        lines = rows.lines
        return Rows(rows.data.slice(0, n), rows.where, lines and (lambda: lines()[:n]))


def read(dump: "Dump", shard: Shard, batch_tokens: int, allowance: Allowance | None = None) -> Iterator[Batch]:
    """The shard's rows in order, checked, in batches of at most batch_tokens tokens, masked ones included.

    A longer row is a batch of its own.  A batch's arrays may be read-only views of what was read.
    Shards may be read in any order and at once from several threads.
    """
    return (portion.batch for portion in _portions(dump, shard, batch_tokens, False, allowance))


def read_whole(dump: "Dump", shard: Shard, batch_tokens: int, allowance: Allowance | None = None) -> Iterator[Portion]:
    """The same batches, each with its rows: all their columns, or their lines."""
    return _portions(dump, shard, batch_tokens, True, allowance)


def _portions(
    dump: "Dump", shard: Shard, batch_tokens: int, whole: bool, allowance: Allowance | None
) -> Iterator[Portion]:
    if allowance is not None and not allowance.rows:
        return
    reader, schema = READERS[shard.format], dump.schemas[shard.path]
    for rows in reader.read(shard, dump.roles, schema, dump.stdin, batch_tokens, whole):
        yield from portions(rows if allowance is None else allowance.cut(rows), dump.roles, batch_tokens)
        if allowance is not None and not allowance.rows:
            return
