"""A table in memory as a container: its record batches are the rows, and runs of them the shards."""

from collections.abc import Generator, Sequence

from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import Rows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import Index, NeededColumns, Piece, Reader
from rlcorr_cli.reading.find import Source
from rlcorr_cli.reading.portions import portions, written_out
from rlcorr_cli.reading.streams import Stdin
from rlcorr_cli.reading.tables import InMemory

ROWS = 1 << 13
"""Of one shard."""
STEP_ROWS = 1 << 9


def index(source: Source, needed: NeededColumns, stdin: Stdin | None = None) -> Index:
    """The schema, and the notes on what the table is."""
    name = _named(source.path)
    needed(name.table.schema)
    return Index(schema=name.table.schema, notes=name.notes, group_rows=(name.table.num_rows,))


def parts(source: Source, index: Index, roles: Roles) -> Sequence[Piece]:
    """Runs of rows."""
    (n,) = index.group_rows
    firsts = range(0, n, ROWS)
    return [((first, min(first + ROWS, n)), source.n_bytes * min(ROWS, n - first) // n) for first in firsts]


def read(
    shard: Shard, roles: Roles, stdin: Stdin | None = None, batch_tokens: int = 0, *, whole: bool = False
) -> Generator[Rows]:
    """The part's rows; whole: with all columns."""
    table = _named(shard.path).table
    first, stop = shard.part or (0, table.num_rows)
    row = first
    for batch in table.slice(first, stop - first).to_batches(max_chunksize=STEP_ROWS):
        batch = batch if whole else batch.select(roles.needed)
        for numbers, portion in portions(batch, written_out(table.schema), shard.path, row, whole=whole):
            yield Rows.of(portion, shard.path, numbers, roles.needed, whole=whole)
        row += batch.num_rows


def peek(shard: Shard, roles: Roles, stdin: Stdin | None = None) -> Rows | None:
    """The first rows."""
    return next(read(shard, roles), None)


def _named(path: str) -> InMemory:
    assert isinstance(path, InMemory), "a table in memory is named by itself"
    return path


READER = Reader(index, parts, read, peek)
