"""Corrected rows: a portion as read, with what was decided about it written in.

Every column comes through as it was, in order; only the mask column changes (it is added where there was none).  The
columns of ADDED follow.  Rows of Parquet are Arrow tables, rows of JSON lines the objects of their lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.batches import CheckedRows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.duplicates import DRAW
from rlcorr_cli.totals.histogram import Floats

MASK = "response_mask"
WEIGHTS, ROW_WEIGHT, BEFORE, KEPT, REJECTED_BY = ADDED = (
    "rollout_is_weights",
    "rollout_is_seq_weight",
    "response_mask_before",
    "rlcorr_kept",
    "rlcorr_rejected_by",
)

REFUSED = (*ADDED, DRAW)
"""Columns that are added, so must not be there."""

Flags = NDArray[np.bool_]
Rows = pa.Table | list[dict[str, Any]]
"""Whole rows on their way to an output."""


@dataclass(frozen=True)
class Decided:
    """What is written of B rows with V valid tokens.

    weights: f64[V], final, or None where the plan weights nothing.  keep: bool[V].  row_weights: f64[B], None for rows
    that were drawn by them.  kept: f64[B], share of valid tokens, NaN of none.  rejected: name -> bool[B].
    """

    weights: Floats | None
    keep: Flags
    row_weights: Floats | None
    kept: Floats
    rejected: Mapping[str, Flags]


def check_added(available: Sequence[str]) -> None:
    """Refuse a dump that already has one of the columns that would be added."""
    taken = [name for name in REFUSED if name in available]
    if taken:
        raise DataError(
            f"The dump already has {' and '.join(taken)}, which filter adds.",
            "Filter the dump it was made from, or rename these columns first.",
        )


def corrected(portion: CheckedRows, decided: Decided, roles: Roles) -> Rows:
    """The portion's rows, all of them."""
    if portion.objects is not None:
        return _objects(portion, portion.objects, decided, roles)
    return _table(portion, decided, roles)


def chosen(rows: Rows, which: NDArray[np.int64]) -> Rows:
    """Rows by index, in that order; an index may come again."""
    return [rows[i] for i in which.tolist()] if isinstance(rows, list) else rows.take(pa.array(which))


def drawn(rows: Rows, times: NDArray[np.int64]) -> Rows:
    """Each row as often as it was drawn, its copies numbered in DRAW."""
    copies = np.concatenate([np.arange(n) for n in times.tolist()] or [np.zeros(0, np.int64)])
    taken = chosen(rows, np.repeat(np.arange(len(times)), times))
    if isinstance(taken, list):
        return [{**row, DRAW: copy} for row, copy in zip(taken, copies.tolist(), strict=True)]
    return taken.append_column(DRAW, pa.array(copies, pa.int32()))


def _table(portion: CheckedRows, decided: Decided, roles: Roles) -> pa.Table:
    table, offsets = pa.Table.from_batches([portion.data]), portion.offsets
    keep = _over_all(decided.keep, portion, np.bool_)
    if roles.mask is None:
        before = _lists(pa.list_(pa.int8()), offsets, np.ones(int(offsets[-1]), np.int8))
        table = table.append_column(MASK, _lists(pa.list_(pa.int8()), offsets, keep.astype(np.int8)))
    else:
        before = portion.data.column(roles.mask)
        place = table.schema.get_field_index(roles.mask)
        changed = _lists(before.type, offsets, keep)
        table = table.set_column(place, table.schema.field(place), changed)
    if decided.weights is not None:
        weights = _over_all(decided.weights, portion, np.float32)
        table = table.append_column(WEIGHTS, _lists(pa.list_(pa.float32()), offsets, weights))
    if decided.row_weights is not None:
        table = table.append_column(ROW_WEIGHT, pa.array(decided.row_weights))
    table = table.append_column(BEFORE, before)
    table = table.append_column(KEPT, pa.array(decided.kept, mask=np.isnan(decided.kept)))
    return table.append_column(REJECTED_BY, pa.array(_names(decided), pa.list_(pa.string())))


def _objects(portion: CheckedRows, rows: list[dict[str, Any]], decided: Decided, roles: Roles) -> list[dict[str, Any]]:
    keep = _split(_over_all(decided.keep, portion, np.bool_), portion.offsets)
    weights = None
    if decided.weights is not None:
        weights = _split(_over_all(decided.weights, portion, np.float32), portion.offsets)
    mask, names = roles.mask or MASK, _names(decided)
    for i, row in enumerate(rows):
        before: list[Any] = row[mask] if roles.mask else [1] * len(keep[i])
        row[mask] = [value if stays else value.__class__(0) for value, stays in zip(before, keep[i], strict=True)]
        if weights is not None:
            row[WEIGHTS] = weights[i]
        if decided.row_weights is not None:
            row[ROW_WEIGHT] = float(decided.row_weights[i])
        row[BEFORE] = before
        row[KEPT] = None if np.isnan(decided.kept[i]) else float(decided.kept[i])
        row[REJECTED_BY] = names[i]
    return rows


def _over_all(values: NDArray[Any], portion: CheckedRows, dtype: Any) -> NDArray[Any]:
    """Values of valid tokens at their places among all tokens, 0 elsewhere."""
    if portion.valid is None:
        return values.astype(dtype)
    flat = np.zeros(len(portion.valid), dtype)
    flat[portion.valid] = values
    return flat


def _lists(type: pa.DataType, offsets: NDArray[np.int64], values: NDArray[Any]) -> pa.Array:
    """A list column of any list type over flat values; flags become 1 and 0 in the column's own unit."""
    item = type.value_type
    flat = (
        pa.array(values, pa.bool_()) if pa.types.is_boolean(item) else pa.array(values.astype(item.to_pandas_dtype()))
    )
    if pa.types.is_fixed_size_list(type):
        return pa.FixedSizeListArray.from_arrays(flat, type=type)
    if pa.types.is_large_list(type):
        return pa.LargeListArray.from_arrays(pa.array(offsets), flat, type=type)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat, type=type)


def _names(decided: Decided) -> list[list[str]]:
    names: list[list[str]] = [[] for _ in decided.kept]
    for name, rows in decided.rejected.items():
        for i in np.flatnonzero(rows).tolist():
            names[i].append(name)
    return names


def _split(values: NDArray[Any], offsets: NDArray[np.int64]) -> list[list[Any]]:
    flat = values.tolist()
    return [flat[a:b] for a, b in pairwise(offsets.tolist())]
