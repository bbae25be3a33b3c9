"""Record batches cut so that they stay small where a value that many rows share is written out for each of them.

A dictionary, runs and views keep a text once, however many rows have it: a file of a megabyte may hold terabytes of
text.  How much each row takes is known before anything is written out.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as is_
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import shown
from rlcorr_cli.reading.arrow_values import as_arrow, as_numpy, call, cast, is_list
from rlcorr_cli.totals.flat import offsets_of

PORTION_BYTES = 1 << 22
"""The most that is written out at once, but for one row that takes more.  Larger portions are slower: the system clears
fresh memory for each."""
ROW_BYTES = 1 << 28
"""The most of one row."""


def portions(
    batch: pa.RecordBatch, schema: pa.Schema, path: str, row: int, *, whole: bool
) -> Iterator[tuple[range, pa.RecordBatch]]:
    """A batch with the types of these columns, cut where the next row would pass PORTION_BYTES, and the rows' numbers.

    row: the number of the first one.  Unless rows are wanted whole, a dictionary of single values stays one: keys and
    ids are made of each of its values once.
    """
    # A name may come twice where all columns are there.
    fields = list(schema if whole else map(schema.field, batch.schema.names))
    columns = [
        (column if whole else _as_dictionary(column), field.type)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    kept = [column.type == type or (not whole and is_.is_dictionary(column.type)) for column, type in columns]
    n_bytes = np.zeros(batch.num_rows, np.int64)
    for (column, _), stays in zip(columns, kept, strict=True):
        if _shares(column.type) and not (stays and is_.is_dictionary(column.type)):
            n_bytes += bytes_of_rows(column)
    ends, start = offsets_of(n_bytes), 0
    if n_bytes.max(initial=0) > ROW_BYTES:
        worst = int(n_bytes.argmax())
        raise DataError(
            f"{shown(path)}, row {row + worst} (0-based): its values would take {n_bytes[worst] / 1e9:,.2f} GB, "
            f"over the limit of {ROW_BYTES / 1e9:.2f} GB; in the file most of them share one place.",
            "Leave the column with long values out of the dump.",
        )
    while start < batch.num_rows:
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + PORTION_BYTES, side="right")) - 1)
        cut = [
            part if stays else cast(pa.concat_arrays([part]), type)  # a slice's cast looks at all before it
            for (column, type), stays in zip(columns, kept, strict=True)
            for part in (column.slice(start, stop - start),)
        ]
        typed = (field.with_type(part.type) for field, part in zip(fields, cut, strict=True))
        yield range(row + start, row + stop), pa.record_batch(cut, pa.schema(typed, schema.metadata))
        start = stop


def written_out(schema: pa.Schema) -> pa.Schema:
    """The columns with a dictionary's values in the place of its codes."""
    types = [field.type.value_type if is_.is_dictionary(field.type) else field.type for field in schema]
    return pa.schema([field.with_type(type) for field, type in zip(schema, types, strict=True)])


def _as_dictionary(column: pa.Array) -> pa.Array:
    """Runs as a dictionary of their values; any other column as it is."""
    if not is_.is_run_end_encoded(column.type):
        return column
    return pa.DictionaryArray.from_arrays(as_arrow(_runs(column)), column.values)


def _runs(column: pa.RunEndEncodedArray) -> NDArray[np.int64]:
    """The run of each row."""
    return np.searchsorted(as_numpy(column.run_ends), column.offset + np.arange(len(column)), side="right")


def _shares(type: pa.DataType) -> bool:
    """Whether rows may have one value in one place."""
    if isinstance(type, pa.BaseExtensionType):
        return _shares(type.storage_type)
    tests = (is_.is_dictionary, is_.is_run_end_encoded, is_.is_string_view, is_.is_binary_view, is_.is_list_view)
    own = any(test(type) for test in (*tests, is_.is_large_list_view))
    return own or any(_shares(type.field(i).type) for i in range(type.num_fields))


def bytes_of_rows(column: pa.Array) -> NDArray[np.int64]:
    """What the values of each row take where none is shared, i64[B]."""
    type, n = column.type, len(column)
    if isinstance(type, pa.BaseExtensionType):
        return bytes_of_rows(column.storage)
    if is_.is_dictionary(type):
        return np.append(bytes_of_rows(column.dictionary), 0)[as_numpy(cast(column.indices, pa.int64()), null=-1)]
    if is_.is_run_end_encoded(type):
        return bytes_of_rows(column.values)[_runs(column)]
    if is_.is_struct(type):
        return sum(map(bytes_of_rows, column.flatten()), np.zeros(n, np.int64))
    if is_.is_map(type):
        starts, items = (
            as_numpy(column.offsets).astype(np.int64),
            bytes_of_rows(column.keys) + bytes_of_rows(column.items),
        )
        return np.diff(offsets_of(items)[starts])
    if is_list(type):
        sums = offsets_of(bytes_of_rows(column.values))
        if is_.is_fixed_size_list(type):
            starts = (column.offset + np.arange(n)) * type.list_size
            return sums[starts + type.list_size] - sums[starts]
        starts = as_numpy(column.offsets).astype(np.int64)
        if is_.is_list_view(type) or is_.is_large_list_view(type):
            return sums[starts + as_numpy(column.sizes)] - sums[starts]
        return np.diff(sums[starts])
    if is_.is_string_view(type) or is_.is_binary_view(type):
        views = column.buffers()[1]
        lengths = np.frombuffer(views or b"", np.int32)[4 * column.offset : 4 * (column.offset + n) : 4]
        return lengths.astype(np.int64)
    if is_.is_null(type) or is_.is_union(type):
        return np.zeros(n, np.int64)
    width = byte_width(type)
    return as_numpy(call("binary_length", column), null=0).astype(np.int64) if width is None else np.full(n, width)


def byte_width(type: pa.DataType) -> int | None:
    """What one value takes, at least 1; None of text and bytes."""
    try:
        return max(type.bit_width // 8, 1)
    except ValueError:
        return None
