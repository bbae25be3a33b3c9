"""Arrow's own files and streams: what Hugging Face datasets lie in, and Feather files; and tables in memory.

A record batch is in memory as a whole, of a file the needed columns alone.  A file tells how many there are, so that
runs of them are shards, as runs of a table's rows are; a stream is read from end to end.
"""

import struct
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import lru_cache

import pyarrow as pa

from rlcorr_cli.files import filesystem
from rlcorr_cli.files.arrow_files import FILE, arrow_file, batches
from rlcorr_cli.reading.arrow_values import portions, written_out
from rlcorr_cli.reading.batch import InMemory, Shard, Stamp
from rlcorr_cli.reading.batches import Rows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import Index, NeededColumns, Piece, Reader, runs
from rlcorr_cli.reading.find import Source

CONTINUED = b"\xff" * 4
"""What a header begins with, since release 0.15 of Arrow; its length follows."""
BLOCK_BYTES = 24
"""Of a footer's entry of a record batch: where it begins (8 bytes), how long its header is (4), and more."""
MAX_ROWS = 1 << 40
"""Of a record batch that is believed: far more than any that could be read, and few enough to be added."""
KEPT = 64
"""Files of which is kept which row is the first of each record batch."""
BATCHES = 16
"""Record batches of one shard; a Hugging Face dataset has 1,000 rows in each."""
WHOLE_ROWS = 1 << 9
PEEKED_ROWS = 1 << 9


def index(source: Source, needed: NeededColumns) -> Index:
    """The schema, and of a file how many rows each record batch has."""
    with arrow_file(source.path) as reader:
        schema = reader.schema
        _ = schema.names  # decoded only when they are asked for, and a name need not be UTF-8
        needed(schema)
        if not isinstance(reader, pa.ipc.RecordBatchFileReader):
            return Index(schema=schema, in_one=True)
        return Index(schema=schema, group_rows=(0,) * reader.num_record_batches)


def parts(source: Source, index: Index, roles: Roles) -> Sequence[Piece]:
    """Runs of record batches; a stream is one part."""
    return [(None, source.n_bytes)] if index.in_one else runs(len(index.group_rows), BATCHES, source.n_bytes)


def read(shard: Shard, roles: Roles, batch_tokens: int = 0, *, whole: bool = False) -> Generator[Rows]:
    """The part's rows, at most a record batch at a time; whole: with all columns."""
    with arrow_file(shard.path, None if whole else roles.needed) as reader:
        row = _first_rows(shard.path, shard.stamp)[shard.part[0]] if shard.part else 0
        schema = written_out(reader.schema)
        for batch in batches(reader, shard.part):
            batch = batch if whole else batch.select(roles.needed)
            step = min(batch.num_rows, WHOLE_ROWS) if whole else batch.num_rows
            for first in range(0, batch.num_rows, max(step, 1)):
                part = batch.slice(first, step)
                for numbers, portion in portions(part, schema, shard.path, row + first, whole=whole):
                    yield Rows.of(portion, shard.path, numbers, roles.needed, whole=whole)
            row += batch.num_rows


def peek(shard: Shard, roles: Roles) -> Rows | None:
    """The first rows."""
    with closing(read(shard, roles)) as portions:
        rows = next(portions, None)
    return rows and rows.part(0, min(PEEKED_ROWS, rows.data.num_rows))


@lru_cache(KEPT)
def _first_rows(path: str, stamp: Stamp | None) -> Sequence[int]:
    """The number of the first row of each record batch of a file in this state, by the headers of those before it.

    Arrow tells how many rows a batch has once it has read it whole.  The footer, which says where a batch and its
    header begin, and the header are flatbuffers.  Source: arrow.apache.org/docs/format/Columnar.html, with File.fbs and
    Message.fbs.
    """
    with filesystem(path).arrow_file(path) as file:
        size, end = file.size(), file.size() - len(FILE) - 4
        length = int.from_bytes(file.read_at(4, end), "little")
        footer = file.read_at(length, end - length)
        blocks = _linked(footer, _field(footer, _linked(footer, 0), 3))
        rows = 0
        firsts: list[int] = []
        for i in range(struct.unpack_from("<i", footer, blocks)[0]):
            firsts.append(rows)
            start, n_bytes = struct.unpack_from("<qi", footer, blocks + 4 + BLOCK_BYTES * i)
            if not 0 < n_bytes <= size - start <= size:
                raise pa.ArrowInvalid("a record batch lies outside of it")
            rows += _length(file.read_at(n_bytes, start))
        return firsts


def _length(message: bytes) -> int:
    """How many rows the header of a record batch says that it has."""
    message = message[8 if message[:4] == CONTINUED else 4 :]
    place = _field(message, _linked(message, _field(message, _linked(message, 0), 2)), 0)
    rows = struct.unpack_from("<q", message, place)[0] if place else 0
    if not 0 <= rows <= MAX_ROWS:
        raise pa.ArrowInvalid(f"a record batch of {rows:,} rows")
    return rows


def _linked(data: bytes, place: int) -> int:
    """Where that begins which a flatbuffer points to from a place."""
    return place + struct.unpack_from("<I", data, place)[0]


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0 of one that is left out, being zero."""
    directory = table - struct.unpack_from("<i", data, table)[0]
    (n_bytes,) = struct.unpack_from("<H", data, directory)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, directory + at)[0] if at < n_bytes else 0
    return table + offset if offset else 0


READER = Reader(index, parts, read, peek)


ROWS = 1 << 13
"""Of one shard."""
STEP_ROWS = 1 << 9


def index_of_table(source: Source, needed: NeededColumns) -> Index:
    """The schema, and the notes on what the table is."""
    name = _named(source.path)
    needed(name.table.schema)
    return Index(schema=name.table.schema, notes=name.notes, group_rows=(name.table.num_rows,))


def runs_of_rows(source: Source, index: Index, roles: Roles) -> Sequence[Piece]:
    """Runs of rows."""
    return runs(index.group_rows[0], ROWS, source.n_bytes)


def read_table(shard: Shard, roles: Roles, batch_tokens: int = 0, *, whole: bool = False) -> Generator[Rows]:
    """The part's rows; whole: with all columns."""
    table = _named(shard.path).table
    first, stop = shard.part or (0, table.num_rows)
    row = first
    for batch in table.slice(first, stop - first).to_batches(max_chunksize=STEP_ROWS):
        batch = batch if whole else batch.select(roles.needed)
        for numbers, portion in portions(batch, written_out(table.schema), shard.path, row, whole=whole):
            yield Rows.of(portion, shard.path, numbers, roles.needed, whole=whole)
        row += batch.num_rows


def peek_table(shard: Shard, roles: Roles) -> Rows | None:
    """The first rows."""
    return next(read_table(shard, roles), None)


def _named(path: str) -> InMemory:
    assert isinstance(path, InMemory), "a table in memory is named by itself"
    return path


IN_MEMORY = Reader(index_of_table, runs_of_rows, read_table, peek_table)
