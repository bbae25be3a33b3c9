"""From a shard to batches: one Reader per format.

A new format is one module with these four functions and its row here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rlcorr_cli.batch import Batch, Format, Shard
from rlcorr_cli.io.batches import CheckedRows, Rows, SetAside, checked_batches
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.containers import jsonl, parquet
from rlcorr_cli.io.containers.streams import Stdin
from rlcorr_cli.io.duplicates import Seen
from rlcorr_cli.io.sources import Source

if TYPE_CHECKING:
    from rlcorr_cli.io.dump import Dump

Piece = tuple[tuple[int, int] | None, int]
"""What Shard calls part and n_bytes."""


@dataclass(frozen=True)
class Reader:
    """One format: schema gives all columns of a file, parts cuts it, read yields one part's needed columns, peek the
    first rows of a file's first part.

    The last arguments of read: how many tokens a batch will hold (what it yields may be more or less), and whether
    the rows are to come whole, with all columns or their own lines.
    """

    schema: Callable[[str, Stdin | None], pa.Schema]
    parts: Callable[[Source, Roles], Sequence[Piece]]
    read: Callable[[Shard, Roles, pa.Schema, Stdin | None, int, bool], Iterator[Rows]]
    peek: Callable[[Shard, Roles, pa.Schema, Stdin | None], Rows | None]


READERS: dict[Format, Reader] = {
    "parquet": Reader(parquet.schema, parquet.parts, parquet.read, parquet.peek),
    "jsonl": Reader(jsonl.schema, jsonl.parts, jsonl.read, jsonl.peek),
}


@dataclass
class ReadState:
    """What one reading of a whole dump knows from shard to shard.

    rows: how many more it may take, None for all.  seen: the ids it met, where it looks at them.
    """

    rows: int | None = None
    seen: Seen | None = None

    @classmethod
    def of(cls, dump: "Dump") -> "ReadState":
        """The state before the first row of a dump is read."""
        return cls(dump.request.limit, Seen() if dump.roles.ids else None)

    def cut(self, rows: Rows) -> Rows:
        """The first of these rows that may still be taken."""
        if self.rows is None:
            return rows
        n = min(self.rows, rows.data.num_rows)
        self.rows -= n
        return rows.part(0, n)


def in_order(dump: "Dump") -> bool:
    """Whether shards must be read one after another: which rows are taken depends on those before."""
    return dump.request.limit is not None or (bool(dump.roles.ids) and not dump.request.bad_rows.stops)


def read(dump: "Dump", shard: Shard, batch_tokens: int, state: ReadState | None = None) -> Iterator[Batch | SetAside]:
    """The batches of `read_checked`."""
    for rows in read_checked(dump, shard, batch_tokens, state):
        yield rows.batch if isinstance(rows, CheckedRows) else rows


def read_checked(
    dump: "Dump", shard: Shard, batch_tokens: int, state: ReadState | None = None, whole: bool = False
) -> Iterator[CheckedRows | SetAside]:
    """The shard's rows in order, checked, in batches of at most batch_tokens tokens, masked ones included.

    A longer row is a batch of its own.  A batch's arrays may be read-only views of what was read.  whole: with all
    columns, or the rows' lines.  Shards may be read at once from several threads, in any order unless `in_order`.
    """
    state = state or ReadState()
    if state.rows == 0:
        return
    reader, schema, source = READERS[shard.format], dump.schemas[shard.path], dump.source(shard.path)
    source.check()
    for rows in reader.read(shard, dump.roles, schema, dump.stdin, batch_tokens, whole or dump.request.bad_rows.keeps):
        yield from checked_batches(state.cut(rows), dump.roles, batch_tokens, dump.request.bad_rows, state.seen)
        if state.rows == 0:
            break
    source.check()
