"""Parquet: row groups are the shards, and only the needed columns are read."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.batch import Shard
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.batches import Rows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.sources import Source
from rlcorr_cli.io.streams import Stdin

MERGE_BYTES = 4 << 20
WHOLE_BYTES = 128 << 20
STEP_BYTES = 32 << 20
WIDTHS = {"FLOAT": 4, "INT32": 4, "DOUBLE": 8, "INT64": 8, "BOOLEAN": 1, "FIXED_LEN_BYTE_ARRAY": 2}


def schema(path: str, stdin: Stdin | None = None) -> pa.Schema:
    """All columns, from the footer."""
    with _file(path) as file:
        return file.schema_arrow


def parts(source: Source, roles: Roles) -> list[tuple[tuple[int, int], int]]:
    """Runs of row groups: each alone, but neighbours together while they stay under MERGE_BYTES compressed."""
    with _file(source.path) as file:
        wanted = _indices(file.metadata, roles.needed)
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        sizes = [sum(group.column(j).total_compressed_size for j in wanted) for group in groups]
    runs: list[tuple[tuple[int, int], int]] = []
    for i, size in enumerate(sizes):
        (first, _), total = runs[-1] if runs else ((0, 0), MERGE_BYTES)
        if total + size <= MERGE_BYTES:
            runs[-1] = ((first, i + 1), total + size)
        else:
            runs.append(((i, i + 1), size))
    return runs


def read(shard: Shard, roles: Roles, schema: pa.Schema, stdin: Stdin | None = None) -> Iterator[Rows]:
    """The part's rows: at once while that takes under WHOLE_BYTES, else about STEP_BYTES at a time."""
    first, stop = shard.part or (0, 0)
    with _file(shard.path) as file:
        row = sum(file.metadata.row_group(i).num_rows for i in range(first))
        for batch in _record_batches(file, range(first, stop), roles.needed):
            yield Rows(batch, partial(_where, shard.path, row))
            row += batch.num_rows
    # Arrow's pool would keep the largest row group it ever held; on long dumps that adds up over threads.
    pa.default_memory_pool().release_unused()


def _record_batches(file: pq.ParquetFile, groups: range, names: list[str]) -> Iterator[pa.RecordBatch]:
    n_bytes = _decoded_bytes(file.metadata, groups, names)
    if n_bytes <= WHOLE_BYTES:
        # Measured: one thread per shard reads faster than Arrow's own threads, and row groups faster than batches.
        table = file.read_row_groups(list(groups), columns=names, use_threads=False)
        yield from table.combine_chunks().to_batches()
    else:
        n_rows = sum(file.metadata.row_group(i).num_rows for i in groups)
        step = max(1, n_rows * STEP_BYTES // n_bytes)
        yield from file.iter_batches(batch_size=step, row_groups=list(groups), columns=names, use_threads=False)


def _decoded_bytes(metadata: pq.FileMetaData, groups: Sequence[int], names: list[str]) -> int:
    """Memory to hold the columns.  A column of repeats may take far less in the file, even uncompressed."""
    wanted = _indices(metadata, names)
    columns = [metadata.row_group(i).column(j) for i in groups for j in wanted]
    return sum(max(c.total_uncompressed_size, c.num_values * WIDTHS.get(c.physical_type, 8)) for c in columns)


def _indices(metadata: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    paths = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    return [j for j, path in enumerate(paths) if any(path == name or path.startswith(f"{name}.") for name in names)]


def _where(path: str, first: int, row: int) -> str:
    return f"{path}, row {first + row} (0-based)"


@contextmanager
def _file(path: str) -> Generator[pq.ParquetFile]:
    """A file opened by its bytes: Arrow takes a name for UTF-8, which a name need not be."""
    with _reading(path), pa.OSFile(os.fsencode(path)) as handle, pq.ParquetFile(handle, pre_buffer=False) as file:
        yield file


@contextmanager
def _reading(path: str) -> Generator[None]:
    """Arrow's complaints about a file, as the dump's fault."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as Parquet: {' '.join(str(error).split())}", "It may be cut short: write it again."
        ) from error
