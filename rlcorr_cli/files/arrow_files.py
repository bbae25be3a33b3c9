"""Arrow's files and streams: opened alike, each record batch checked, and Arrow's complaints as the file's fault."""

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.disk import CUT_SHORT

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
        explained = files.explained(path, error)
        if explained is not None:
            raise explained from error
        raise _damaged(path, error, CUT_SHORT) from error


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
