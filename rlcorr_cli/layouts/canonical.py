"""Samples in canonical columns, as Arrow's record batches: what every layout's rows become."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.files.arrow_files import NUMPY_DTYPES
from rlcorr_cli.layouts.layout import Sample
from rlcorr_cli.layouts.tensors import Array
from rlcorr_cli.layouts.values import HINT

TYPES: dict[str, pa.DataType] = {
    "rollout_log_probs": pa.list_(pa.float64()),
    "old_log_probs": pa.list_(pa.float64()),
    "current_log_probs": pa.list_(pa.float64()),
    "ref_log_probs": pa.list_(pa.float64()),
    "response_mask": pa.list_(pa.int8()),
    "token_ids": pa.list_(pa.int64()),
    "advantages": pa.list_(pa.float64()),
    "entropies": pa.list_(pa.float64()),
    "is_masked": pa.list_(pa.float64()),
    "reward": pa.float64(),
    "step": pa.int64(),
    "group_id": pa.string(),
    "sample_id": pa.string(),
    "rollout_ids": pa.string(),
    "policy_version": pa.int64(),
    "policy_version_end": pa.int64(),
    "cached_tokens": pa.int64(),
    "total_prompt_tokens": pa.int64(),
    "spec_accept_rate": pa.float64(),
    "spec_accept_length": pa.float64(),
    "source": pa.string(),
    "split": pa.string(),
    "worker": pa.int64(),
    "source_file": pa.string(),
    "source_row": pa.int64(),
}
"""Canonical columns in the order in which they are written, with the widest type that a framework fills them with.

A layout may narrow one (`OpenedDump.types`): float32 log-probs, whole masks, a scalar advantage.
"""


def schema(columns: Iterable[str], types: Mapping[str, Any]) -> pa.Schema:
    """The columns in the canonical order, others after them, then where a row comes from."""
    named = dict.fromkeys([*columns, "source_file", "source_row"])
    ordered = [*(name for name in TYPES if name in named), *(name for name in named if name not in TYPES)]
    last = [name for name in ordered if name.startswith("source_")]
    ordered = [name for name in ordered if name not in last] + last
    return pa.schema([pa.field(name, types.get(name) or TYPES[name]) for name in ordered])


def record_batch(samples: Sequence[Sample], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema out of samples that may have more; a DataError names a column that does not fit."""
    arrays: list[pa.Array] = []
    for field in schema:
        try:
            arrays.append(_arrow_column([sample.get(field.name) for sample in samples], field.type))
        except (ValueError, TypeError, OverflowError) as error:  # NumPy's and Arrow's, of values of other kinds
            raise DataError(f"what becomes its {field.name} is not {field.type} in every row.", HINT) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def portions(samples: Iterable[Sample], tokens: int) -> Iterator[list[Sample]]:
    """Samples in order, in lists of at least so many tokens, the last of what is left."""
    portion: list[Sample] = []
    n_tokens = 0
    for sample in samples:
        portion.append(sample)
        log_probs = sample.get("rollout_log_probs")
        n_tokens += 1 if log_probs is None else len(log_probs) + 1
        if n_tokens >= tokens:
            yield portion
            portion, n_tokens = [], 0
    if portion:
        yield portion


def _arrow_column(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    if not pa.types.is_list(type):
        return pa.array([_fitting_scalar(value, type) for value in values], type)
    if pa.types.is_string(type.value_type):
        return pa.array(values, type)
    kind = NUMPY_DTYPES[type.value_type]
    lists = [None if value is None else _fitting_numbers(value, kind) for value in values]
    sizes = [0 if value is None else len(value) for value in lists]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    filled = [value for value in lists if value is not None]
    flat = _concatenated(filled, kind)
    missing = np.array([value is None for value in lists])
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, type.value_type), mask=mask)


def _concatenated(lists: Sequence[Array], kind: Any) -> Array:
    """Lists one after the other, in memory of Arrow's pool: that keeps its pages from one portion to the next, where
    NumPy would ask the system for new ones, which takes three times as long as the copy."""
    if any(numbers.dtype == object for numbers in lists):
        return np.concatenate(lists)
    n_bytes = sum(map(len, lists)) * np.dtype(kind).itemsize
    flat = np.frombuffer(pa.allocate_buffer(n_bytes), kind)
    return np.concatenate(lists, out=flat) if lists else flat


def _fitting_numbers(values: Array, kind: Any) -> Array:
    """The numbers of one list, as objects where some are null; a DataError where its column would not hold them as
    they are."""
    if values.dtype == object:
        return values
    with np.errstate(invalid="ignore"):  # of what is not finite, which is told of below
        held = values.astype(kind, copy=False)
    if np.issubdtype(kind, np.integer) and held.dtype != values.dtype and np.any(held != values):
        name = np.dtype(kind).name
        raise DataError(f"a list of whole numbers ({name}) holds {values[held != values][0]}.", "Write it again.")
    return held


def _fitting_scalar(value: Any, type: pa.DataType) -> Any:
    """One value as its column has it: what is of several types in a framework is text."""
    if value is None:
        return None
    if pa.types.is_string(type):
        if not isinstance(value, (str, bool, int, float, np.generic)):
            raise TypeError("no text")
        return value if isinstance(value, str) else str(value)
    return value.item() if isinstance(value, np.generic) else value
