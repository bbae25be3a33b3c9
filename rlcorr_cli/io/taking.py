"""Rows by index, of any type."""

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.io.as_numpy import as_indices
from rlcorr_cli.io.functions import call

R = TypeVar("R", pa.Table, pa.RecordBatch)


def take(rows: R, indices: NDArray[np.int64]) -> R:
    """These rows, in order."""
    try:
        return call("take", rows, as_indices(indices))
    except pa.ArrowNotImplementedError:  # of string_view and binary_view, wherever in a column they are
        return rows.from_arrays([_taken(column, indices) for column in rows.columns], schema=rows.schema)


def _taken(column: pa.Array | pa.ChunkedArray, indices: NDArray[np.int64]) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    try:
        return call("take", whole, as_indices(indices))
    except pa.ArrowNotImplementedError:
        return pa.concat_arrays([whole.slice(i, 1) for i in indices.tolist()] or [whole.slice(0, 0)])
