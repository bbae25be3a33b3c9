"""Batches in memory, taken apart: what an object holds by name (`held`), and its tensors as arrays.

No framework is imported.  An object is known by what it has: `non_tensor_batch` is a DataProto's, `batch_size` beside
`keys` a TensorDict's, and any other has its attributes.  A list of objects holds a row in each, or, where their
log-probs or masks have two dimensions or they are packed, a batch in each, which has columns and a width of its own.
A packed batch comes apart at its `cu_seqlens`.  Which framework's batch it is, the names tell (`table.BATCHES`).

Tensors of this machine are not copied.  `HostMemory` does that for one who keeps a batch longer than its trainer does:
into memory that is used again for each batch, because new pages take longer than the copy itself.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import Held
from rlcorr_cli.layouts.tensors import Array

BOUNDS = "cu_seqlens"
OF_TOKENS = re.compile(r"(?!.*(topk|kept|sampling_mask)).*(log_?p|mask)")
"""Names of log-probs and masks; what has a list for each token has two dimensions in a row, too."""
NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}
"""What a copy of many values is kept as."""
LARGEST = 1 << 31
"""What whole numbers of 32 bits stay below."""


def held(batch: Any) -> Sequence[Held] | None:
    """What a batch holds, or each of a list of micro batches; None of what holds nothing by name."""
    if isinstance(batch, Held):
        return [batch]
    if not isinstance(batch, (list, tuple)):
        values = _by_name(batch)
        facts = (getattr(batch, name, None) for name in ("meta_info", "metadata"))
        known = next((fact for fact in facts if isinstance(fact, Mapping)), {})
        return None if values is None else [Held(values=_unpacked(values), facts=known)]
    if batch and all(isinstance(part, Held) for part in batch):
        return batch
    rows = [row for row in map(_by_name, batch) if row is not None]
    if not rows or len(rows) < len(batch):
        return None
    if all(map(_is_batch, rows)):
        return [part for one in batch for part in held(one) or ()]
    names = dict.fromkeys(name for row in rows for name in row)
    return [Held(values={name: [row.get(name) for row in rows] for name in names})]  # None where a row lacks it


def _is_batch(values: Mapping[str, Any]) -> bool:
    """Whether it holds many rows, not one."""
    tensors = (value for name, value in values.items() if OF_TOKENS.match(name))
    return values.get(BOUNDS) is not None or any(getattr(tensor, "ndim", 0) == 2 for tensor in tensors)


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
    where cu_seqlens, [0, end of the first, end of the second, ...], says that each begins; where these are as many as
    the sequences, too, it is a value for each sequence."""
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
    """Whether it may be a column of numbers: a tensor or an array, or a list that begins with one, a number or such a
    list."""
    if isinstance(values, (list, tuple)):
        return bool(values) and (isinstance(values[0], int | float) or is_numbers(values[0]))
    return isinstance(values, np.ndarray) or hasattr(values, "detach")


def as_array(values: Any) -> Array | None:
    """A NumPy array, a tensor of torch or what makes one (tinker's TensorData) as an array, of float32 where it was
    bfloat16; None of anything else."""
    if isinstance(values, np.ndarray):
        return values
    values = values.to_torch() if hasattr(values, "to_torch") else values
    # Of tensordict, what holds no tensors can be detached, too, and has no dtype.
    if not hasattr(values, "detach") or getattr(values, "dtype", None) is None or getattr(values, "is_nested", False):
        return None
    tensor = values.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def as_rows(values: Any) -> list[Any] | None:
    """A value for each row, Python's numbers of a tensor of one dimension, else arrays; None of one value for all."""
    if getattr(values, "is_nested", False):
        values = values.unbind()
    elif (array := as_array(values)) is not None:
        values = array.tolist() if array.ndim < 2 else [*array]
    elif hasattr(values, "tolist"):
        values = values.tolist()  # tensordict's list of what is no tensor
    return [_row(value) for value in values] if isinstance(values, (list, tuple)) else None


def as_array_or_rows(values: Any) -> Array | list[Any] | None:
    """A tensor or array of numbers as an array, other columns as a value for each row; None of one value for all."""
    array = as_array(values)
    return as_rows(values) if array is None or array.dtype == object else array


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
        """Values that stay what they are when their owner overwrites them: arrays as arrays, those of tokens in 32 bits
        where whole numbers fit; rows as a list, each copied by its kind."""
        column = as_array_or_rows(values)
        if isinstance(column, np.ndarray):
            return column.copy() if column.ndim < 2 else self._copy(name, column)
        if column is None:
            return deepcopy(values)
        return [self._copied_row(f"{name} {number}", row) for number, row in enumerate(column)]

    def _copied_row(self, name: str, row: Any) -> Any:
        if isinstance(row, np.ndarray):
            return self._copy(name, row) if row.dtype != object else deepcopy(row)
        is_flat = isinstance(row, list) and row and isinstance(row[0], int | float | str)
        return [*row] if is_flat else deepcopy(row)  # which takes long

    def _copy(self, name: str, array: Array) -> Array:
        kept = array.dtype if array.dtype == np.int64 and not _fits(array) else NARROW.get(array.dtype, array.dtype)
        n_bytes = array.size * kept.itemsize
        if name not in self._pages or len(self._pages[name]) < n_bytes:
            self._pages[name] = np.empty(n_bytes, np.uint8)
        place = self._pages[name][:n_bytes].view(kept).reshape(array.shape)
        np.copyto(place, array, casting="unsafe")
        return place


def _fits(array: Array) -> bool:
    """Whether whole numbers fit in 32 bits.  The bitwise or of numbers from 0 up is below a power of 2 where all are,
    which takes one pass; it is negative where one of them is, and then the least and the largest tell."""
    bits = int(np.bitwise_or.reduce(array, axis=None))
    return 0 <= bits < LARGEST or (bits < 0 and array.min() >= -LARGEST and array.max() < LARGEST)
