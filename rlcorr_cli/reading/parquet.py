"""Parquet: row groups are the shards, and only the needed columns are read."""

import math
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as is_

from rlcorr_cli.errors import DataError
from rlcorr_cli.files.arrow_files import damaged, parquet_file
from rlcorr_cli.files.disk import Placed
from rlcorr_cli.reading.arrow_values import byte_width, portions
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import ROW_TOKENS, Rows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import Index, NeededColumns, Reader
from rlcorr_cli.reading.find import Source

MERGE_BYTES = 4 << 20
STEP_TOKENS = 1 << 14, 1 << 22
"""The least and the most tokens read in one step, whatever a batch holds."""
WHOLE_ROWS, STEP_BYTES = 1 << 9, 1 << 26
"""The most of whole rows in one step, and of what a footer says that its values take."""
KEPT_MS = 4_000
"""For how long Arrow keeps what it freed: longer takes more memory in a long run of `filter`."""
SHARED_BYTES = 1 << 28
"""The most in one step of values that rows may share."""
PEEKED_TOKENS = 1 << 17
"""What is looked at of a file before it is read."""


def use_jemalloc() -> None:
    """Arrow's other pool, where it was built with it and nobody chose one: 30 MB less.

    It keeps what it freed for KEPT_MS.  For a whole process, so for commands to call and not for a library.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
        pa.jemalloc_set_decay_ms(KEPT_MS)


def index(source: Source, needed: NeededColumns) -> Index:
    """The footer, with the needed columns' chunks checked."""
    path = source.path
    with parquet_file(path, pre_buffer=True) as file:
        schema = file.schema_arrow
        _ = schema.names  # decoded only when they are asked for, and a name need not be UTF-8
        metadata, names = file.metadata, needed(schema)
        columns = {name: _indices(file, name) for name in names}
        wanted = [j for of_name in columns.values() for j in of_name]
        _check_descriptions(metadata, wanted)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        group_rows = tuple(group.num_rows for group in groups)
        if sum(group_rows) != metadata.num_rows:
            raise damaged(path, "its row groups do not hold the rows that its footer names")
        # Rows that would not fit into memory, as far as a footer tells.
        for group, j in product(groups, wanted):
            if group.num_rows and group.column(j).num_values / group.num_rows > ROW_TOKENS:
                message = f"{path} has rows of over {ROW_TOKENS:,} tokens."
                raise DataError(message, "One row is one sequence: is the file laid out so?")
        group_bytes = {
            name: tuple(sum(group.column(j).total_compressed_size for j in of_name) for group in groups)
            for name, of_name in columns.items()
        }
    return Index(schema=schema, group_rows=group_rows, group_bytes=group_bytes)


def parts(source: Source, index: Index, roles: Roles) -> list[tuple[tuple[int, int], int]]:
    """Runs of row groups: each alone, but neighbours together while they stay under MERGE_BYTES compressed."""
    runs: list[tuple[tuple[int, int], int]] = []
    for i in range(len(index.group_rows)):
        size = sum(index.group_bytes[name][i] for name in roles.needed)
        if runs and runs[-1][1] + size <= MERGE_BYTES:
            (first, _), total = runs[-1]
            runs[-1] = ((first, i + 1), total + size)
        else:
            runs.append(((i, i + 1), size))
    return runs


def _check_descriptions(metadata: pq.FileMetaData, columns: list[int]) -> None:
    """Have Arrow look at every chunk's description where it can still say no: asked for one by one, a damaged one would
    end the process (apache/arrow#45283).

    It looks at all of them before it reads, and it reads a file here that has no bytes to give.
    """
    unread = pa.PythonFile(_Unread(sys.maxsize), mode="r")
    with pq.ParquetFile(unread, metadata=metadata, pre_buffer=True) as file:
        try:
            next(file.reader.iter_batches(1, list(range(metadata.num_row_groups)), columns, False), None)
        except _Read as asked:
            asked.__traceback__ = None  # it holds this frame and so the footer, and Arrow never lets go of the error


class _Read(Exception):
    """A byte of a file was asked for."""


class _Unread(Placed):
    """A file as large as any, of which nothing can be read."""

    def read(self, n: int = -1, /) -> bytes:
        raise _Read


def read(shard: Shard, roles: Roles, batch_tokens: int = STEP_TOKENS[1], *, whole: bool = False) -> Generator[Rows]:
    """The part's rows, about batch_tokens tokens at a time; whole: with all columns.

    Measured: one thread per shard reads as fast as Arrow's own threads, and a step that stays in cache no slower than a
    whole row group, which also took memory that swung with what the threads happened to hold.
    """
    first, stop = shard.part or (0, 0)
    names = None if whole else roles.needed
    with ExitStack() as opened:
        file = opened.enter_context(parquet_file(shard.path))
        groups = range(first, stop)
        row = sum(file.metadata.row_group(i).num_rows for i in range(first))
        end = row + sum(file.metadata.row_group(i).num_rows for i in groups)
        step, dictionaries = _rows_of_a_step(file, groups, roles.rollout, batch_tokens=batch_tokens, names=names)
        schema = file.schema_arrow
        if dictionaries:
            file = opened.enter_context(parquet_file(shard.path, dictionaries=dictionaries))
        for batch in file.iter_batches(step, list(groups), names, use_threads=False):
            for numbers, portion in portions(batch, schema, shard.path, row, whole=whole):
                yield Rows.of(portion, shard.path, numbers, roles.needed, whole=whole)
            row += batch.num_rows
        if row != end:
            raise damaged(shard.path, f"its columns end at row {row} of {end}")


def peek(shard: Shard, roles: Roles) -> Rows | None:
    """The first rows, about PEEKED_TOKENS of them."""
    with closing(read(shard, roles, PEEKED_TOKENS)) as steps:
        return next(steps, None)


def _rows_of_a_step(
    file: pq.ParquetFile, groups: Sequence[int], tokens: str, *, batch_tokens: int, names: Sequence[str] | None
) -> tuple[int, list[str]]:
    """Rows of equal steps that hold less than batch_tokens each: rows differ in length, and few should be cut in two.

    No more than STEP_BYTES of them by the footer, and of whole rows (names: None) WHOLE_ROWS.  And the columns of text
    of which a step may be larger than that, to be read as the dictionaries that they are kept in: no footer tells how
    long a text in a dictionary is.
    """
    # Seven eighths: a step that is a little too long is cut into a full batch and a remnant, one that is a little too
    # short makes one batch, which costs less.  Equal, because a short last step costs as many calls as a full one.
    low, high = STEP_TOKENS
    metadata, is_whole = file.metadata, names is None
    read = range(metadata.num_columns) if names is None else sorted({j for name in names for j in _indices(file, name)})
    if is_whole:  # of the needed columns alone it is known
        _check_descriptions(metadata, list(read))
    chunks = {j: [metadata.row_group(i).column(j) for i in groups] for j in read}
    n_tokens = sum(chunk.num_values for j in _indices(file, tokens) for chunk in chunks[j])
    n_rows = sum(metadata.row_group(i).num_rows for i in groups)
    n_steps = math.ceil(8 * n_tokens / (7 * min(max(batch_tokens, low), high)))
    step = math.ceil(n_rows / max(n_steps, 1))
    leaves = [leaf for field in file.schema_arrow for leaf in _leaves(field.type)]
    widths = {j: byte_width(leaves[j]) for j in read}
    n_bytes = sum(
        max(chunk.total_uncompressed_size, chunk.num_values * (widths[j] or 0))
        for j in read
        for chunk in chunks[j]
        if is_whole or widths[j] is None or is_.is_fixed_size_binary(leaves[j])
    )
    step = min(step, n_rows * STEP_BYTES // max(n_bytes, 1), WHOLE_ROWS if is_whole else 1 << 30)
    dictionaries: list[str] = []
    for j in read:
        largest = max((chunk.total_uncompressed_size for chunk in chunks[j] if _shares(chunk)), default=0)
        path = file.reader.column_paths[j]
        n_values = step if len(path) == 1 else max((chunk.num_values for chunk in chunks[j]), default=0)
        if widths[j] is None and largest * n_values > SHARED_BYTES:
            # Of what is no dictionary a value is at most as long as all that is in the file of its column.
            in_file = any("DELTA_BYTE_ARRAY" in chunk.encodings for chunk in chunks[j])
            if in_file or leaves[j] not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
                step = min(step, SHARED_BYTES // largest)
            else:
                dictionaries.append(".".join(path))
    return max(1, step), dictionaries


def _shares(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a value may be in the file once, or in part, and in many rows."""
    return not {"RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BYTE_ARRAY"}.isdisjoint(chunk.encodings)


def _leaves(type: pa.DataType) -> list[pa.DataType]:
    """The types of the file's columns that a column is made of."""
    if isinstance(type, pa.BaseExtensionType) and type.storage_type.num_fields:
        return _leaves(type.storage_type)
    if type.num_fields or is_.is_struct(type):
        return [leaf for i in range(type.num_fields) for leaf in _leaves(type.field(i).type)]
    return [type]


def _indices(file: pq.ParquetFile, name: str) -> list[int]:
    """The footer's columns that one column is made of: itself, or what is nested in it."""
    # Not by metadata.schema: it and the footer hold each other, and a long run kept the footer of every shard.
    paths = enumerate(file.reader.column_paths)
    return [j for j, path in paths if f"{'.'.join(path)}.".startswith(f"{name}.")]


READER = Reader(index, parts, read, peek)
