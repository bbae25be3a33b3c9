"""Arrow's values: its functions by name, which types can play which part of a dump, its numbers as NumPy's and back.

Nothing here goes the way of pyarrow's own methods.  `pyarrow.compute` writes a Python function with a page of
documentation for each of the three hundred that there are, every time that it is imported, and `take`, `cast`,
`is_valid` and the like import it: a fifth of all that a command does on a small dump.  `to_numpy` and `array` look for
pandas, and where it is installed import it: half a second and 60 MB at the start of every command.

Record batches are cut so that they stay small where a value that many rows share is written out for each of them
(`portions`).  A dictionary, runs and views keep a text once, however many rows have it: a file of a megabyte may hold
terabytes of text.  How much each row takes is known before anything is written out.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as is_
from numpy.typing import NDArray
from pyarrow._compute import CastOptions, call_function  # noqa: PLC2701

from rlcorr_cli.errors import DataError
from rlcorr_cli.files.arrow_files import NUMPY_DTYPES
from rlcorr_cli.places import shown
from rlcorr_cli.totals.flat import offsets_of


def call(name: str, *values: Any) -> Any:
    """A function of Arrow's (arrow.apache.org/docs/cpp/compute.html) with its default options."""
    return call_function(name, list(values))


def cast(values: Any, type: pa.DataType, *, lossy: bool = False) -> Any:
    """The values in another type; an ArrowInvalid where it cannot hold one, unless it may be lossy."""
    return call_function("cast", [values], CastOptions.unsafe(type) if lossy else CastOptions.safe(type))


def as_numpy(values: pa.Array | pa.ChunkedArray, null: float | None = None) -> NDArray[Any]:
    """Numbers or booleans in their own width, not to be written to.  null: what stands for one; None: there is none."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [as_numpy(chunk, null) for chunk in values.chunks]
        return np.concatenate(chunks) if chunks else _data_buffer(pa.nulls(0, values.type))
    if values.null_count and null is None:
        raise ValueError("a null is no number")
    numbers = _data_buffer(values)
    if not values.null_count:
        return numbers
    return np.where(_data_buffer(call("is_valid", values)), numbers, numbers.dtype.type(null))


def _data_buffer(values: pa.Array) -> NDArray[Any]:
    """The data buffer; what stands at a null is anything."""
    if is_.is_null(values.type):
        return np.zeros(len(values))
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, NUMPY_DTYPES[values.type])
    if is_.is_boolean(values.type):
        first, last = values.offset, values.offset + len(values)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=last, bitorder="little")
        return bits[first:].astype(np.bool_)
    dtype = NUMPY_DTYPES[values.type]
    return np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize)


def as_arrow(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers or booleans in their own width, not copied unless they are booleans.  valid: where there is no null."""
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(data)])


def as_texts(texts: Sequence[str]) -> pa.Array:
    """Strings, none of them null."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def as_lists(type: pa.DataType, offsets: NDArray[np.int64], values: NDArray[Any]) -> pa.Array:
    """A list column of any list type over flat values; flags become 1 and 0 in the column's own unit."""
    if pa.types.is_null(type.value_type):
        flat = pa.nulls(len(values))
    else:
        flat = as_arrow(values.astype(NUMPY_DTYPES[type.value_type], copy=False))
    if pa.types.is_fixed_size_list(type):
        return pa.FixedSizeListArray.from_arrays(flat, type=type)
    if pa.types.is_large_list(type):
        return pa.LargeListArray.from_arrays(as_arrow(offsets), flat, type=type)
    if pa.types.is_large_list_view(type):
        return pa.LargeListViewArray.from_arrays(as_arrow(offsets[:-1]), as_arrow(np.diff(offsets)), flat, type=type)
    narrow = offsets.astype(np.int32)
    if pa.types.is_list_view(type):
        return pa.ListViewArray.from_arrays(as_arrow(narrow[:-1]), as_arrow(np.diff(narrow)), flat, type=type)
    return pa.ListArray.from_arrays(as_arrow(narrow), flat, type=type)


def flattened(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The items of lists of whatever layout, and where each list begins and ends, i64[B+1]; a null is an empty one."""
    lengths = as_numpy(call("list_value_length", lists), null=0)
    return call("list_flatten", lists), offsets_of(lengths)


LOG_PROBS = "a list of floats per row"
MASK = "a list of 0/1 or booleans per row"
REWARD = "one number per row"
ADVANTAGES = "one number per row, or a list of numbers per row"
KEY = "one value per row, such as a number, a string or a date"


def example(type: pa.DataType) -> Any:
    """A value of a type, as JSON would have it: of nested types to look into."""
    if is_.is_struct(type):
        return {type.field(i).name: example(type.field(i).type) for i in range(type.num_fields)}
    if is_list(type):
        return [example(type.value_type)]
    return 0.5 if is_.is_floating(type) else None


def holds_log_probs(type: pa.DataType) -> bool:
    """A list, of whatever layout, of float16, 32 or 64."""
    return is_list(type) and is_.is_floating(type.value_type)


def holds_mask(type: pa.DataType) -> bool:
    """A list of booleans, integers or floats; that they are 0 and 1 is checked as they are read."""
    return is_list(type) and holds_reward(type.value_type)


def holds_reward(type: pa.DataType) -> bool:
    """A number or a boolean; null where every row so far is."""
    return any(test(type) for test in (is_.is_integer, is_.is_floating, is_.is_boolean, is_.is_null))


def holds_advantages(type: pa.DataType) -> bool:
    """A number, or a list of numbers."""
    item = type.value_type if is_list(type) else type
    return holds_reward(item) and not is_.is_boolean(item)


def holds_token_ids(type: pa.DataType) -> bool:
    """A list of whole numbers, or of doubles, as which JSON lines are read."""
    return is_list(type) and (is_.is_integer(type.value_type) or is_.is_float64(type.value_type))


def holds_kept_sets(type: pa.DataType) -> bool:
    """A number for each token, a list of ids for each, or an object of numbers."""
    if is_.is_struct(type):
        return type.num_fields > 0 and all(_holds_numbers(type.field(i).type) for i in range(type.num_fields))
    return holds_token_ids(type) or (is_list(type) and holds_token_ids(type.value_type))


def holds_kept_parts(type: pa.DataType) -> bool:
    """A list of numbers, or a list of such lists."""
    return is_list(type) and (holds_mask(type) or holds_mask(type.value_type))


def _holds_numbers(type: pa.DataType) -> bool:
    """A list of numbers, or 32-bit numbers as bytes or in base64."""
    tests = (is_.is_binary, is_.is_large_binary, is_.is_string, is_.is_large_string, is_.is_null)
    return holds_kept_parts(type) or any(test(type) for test in tests)


def holds_heads(type: pa.DataType) -> bool:
    """A list of numbers for each token."""
    return is_list(type) and holds_mask(type.value_type)


def holds_key(type: pa.DataType) -> bool:
    """Whatever is one value: no list, no map, no object, no months and days at once."""
    if is_.is_dictionary(type) or is_.is_run_end_encoded(type):
        return holds_key(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return holds_key(type.storage_type)
    return not (is_.is_nested(type) or is_.is_interval(type))


def is_list(type: pa.DataType) -> bool:
    """A list of whatever layout."""
    views = is_.is_list_view(type) or is_.is_large_list_view(type)
    return views or is_.is_list(type) or is_.is_large_list(type) or is_.is_fixed_size_list(type)


R = TypeVar("R", pa.Table, pa.RecordBatch)


SLICE_BYTES = 1 << 12
"""What Arrow picks by index in the time that it takes to cut out one run of rows, which it then copies at once."""


def take(rows: R, indices: NDArray[np.int64]) -> R:
    """These rows, in order."""
    firsts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
    if not len(firsts) or len(firsts) > rows.nbytes // SLICE_BYTES:
        with suppress(pa.ArrowNotImplementedError):  # of string_view and binary_view, wherever in a column they are
            return call("take", rows, as_arrow(indices))
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    runs = zip(indices[firsts].tolist(), np.diff(firsts, append=len(indices)).tolist(), strict=True)
    joined = pa.concat_tables([table.slice(first, n) for first, n in runs] or [table.slice(0, 0)])
    return rows.from_arrays([column.combine_chunks() for column in joined.columns], schema=rows.schema)


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
