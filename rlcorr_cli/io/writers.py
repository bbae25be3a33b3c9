"""The forms in which rows are written: one Writer and its row in `writer`."""

import gzip
import json
from contextlib import suppress
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.one_table import conformed, different
from rlcorr_cli.io.original_rows import LINES, OriginalRows
from rlcorr_cli.io.plain_values import Losses

GROUP_BYTES = 16 << 20
"""A row group holds about this much before compression: a training reader loads one at a time."""
HELD = 8
"""Tables held before they are copied into one: rows picked out of a large table may keep room for all of it."""
MARK = "rlcorr"
"""The key of a Parquet file's metadata by which it tells who wrote it, and how."""


class Writer(Protocol):
    """One file being written."""

    def write(self, rows: OriginalRows) -> None:
        """Some more rows."""
        ...

    def close(self, metadata: str) -> None:
        """The last bytes.  metadata: a JSON document about the whole output, for formats that have a place for it."""
        ...

    def abandon(self) -> None:
        """Write no more."""
        ...


class _Parquet:
    """zstd, row groups of about GROUP_BYTES, the source's schema metadata and one more key, `rlcorr`."""

    def __init__(self, file: BinaryIO, columns: pa.Schema | None, first: pa.Schema | None) -> None:
        self._file = file
        self._columns = columns
        self._fixed = first
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.Table] = []

    def write(self, rows: OriginalRows) -> None:
        table = rows.as_table(self._fixed)
        if self._columns is not None:
            table = conformed(table, self._columns)
        if self._fixed is not None and table.schema != self._fixed:
            raise different(table.schema, self._fixed)
        if self._writer is None:
            self._writer = _parquet(self._file, table.schema)
            self._fixed = self._writer.schema
        self._held.append(table)
        if len(self._held) == HELD:
            self._held = [pa.concat_tables(self._held).combine_chunks()]
        if sum(held.nbytes for held in self._held) >= GROUP_BYTES:
            self._flush()

    def close(self, metadata: str) -> None:
        self._flush()
        assert self._writer is not None
        if metadata:
            self._writer.add_key_value_metadata({MARK: metadata})
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # else it would close itself, into a file that is gone

    def _flush(self) -> None:
        if self._held:
            assert self._writer is not None
            table = pa.concat_tables(self._held)
            self._held = []
            rows = max(1, table.num_rows * GROUP_BYTES // max(table.nbytes, 1))
            self._writer.write_table(table, row_group_size=max(rows, 1))


def _parquet(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    try:
        return pq.ParquetWriter(file, schema, compression="zstd")
    except pa.ArrowNotImplementedError as error:  # an object without keys, for one
        raise DataError(f"Parquet cannot hold these rows: {error}.", LINES) from error


class _Lines:
    """One JSON object per line; a number that JSON has not is null where losses count it."""

    def __init__(self, file: BinaryIO, suffix: str, losses: Losses | None) -> None:
        self._losses = losses
        if suffix == ".jsonl.gz":
            self._file: Any = gzip.GzipFile(
                filename="", fileobj=file, mode="wb", mtime=0
            )  # else it names the temporary
        elif suffix == ".jsonl.zst":
            self._file = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
        else:
            self._file = file
        self._own = self._file is not file

    def write(self, rows: OriginalRows) -> None:
        for row in rows.as_objects(self._losses):
            self._file.write(_line(row, self._losses))

    def close(self, metadata: str) -> None:
        if self._own:
            self._file.close()

    def abandon(self) -> None:
        if self._own:
            with suppress(OSError, ValueError):
                self._file.close()


def writer(
    suffix: str,
    file: BinaryIO,
    losses: Losses | None,
    columns: pa.Schema | None,
    *,
    first: pa.Schema | None = None,
) -> Writer:
    """The Writer of a suffix, which closes nothing but what it opens itself.  losses: where it counts
    them; None where a number is to stay what it was.  columns: as of `Dump.table_columns`.  first: columns that rows of
    another file fix for these."""
    return _Parquet(file, columns, first) if suffix == ".parquet" else _Lines(file, suffix, losses)


def columns_of(rows: OriginalRows, columns: pa.Schema | None) -> pa.Schema:
    """The columns that these rows fix for all others.  columns: as of `Dump.table_columns`."""
    table = rows.as_table(None)
    return (table if columns is None else conformed(table, columns)).schema


def _line(row: dict[str, Any], losses: Losses | None) -> bytes:
    text = json.dumps(row, ensure_ascii=False)
    if losses is not None and ("NaN" in text or "Infinity" in text):  # as numbers, or in some text
        text = json.dumps(json.loads(text, parse_constant=losses.no_number), ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape and UTF-8 cannot hold
        return f"{json.dumps(json.loads(text))}\n".encode()
