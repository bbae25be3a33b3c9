"""Parquet files at any place: the footer in one request and kept, and Arrow's complaints as the file's fault."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem
from rlcorr_cli.files.disk import CUT_SHORT

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
                handle, metadata=footer, pre_buffer=pre_buffer, read_dictionary=dictionaries or None
            ) as file:
                yield file
    # Arrow's complaints are the file's fault.
    except UnicodeDecodeError as error:
        raise damaged(path, "a column's name is not UTF-8") from error
    except pa.ArrowNotImplementedError as error:
        raise damaged(path, " ".join(str(error).split()), "Write it again in types that Arrow reads.") from error
    except (pa.ArrowInvalid, OSError) as error:
        explained = files.explained(path, error)
        if explained is not None:
            raise explained from error
        encrypted = "crypt" in str(error)
        hint = "It is encrypted: decrypt it first." if encrypted else CUT_SHORT
        raise damaged(path, " ".join(str(error).split()), hint) from error


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
