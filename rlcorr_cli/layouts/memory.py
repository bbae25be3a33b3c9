"""Batches in memory, taken apart: what an object holds by name (`held`), and its tensors as arrays.

No framework is imported.  An object is known by what it has: `non_tensor_batch` is a DataProto's, `batch_size` beside
`keys` a TensorDict's, and any other has its attributes.  A list of objects holds a row in each, or, where they have
tensors of two dimensions, a batch in each.  A packed batch comes apart at its `cu_seqlens`.  Which framework's batch it
is, the names tell (`table.BATCHES`).

Tensors of this machine are not copied.  `HostMemory` does that for one who keeps a batch longer than its trainer does:
into memory that is used again for each batch, because new pages take longer than the copy itself.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import Held

Array = NDArray[Any]
BOUNDS = "cu_seqlens"
NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}
"""What a copy of many values is kept as."""
LARGEST = 1 << 31


def held(batch: Any) -> Held | None:
    """What a batch holds; None of what holds nothing by name."""
    if isinstance(batch, Held):
        return batch
    if isinstance(batch, (list, tuple)):
        rows = [row for row in map(_by_name, batch) if row is not None]
        if not rows or len(rows) < len(batch):
            return None
        sizes = [next((len(value) for value in row.values() if getattr(value, "ndim", 0) == 2), None) for row in rows]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}  # None where a row lacks it
        if None not in sizes:
            there = {name: values for name, values in columns.items() if any(value is not None for value in values)}
            columns = {name: _joined(values, sizes) for name, values in there.items()}
        return Held(values=columns)
    values = _by_name(batch)
    facts = (getattr(batch, name, None) for name in ("meta_info", "metadata"))
    known = next((each for each in facts if isinstance(each, Mapping)), {})
    return None if values is None else Held(values=_unpacked(values), facts=known)


def _joined(values: list[Any], sizes: list[Any]) -> Any:
    """What batches of so many rows hold by one name, as one: tensors filled up with 0 on the right."""
    arrays = [array for value in values if (array := as_array(value)) is not None and array.ndim == 2]
    if len(arrays) == len(values):
        width = max(array.shape[1] for array in arrays)
        return np.concatenate([np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays])
    rows = [as_rows(value) for value in values]
    is_of_rows = all(of is not None and len(of) == n for of, n in zip(rows, sizes, strict=True))
    return [row for of in rows for row in of or ()] if is_of_rows else values


def _by_name(batch: Any) -> Mapping[str, Any] | None:
    if isinstance(batch, Mapping):
        return {str(name): value for name, value in batch.items()}
    others = getattr(batch, "non_tensor_batch", None)
    if isinstance(others, Mapping):
        return {**(_by_name(batch.batch) or {}), **others}
    if hasattr(batch, "keys") and hasattr(batch, "batch_size"):
        return {name: batch.get(name) for name in batch.keys() if isinstance(name, str)}  # noqa: SIM118
    fields = getattr(batch, "__struct_fields__", None)
    if isinstance(fields, tuple):  # msgspec's
        return {name: getattr(batch, name) for name in fields}
    return vars(batch) if hasattr(batch, "__dict__") and not isinstance(batch, type) else None


def _unpacked(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the sequences of a packed batch as rows: what has as many values as all of them together is cut
    where cu_seqlens, [0, end of the first, end of the second, ...], says that each begins."""
    bounds = as_array(values.get(BOUNDS))
    if bounds is None:
        return values
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or not len(bounds) or bounds[0] or np.any(np.diff(bounds) < 0):
        message = f"{BOUNDS} of the batch does not tell where its sequences end."
        raise DataError(message, "It is [0, end of the first, end of the second, ...], as flash attention takes it.")
    n_tokens, places = int(bounds[-1]), [*pairwise(bounds.tolist())]
    rows: dict[str, Any] = {}
    for name, value in values.items():
        is_packed = getattr(value, "shape", ()) in ((n_tokens,), (1, n_tokens)) and n_tokens != len(places)
        array = as_array(value) if is_packed else None
        rows[name] = value if array is None else [array.reshape(-1)[start:end] for start, end in places]
    return {name: value for name, value in rows.items() if name != BOUNDS}


def is_numbers(values: Any) -> bool:
    """Whether it is a tensor or an array, or a list that begins with a number, a tensor or another list."""
    if isinstance(values, (list, tuple)):
        return bool(values) and (isinstance(values[0], int | float) or is_numbers(values[0]))
    return isinstance(values, np.ndarray) or hasattr(values, "detach")


def as_array(values: Any) -> Array | None:
    """A NumPy array, a tensor of torch or what makes one (tinker's TensorData) as an array, of float32 where it was
    bfloat16; None of anything else."""
    if isinstance(values, np.ndarray):
        return values
    values = values.to_torch() if hasattr(values, "to_torch") else values
    if not hasattr(values, "detach") or getattr(values, "is_nested", False):
        return None
    tensor = values.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def as_rows(values: Any) -> list[Any] | None:
    """A value for each row, a list of numbers as an array where it was a tensor; None of one value for all rows."""
    if getattr(values, "is_nested", False):
        values = values.unbind()
    elif hasattr(values, "tolist") and (as_array(values) is None or values.ndim < 2):
        values = values.tolist()  # also an array of objects, and tensordict's list of what is no tensor
    elif isinstance(values, np.ndarray):
        values = [*values]
    return [_row(value) for value in values] if isinstance(values, (list, tuple)) else None


def _row(value: Any) -> Any:
    array = as_array(value)
    if array is None:
        return value.item() if isinstance(value, np.generic) else value
    return array if array.ndim else array.item()


class HostMemory:
    """Copies of one batch's tensors, by name; those of the next take their place."""

    def __init__(self) -> None:
        self._pages: dict[str, Array] = {}

    def copied(self, name: str, values: Any) -> Any:
        """Values that stay what they are when their owner overwrites them: what has a value for each token in 32 bits,
        where whole numbers fit; rows of lists as a list."""
        array = as_array(values)
        rows = None if array is not None and array.dtype != object else as_rows(values)
        if rows is None:
            return values if array is None else array.copy() if array.ndim < 2 else self._copy(name, array)
        if not rows or not all(isinstance(row, np.ndarray) for row in rows):
            return rows
        return [self._copy(f"{name} {number}", row) for number, row in enumerate(rows)]

    def _copy(self, name: str, array: Array) -> Array:
        kept = array.dtype if array.dtype == np.int64 and not _fits(array) else NARROW.get(array.dtype, array.dtype)
        n_bytes = array.size * kept.itemsize
        if name not in self._pages or len(self._pages[name]) < n_bytes:
            self._pages[name] = np.empty(n_bytes, np.uint8)
        place = self._pages[name][:n_bytes].view(kept).reshape(array.shape)
        np.copyto(place, array, casting="unsafe")
        return place


def _fits(array: Array) -> bool:
    """Whether whole numbers fit in 32 bits; of numbers from 0 up all bits together say so, in one pass."""
    bits = int(np.bitwise_or.reduce(array, axis=None))
    return 0 <= bits < LARGEST or (bits < 0 and array.min() >= -LARGEST and array.max() < LARGEST)
