"""Tables in memory as dumps: what a notebook or a trainer holds.

They are anything with `__arrow_c_stream__`, data sets of Hugging Face, lists of rows, mappings of padded, ragged or
packed arrays, and trainers' batches of whatever class (`layouts/memory.py`, `layouts/table.py: BATCHES`).

Such a table goes down to its reader in the place of a path.  It *is* a path, a text that carries the table: so nothing
on the way has to tell the two apart, and errors name it like a file.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.layouts.layout import BatchLayout, Held
from rlcorr_cli.layouts.memory import as_array_or_rows, held, is_numbers
from rlcorr_cli.layouts.table import batch_layout
from rlcorr_cli.reading.arrow_values import as_arrow
from rlcorr_cli.reading.batch import InMemory
from rlcorr_cli.reading.columns import candidates, first_names
from rlcorr_cli.reading.schema import KNOWN
from rlcorr_cli.reading.whole_rows import OriginalRows

Table: TypeAlias = pa.Table
LAY_OUT = "Give each column as [rows] or [rows, tokens], padded ones with a response_mask, or as a list of its rows."


def in_memory(value: Any) -> InMemory | None:
    """A table's name; None of what is no table.

    A mapping has a column for each key: arrays or tensors of any device, [B] a value a row and [B, T] tokens, padded
    as response_mask tells; lists of lists or of tensors are ragged rows; packed tensors are cut by cu_seqlens.  Its
    arrays are not copied where they lie in this memory.  A batch of a framework's trainer, of whatever class, is known
    by its keys.  A list of mappings holds a row each.
    """
    if type(value).__module__.startswith("polars.") and hasattr(value, "collect"):
        value = value.collect()  # a LazyFrame
    if hasattr(value, "__arrow_c_stream__"):
        return InMemory(pa.table(value))
    if _is_dataset(value):
        return InMemory(value.with_format("arrow")[:])
    if isinstance(value, Mapping) and (splits := [str(name) for name, split in value.items() if _is_dataset(split)]):
        message = f"The table in memory has {len(splits)} splits: {', '.join(splits)}."
        raise UsageError(message, f'Take one, such as dataset["{splits[0]}"].')
    if isinstance(value, Mapping) and not [*value.keys()]:  # a TensorDict is neither true nor false
        raise UsageError("The table in memory has no columns.", LAY_OUT)
    parts = held(value)
    if parts is None:
        return None
    tables, notes = list[Table](), dict[str, None]()
    for part in parts:
        name, layout = batch_layout(part) or ("", None)
        if layout is not None:
            notes[f"read as {name}, {layout.title} (keys {', '.join(layout.keys)})."] = None
        columns = as_columns(value, part) if layout is None else _of_framework(part, name, layout)
        if columns is None:
            return None
        tables.append(as_table(columns))
    try:
        return InMemory(pa.concat_tables(tables, promote_options="permissive"), tuple(notes))
    except pa.ArrowException as error:
        raise DataError(f"The batches of the list differ: {error}.", "Give them one by one.") from error


def _of_framework(batch: Held, name: str, layout: BatchLayout) -> Mapping[str, Any]:
    try:
        return layout.columns(batch)
    except DataError as error:
        message = f"The batch in memory, read as {name}, {layout.title}: {error.what}"
        raise type(error)(message if error.what.startswith("its ") else error.what, error.do) from error


def as_columns(value: Any, batch: Held) -> Mapping[str, Any] | None:
    """The columns of what is of no framework: all of a mapping, or of rows that are mappings; of other objects those
    that are known by name, where the rollout's log-probs are among them.  None of what is no batch at all."""
    rows = value if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(row, (Mapping, Held)) for row in rows):
        return batch.values
    if candidates("rollout_log_probs", [*batch.values], {}):
        return {name: values for name, values in batch.values.items() if name in KNOWN and values is not None}
    if all(isinstance(row, (str, PurePath)) for row in rows) or not any(map(is_numbers, batch.values.values())):
        return None
    kind = f"{'A list' if rows is value else 'A batch'} of {type(rows[0]).__name__}"
    message = f"{kind} is of no trainer that is known; it holds {first_names(batch.values)}."
    raise DataError(message, f"Give a mapping of rollout_log_probs, old_log_probs and response_mask. {LAY_OUT}")


def as_table(columns: Mapping[str, Any]) -> Table:
    """Columns of as many rows each."""
    arrays = {str(name): _column_in_memory(str(name), column) for name, column in columns.items()}
    if len({len(column) for column in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column):,}" for name, column in arrays.items())
        raise DataError(f"The table in memory has columns of different lengths: {lengths}.", LAY_OUT)
    return pa.table(arrays)


def one_table(portions: Sequence[OriginalRows]) -> Table:
    """Rows in order, at least one portion of them, as one table."""
    return pa.concat_tables([rows.as_table(None) for rows in portions])


def _is_dataset(value: Any) -> bool:
    """Whether it is a Dataset of Hugging Face's `datasets`, which is not imported to find out."""
    return type(value).__module__.startswith("datasets.") and hasattr(value, "with_format") and hasattr(value, "select")


def _column_in_memory(name: str, values: Any) -> pa.Array:
    array = as_array_or_rows(values)
    if not isinstance(array, np.ndarray):
        lists = _numbers_of_rows(array)
        if lists is not None:
            return lists
        try:
            return pa.array(values if array is None else array)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"{name} of the table in memory is not a column: {error}.", LAY_OUT) from error
    to_arrow = as_arrow if array.dtype.kind in "biuf" else pa.array
    if array.ndim == 1:
        return to_arrow(array)
    if array.ndim != 2:
        raise DataError(f"{name} of the table in memory has {array.ndim} dimensions.", LAY_OUT)
    rows, tokens = array.shape
    flat = to_arrow(np.ascontiguousarray(array).reshape(-1))
    return pa.ListArray.from_arrays(as_arrow(np.arange(rows + 1, dtype=np.int32) * tokens), flat)


def _numbers_of_rows(rows: list[Any] | None) -> pa.Array | None:
    """Rows that are arrays of numbers of one kind, as lists; None of others."""
    if not rows or not all(
        isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype == rows[0].dtype for row in rows
    ):
        return None
    if rows[0].dtype.kind not in "biuf":
        return None
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(as_arrow(ends), as_arrow(np.concatenate(rows)))
