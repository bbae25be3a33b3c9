"""Arrow's and Parquet's files at any place: opened alike, each record batch checked, a footer in one request and kept,
and Arrow's complaints as the file's fault."""

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.disk import CUT_SHORT

NUMPY_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.from_numpy_dtype(np.dtype(name)): np.dtype(name)
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""Arrow's booleans, whole numbers and floats -> NumPy's of the same width."""


READ_BYTES = 1 << 16
"""Read at once of a column of a Parquet file on the disk: without a limit it is a row group's whole column."""
FILE = b"ARROW1"
OLD_FEATHER = b"FEA1"
TOO_LARGE = "It is damaged, or its record batches are too large for the memory: write it again in smaller ones."


@contextmanager
def arrow_file(
    path: str, columns: Sequence[str] | None = None
) -> "Generator[pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader]":
    """A file opened for reading.  columns: those that are read of it, None for all; a stream has all."""
    files = filesystem(path)
    try:
        with files.arrow_file(path) as file:
            start = file.read_at(len(FILE), 0)
            if start[: len(OLD_FEATHER)] == OLD_FEATHER:
                raise DataError(f"{path} is Feather of the first version.", "Write it again: polars' write_ipc does.")
            if start == FILE:
                with _file(file, columns) as reader:
                    yield reader
                return
        with files.open(path) as stream, pa.ipc.open_stream(stream) as reader:
            yield reader
    except (MemoryError, OverflowError) as error:  # damaged lengths are of any size, and so may a batch be
        raise _damaged(path, error, TOO_LARGE) from error
    except UnicodeDecodeError as error:
        raise _damaged(path, "a column's name is not UTF-8", CUT_SHORT) from error
    except (pa.ArrowException, OSError, struct.error) as error:
        raise files.explained(path, error) or _damaged(path, error, CUT_SHORT) from error


def batches(
    reader: "pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader", part: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The record batches of a stream, or these of a file, each checked: offsets of a damaged file lead anywhere.

    part: the first of them and the one after the last; None for all.
    """
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        unchecked = map(reader.get_batch, range(*(part or (0, reader.num_record_batches))))
    else:
        unchecked = iter(reader)
    for batch in unchecked:
        batch.validate(full=True)
        yield batch


def _damaged(path: str, error: object, hint: str) -> DataError:
    return DataError(f"{path} cannot be read as Arrow IPC: {' '.join(str(error).split())}", hint)


def _file(file: pa.NativeFile, columns: Sequence[str] | None) -> "pa.ipc.RecordBatchFileReader":
    """A reader of these columns, None for all: of the others no byte is read."""
    opened = pa.ipc.open_file(file)
    if columns is None:
        return opened
    places = [opened.schema.get_field_index(name) for name in columns]
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))


FOOTER_BYTES = 32 << 20
END_BYTES = 1 << 16
"""What is read of a file's end at once: most footers have less."""


@contextmanager
def parquet_file(path: str, pre_buffer: bool = False, dictionaries: Sequence[str] = ()) -> Generator[pq.ParquetFile]:
    """A file opened for reading; pre_buffer: columns that lie side by side in one request, as is best far away.

    dictionaries: columns that are read as such.
    """
    files = filesystem(path)
    try:
        with files.arrow_file(path) as handle:
            footer = files.remembered(path, lambda: _footer(path, handle))
            pre_buffer = pre_buffer or files.remote
            with pq.ParquetFile(
                handle,
                metadata=footer,
                pre_buffer=pre_buffer,
                buffer_size=0 if pre_buffer else READ_BYTES,
                read_dictionary=dictionaries or None,
            ) as file:
                yield file
    # Arrow's complaints are the file's fault.
    except UnicodeDecodeError as error:
        raise damaged(path, "a column's name is not UTF-8") from error
    except pa.ArrowNotImplementedError as error:
        raise damaged(path, " ".join(str(error).split()), "Write it again in types that Arrow reads.") from error
    except (pa.ArrowInvalid, OSError) as error:
        hint = "It is encrypted: decrypt it first." if "crypt" in str(error) else CUT_SHORT
        raise files.explained(path, error) or damaged(path, " ".join(str(error).split()), hint) from error


def _footer(path: str, handle: pa.NativeFile) -> pq.FileMetaData:
    """Its length stands before the last four bytes; parsed, it takes sixty times as much memory."""
    size = handle.size()
    end = handle.read_at(min(size, END_BYTES), max(size - END_BYTES, 0))
    length = int.from_bytes(end[-8:-4], "little")
    if FOOTER_BYTES < length < size:
        raise DataError(
            f"{path} has {length / 1e6:,.0f} MB of footer, over {FOOTER_BYTES / 1e6:,.0f} MB.",
            "Write it again with larger row groups, or fewer columns.",
        )
    # A reader of footers goes by the end of what it is given, so that one request is enough.
    return pq.read_metadata(pa.BufferReader(end) if length + 8 <= len(end) else handle)


def damaged(path: str, what: str, hint: str = CUT_SHORT) -> DataError:
    """The error of a file that Arrow, or what is in it, says is not a whole Parquet file."""
    return DataError(f"{path} cannot be read as Parquet: {what}", hint)
