"""Datasets on their way to disk: whole or not at all.

`atomic` says how; a failure or an interrupt removes what was written.  A form of output is one Writer and its row in
`_writer`.
"""

import errno
import gzip
import json
import os
import re
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.atomic import check_target, discard, publish, sync, temporary_name
from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.io.corrected import Rows
from rlcorr_cli.io.formats import WRITTEN
from rlcorr_cli.places import STDIN

GROUP_BYTES = 16 << 20
"""A row group holds about this much before compression: a training reader loads one at a time."""
HELD = 8
"""Tables held before they are copied into one: rows picked out of a large table may keep room for all of it."""
DEEPEST = 40
"""Levels of nesting that Parquet readers still open."""
TOO_DEEP = "These JSON lines are nested too deeply for Parquet readers."
LINES = "Write .jsonl instead, where every row may differ."


PART = re.compile(rf"part-\d{{5,}}({'|'.join(map(re.escape, WRITTEN))})")
"""Names of a directory's files."""


class Writer(Protocol):
    """One file being written."""

    def write(self, rows: Rows) -> None:
        """Some more rows."""
        ...

    def close(self, metadata: str) -> None:
        """The last bytes.  metadata: a JSON document about the whole output, for formats that have a place for it."""
        ...

    def abandon(self) -> None:
        """Write no more."""
        ...


class Output:
    """A dataset at `path`: a file by its suffix, else a directory of parts.

    rows, n_bytes: what has been written.  done: the share of the input that it stands for, as its user says.
    """

    def __init__(self, path: Path, temporary: Path, rows_per_file: int, about: str, overwrite: bool) -> None:
        """Use `create`."""
        self._about = about
        self._overwrite = overwrite
        self.path = path
        self.rows = 0
        self.done = 0.0
        self._temporary = temporary
        self._rows_per_file = None if is_file(path) else rows_per_file
        self._suffix = next((s for s in WRITTEN if path.name.endswith(s)), ".parquet")
        self._part: tuple[Writer, BinaryIO] | None = None
        self._parts: list[Path] = []
        self._in_part = 0
        self._closed_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes on the disk so far."""
        return self._closed_bytes + (self._parts[-1].stat().st_size if self._part else 0)

    def write(self, rows: Rows) -> None:
        """Rows in order, cut over parts where the output is a directory."""
        first = 0
        while first < len(rows):
            room = len(rows) - first
            if self._rows_per_file is not None:
                if self._in_part == self._rows_per_file:
                    self._close(self._about)
                room = min(room, self._rows_per_file - self._in_part)
            self._open().write(rows[first : first + room] if isinstance(rows, list) else rows.slice(first, room))
            self._in_part += room
            self.rows += room
            first += room

    def finish(self, metadata: str) -> None:
        """Flush to the disk and give the output its name."""
        if self._part is None and not self._parts:
            raise DataError(f"Nothing is left to write to {self.path}.", "Loosen the plan, or use --rejected keep.")
        self._close(metadata)
        if self.path.is_dir():
            _check_own(self.path)  # again: what came while this ran would go with the old parts
        publish(self._temporary, self.path, replace=self._overwrite)

    def finish_or_remove(self, metadata: str) -> None:
        """As `finish`; where no row came, an output of the same name that may be replaced goes, which is not ours."""
        if self.rows:
            self.finish(metadata)
        elif self._overwrite and self.path.is_dir():
            _check_own(self.path)
            discard(self.path)
        elif self._overwrite:
            discard(self.path)

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._part is not None:
            writer, file = self._part
            writer.abandon()
            with suppress(OSError):
                file.close()
        discard(self._temporary)

    def _open(self) -> Writer:
        if self._part is None:
            name = self._temporary
            if self._rows_per_file is not None:
                if not self._parts:
                    self._temporary.mkdir()
                name = self._temporary / f"part-{len(self._parts):05d}{self._suffix}"
            file = name.open("xb")
            self._parts.append(name)
            self._part = _writer(self._suffix, file), file
            self._in_part = 0
        return self._part[0]

    def _close(self, metadata: str) -> None:
        if self._part is not None:
            writer, file = self._part
            writer.close(metadata)
            file.close()
            sync(self._parts[-1])
            self._closed_bytes += self._parts[-1].stat().st_size
            self._part = None


@contextmanager
def create(path: Path, rows_per_file: int, about: str, *, overwrite: bool = False) -> Generator[Output]:
    """An Output that is discarded unless `finish` was reached; failures to write are OutputErrors.

    about: the metadata of parts that are full before the end is known.  overwrite: whether it may replace another.
    """
    path = Path(os.path.realpath(path)) if path.is_dir() else path  # a link to a directory stays one
    output = Output(path, temporary_name(path), rows_per_file, about, overwrite)
    try:
        yield output
    except OSError as error:
        if isinstance(error, pa.ArrowException) and error.errno is None:
            raise
        raise _unwritten(output, error) from error
    finally:
        output.discard()


def check_dataset(path: Path, inputs: list[str], overwrite: bool) -> None:
    """Refuse what must not be written, before the long scan."""
    if str(path) == STDIN:
        raise UsageError("A dataset is not written to standard output.", "Name a file, or a directory.")
    if path.suffix and not is_file(path) and not path.is_dir():
        raise UsageError(f"{path}: unknown form of output.", f"Name a {', '.join(WRITTEN)} file, or a directory.")
    check_target(path, inputs, directory=not is_file(path))
    if not os.path.lexists(path):
        return
    if path.is_dir():
        _check_own(path)
        if not any(path.iterdir()):
            return
    if not overwrite:
        raise OutputError(f"{path} exists.", "Add --overwrite to replace it, or name another output.")


def _check_own(directory: Path) -> None:
    """Refuse a directory that holds anything but parts as `Output` writes them: all of it would be replaced."""
    for path in directory.iterdir():
        if not PART.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            raise OutputError(f"{directory} holds other files ({path.name}).", "Name a new or empty directory.")


def is_file(path: Path) -> bool:
    """Whether the name asks for one file."""
    return path.name.endswith(WRITTEN)


class _Parquet:
    """zstd, row groups of about GROUP_BYTES, the source's schema metadata and one more key, `rlcorr`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.Table] = []

    def write(self, rows: Rows) -> None:
        table = _as_table(rows, self._writer and self._writer.schema)
        if self._writer is None:
            self._writer = _parquet(self._file, table.schema)
        elif table.schema != self._writer.schema:
            raise DataError(
                "The files of this dump have different columns, which one Parquet file cannot hold.",
                "Filter them one by one, or write .jsonl instead.",
            )
        self._held.append(table)
        if len(self._held) == HELD:
            self._held = [pa.concat_tables(self._held).combine_chunks()]
        if sum(held.nbytes for held in self._held) >= GROUP_BYTES:
            self._flush()

    def close(self, metadata: str) -> None:
        self._flush()
        assert self._writer is not None
        if metadata:
            self._writer.add_key_value_metadata({"rlcorr": metadata})
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
    """One JSON object per line."""

    def __init__(self, file: BinaryIO, suffix: str) -> None:
        if suffix == ".jsonl.gz":
            self._file: Any = gzip.GzipFile(fileobj=file, mode="wb", mtime=0)
        elif suffix == ".jsonl.zst":
            self._file = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
        else:
            self._file = file
        self._own = self._file is not file

    def write(self, rows: Rows) -> None:
        for row in rows if isinstance(rows, list) else _as_objects(rows):
            self._file.write(_line(row))

    def close(self, metadata: str) -> None:
        if self._own:
            self._file.close()

    def abandon(self) -> None:
        if self._own:
            with suppress(OSError, ValueError):
                self._file.close()


def _writer(suffix: str, file: BinaryIO) -> Writer:
    return _Parquet(file) if suffix == ".parquet" else _Lines(file, suffix)


def _as_table(rows: Rows, schema: pa.Schema | None) -> pa.Table:
    """Objects of JSON lines as a table; the first ones fix the columns."""
    if not isinstance(rows, list):
        return rows
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except RecursionError as error:
        raise DataError(TOO_DEEP, LINES) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
        raise DataError(f"These JSON lines do not fit one table: {error}.", LINES) from error
    if any(_is_deeper(field.type, DEEPEST) for field in table.schema):
        raise DataError(TOO_DEEP, LINES)
    names = set(table.column_names)
    strange = next((name for row in rows for name in row if name not in names), None)
    if strange is not None:
        raise DataError(
            f"The key {strange} is not in the first rows, which fix the columns of a Parquet file.",
            LINES,
        )
    return table


def _is_deeper(type: pa.DataType, levels: int) -> bool:
    """Whether it is nested deeper than so many levels."""
    return levels < 0 or any(_is_deeper(type.field(i).type, levels - 1) for i in range(type.num_fields))


def _as_objects(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python has them; times in nanoseconds, which it has not, as text."""
    twice = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"Two columns are called {twice}; a JSON object holds one.", "Write .parquet, or rename one.")
    for i, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type) and getattr(field.type, "unit", "") == "ns":
            table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
    return table.to_pylist()


def _line(row: dict[str, Any]) -> bytes:
    text = json.dumps(row, ensure_ascii=False, default=_plain) + "\n"
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape and UTF-8 cannot hold
        return (json.dumps(row, default=_plain) + "\n").encode()


def _plain(value: Any) -> Any:
    """What Parquet has and JSON has not."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{value!r} has no JSON form")


def _unwritten(output: Output, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        written = output.n_bytes / 1e6
        needed = f", of about {written / output.done:,.1f} MB needed" if output.done else ""
        return OutputError(
            f"Cannot write {output.path}: {reason} after {written:,.1f} MB{needed}.",
            "Free some space, or name another output with -o.",
        )
    return OutputError(f"Cannot write {output.path}: {reason}.", "Name another output with -o.")
