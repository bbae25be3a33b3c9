"""Tables in memory as dumps: what a notebook or a trainer holds.

They are anything with `__arrow_c_stream__`, data sets of Hugging Face, lists of rows, and mappings of padded arrays.

Such a table goes down to its reader in the place of a path.  It *is* a path, a text that carries the table: so nothing
on the way has to tell the two apart, and errors name it like a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.layouts.table import batch_layout
from rlcorr_cli.reading.whole_rows import OriginalRows

Table: TypeAlias = pa.Table
NAME = "<table in memory>"
LAY_OUT = "Give each column as [rows] or [rows, tokens], padded ones with a response_mask, or as a list of its rows."


class InMemory(str):
    """The name of a table that is in memory, and the table."""

    table: pa.Table
    notes: tuple[str, ...]

    def __new__(cls, table: pa.Table, notes: tuple[str, ...] = ()) -> "InMemory":
        """`table`: its columns are read where they lie.  notes: what its reader should know, in sentences."""
        name = super().__new__(cls, NAME)
        name.table, name.notes = table, notes
        return name


def in_memory(value: Any) -> InMemory | None:
    """A table's name; None of what is no table.

    A mapping has a column for each key: arrays or tensors of any device, [B] a value a row and [B, T] tokens, padded
    as response_mask tells; lists of lists or of tensors are ragged rows.  Its arrays are not copied where they lie in
    this memory.  A batch of a framework's trainer is known by its keys.  A list of mappings holds a row each.
    """
    if type(value).__module__.startswith("polars.") and hasattr(value, "collect"):
        value = value.collect()  # a LazyFrame
    if hasattr(value, "__arrow_c_stream__"):
        return InMemory(pa.table(value))
    if _is_dataset(value):
        return InMemory(value.with_format("arrow")[:])
    if isinstance(value, (list, tuple)) and value and all(isinstance(row, Mapping) for row in value):
        names = dict.fromkeys(name for row in value for name in row)
        value = {name: [row.get(name) for row in value] for name in names}  # null where a row lacks the key
    if not isinstance(value, Mapping):
        return None
    if splits := [str(name) for name, split in value.items() if _is_dataset(split)]:
        message = f"The table in memory has {len(splits)} splits: {', '.join(splits)}."
        raise UsageError(message, f'Take one, such as dataset["{splits[0]}"].')
    if not value:
        raise UsageError("The table in memory has no columns.", LAY_OUT)
    notes: tuple[str, ...] = ()
    known = batch_layout(value)
    if known is not None:  # a framework's own batch
        name, layout = known
        value, notes = layout.columns(value), (f"read as {name}, {layout.title} (keys {', '.join(layout.keys)}).",)
    columns = {str(name): _column_in_memory(str(name), column) for name, column in value.items()}
    sizes = {len(column) for column in columns.values()}
    if len(sizes) > 1:
        lengths = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
        raise DataError(f"The table in memory has columns of different lengths: {lengths}.", LAY_OUT)
    return InMemory(pa.table(columns), notes)


def one_table(portions: Sequence[OriginalRows]) -> Table:
    """Rows in order, at least one portion of them, as one table."""
    return pa.concat_tables([rows.as_table(None) for rows in portions])


def _is_dataset(value: Any) -> bool:
    """Whether it is a Dataset of Hugging Face's `datasets`, which is not imported to find out."""
    return type(value).__module__.startswith("datasets.") and hasattr(value, "with_format") and hasattr(value, "select")


def _column_in_memory(name: str, values: Any) -> pa.Array:
    array = _as_array(values)
    if array is None:
        try:
            if isinstance(values, (list, tuple)):  # a ragged column, of which a row may be a tensor
                arrays = [(row, _as_array(row)) for row in values]
                values = [row if of_row is None else of_row for row, of_row in arrays]
            return pa.array(values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"{name} of the table in memory is not a column: {error}.", LAY_OUT) from error
    if array.ndim == 1:
        return pa.array(array)
    if array.ndim != 2:
        raise DataError(f"{name} of the table in memory has {array.ndim} dimensions.", LAY_OUT)
    rows, tokens = array.shape
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * tokens), flat)


def _as_array(values: Any) -> NDArray[Any] | None:
    """A NumPy array or a tensor of torch as an array; None of anything else."""
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "detach"):
        return None
    tensor = values.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
