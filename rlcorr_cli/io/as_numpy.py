"""Arrow's numbers as NumPy's and back, and texts, without a detour.

pyarrow's own `to_numpy` and `array` look for pandas, and where it is installed import it: half a second and 60 MB, at
the start of every command, for nothing.  The buffers are what they would return.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_
from numpy.typing import NDArray

from rlcorr_cli.io.functions import call


def as_numpy(values: pa.Array | pa.ChunkedArray, null: float | None = None) -> NDArray[Any]:
    """Numbers or booleans in their own width, not to be written to.  null: what stands for one; None: there is none."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [as_numpy(chunk, null) for chunk in values.chunks]
        return np.concatenate(chunks) if chunks else np.empty(0, _dtype(values.type))
    if values.null_count and null is None:
        raise ValueError("a null is no number")
    numbers = _numbers(values)
    if not values.null_count:
        return numbers
    return np.where(_numbers(call("is_valid", values)), numbers, numbers.dtype.type(null))


def _numbers(values: pa.Array) -> NDArray[Any]:
    """The data buffer; what stands at a null is anything."""
    if is_.is_null(values.type):
        return np.zeros(len(values))
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, _dtype(values.type))
    if is_.is_boolean(values.type):
        first, last = values.offset, values.offset + len(values)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=last, bitorder="little")
        return bits[first:].astype(np.bool_)
    dtype = _dtype(values.type)
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


def as_indices(rows: NDArray[np.int64]) -> pa.Array:
    """Which rows to take."""
    return as_arrow(rows.astype(np.int64, copy=False))


def as_lists(type: pa.DataType, offsets: NDArray[np.int64], values: NDArray[Any]) -> pa.Array:
    """A list column of any list type over flat values; flags become 1 and 0 in the column's own unit."""
    if pa.types.is_null(type.value_type):
        flat = pa.nulls(len(values))
    else:
        flat = as_arrow(values.astype(type.value_type.to_pandas_dtype(), copy=False))
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


def _dtype(type: pa.DataType) -> np.dtype[Any]:
    return np.dtype(type.to_pandas_dtype())
