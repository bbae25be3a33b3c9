"""Arrow's own files and streams: what Hugging Face datasets lie in, and Feather files.

A file is mapped and its record batches are read where they lie.  A file tells how many there are, so that runs of them
are shards; a stream is read from end to end.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa

from rlcorr_cli.batch import Shard
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.arrow_rows import ArrowRows
from rlcorr_cli.io.batches import Rows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.containers.index import Index, NeededColumns
from rlcorr_cli.io.containers.reader import Piece, Reader
from rlcorr_cli.io.containers.streams import Stdin
from rlcorr_cli.io.places import Places
from rlcorr_cli.io.sources import Source
from rlcorr_cli.storage import filesystem

FILE = b"ARROW1"
OLD_FEATHER = b"FEA1"
CUT_SHORT = "It may be cut short: write it again."
BATCHES = 16
"""Record batches of one shard; a Hugging Face dataset has 1,000 rows in each."""
WHOLE_ROWS = 1 << 9
PEEKED_ROWS = 1 << 9


def index(source: Source, needed: NeededColumns, stdin: Stdin | None = None) -> Index:
    """The schema, and of a file how many rows each record batch has."""
    with _opened(source.path) as reader:
        schema = reader.schema
        needed(schema)
        if not isinstance(reader, pa.ipc.RecordBatchFileReader):
            return Index(schema=schema, in_one=True)
        return Index(schema=schema, group_rows=(0,) * reader.num_record_batches)


def parts(source: Source, index: Index, roles: Roles) -> Sequence[Piece]:
    """Runs of record batches; a stream is one part."""
    if index.in_one:
        return [(None, source.n_bytes)]
    n = len(index.group_rows)
    return [
        ((first, min(first + BATCHES, n)), source.n_bytes * (min(first + BATCHES, n) - first) // n)
        for first in range(0, n, BATCHES)
    ]


def read(
    shard: Shard, roles: Roles, stdin: Stdin | None = None, batch_tokens: int = 0, *, whole: bool = False
) -> Generator[Rows]:
    """The part's rows, at most a record batch at a time; whole: with all columns."""
    with _opened(shard.path, None if whole else roles.needed) as reader:
        row, batches = _batches(reader, shard.part)
        for batch in batches:
            batch = pa.record_batch([_plain(column) for column in batch.columns], names=batch.schema.names)
            step = min(batch.num_rows, WHOLE_ROWS) if whole else batch.num_rows
            for first in range(0, batch.num_rows, max(step, 1)):
                portion = batch.slice(first, step)
                n = portion.num_rows
                yield Rows(
                    data=portion.select(roles.needed),
                    places=Places(shard.path, "row", range(row + first, row + first + n)),
                    original=ArrowRows.of(portion) if whole else None,
                )
            row += batch.num_rows


def peek(shard: Shard, roles: Roles, stdin: Stdin | None = None) -> Rows | None:
    """The first rows."""
    with closing(read(shard, roles)) as portions:
        rows = next(portions, None)
    return rows and rows.part(0, min(PEEKED_ROWS, rows.data.num_rows))


def _batches(
    reader: "pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader", part: tuple[int, int] | None
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The number of the part's first row, and its record batches, each checked: offsets of a damaged file lead
    anywhere."""
    if part is None:
        return 0, (_checked(batch) for batch in reader)
    first, stop = part
    before = sum(reader.get_batch(i).num_rows for i in range(first))
    return before, (_checked(reader.get_batch(i)) for i in range(first, stop))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)
    return batch


def _plain(column: pa.Array) -> pa.Array:
    """A dictionary's values in the place of its codes."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@contextmanager
def _opened(
    path: str, columns: Sequence[str] | None = None
) -> "Generator[pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader]":
    try:
        with filesystem(path).mapped(path) as file:
            start = file.read(len(FILE))
            file.seek(0)
            if start[: len(OLD_FEATHER)] == OLD_FEATHER:
                raise DataError(f"{path} is Feather of the first version.", "Write it again: polars' write_ipc does.")
            opened = _file(file, columns) if start == FILE else pa.ipc.open_stream(file)
            with opened as reader:
                yield reader
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        explained = filesystem(path).explained(path, error)
        if explained is not None:
            raise explained from error
        what = " ".join(str(error).split())
        raise DataError(
            f"{path} cannot be read as Arrow IPC: {what}", "It may be cut short: write it again."
        ) from error


def _file(file: pa.NativeFile, columns: Sequence[str] | None) -> "pa.ipc.RecordBatchFileReader":
    """A reader of these columns, None for all: of the others no byte is read."""
    opened = pa.ipc.open_file(file)
    if columns is None:
        return opened
    places = [opened.schema.get_field_index(name) for name in columns]
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))


READER = Reader(index, parts, read, peek)
