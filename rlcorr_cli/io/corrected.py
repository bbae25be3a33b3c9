"""Corrected rows: a portion as read, with what was decided about it written in.

Every column comes through as it was, in order; only the mask column changes (it is added where there was none).  The
columns of ADDED follow.  Rows of Parquet are Arrow tables, rows of JSON lines the objects of their lines.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.batch import Decision
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.batches import CheckedRows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.duplicates import DRAW

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

Rows = pa.Table | list[dict[str, Any]]
"""Whole rows on their way to an output."""


def check_added(available: Sequence[str]) -> None:
    """Refuse a dump that already has one of the columns that would be added."""
    taken = [name for name in REFUSED if name in available]
    if taken:
        raise DataError(
            f"The dump already has {' and '.join(taken)}, which filter adds.",
            "Filter the dump it was made from, or rename these columns first.",
        )


def corrected(rows: CheckedRows, decision: Decision, roles: Roles, *, weights: bool = True) -> Rows:
    """All of the rows.  weights: whether to write them, which rows that are drawn by their weights go without."""
    if rows.objects is not None:
        return _objects(rows, rows.objects, decision, roles, weights)
    return _table(rows, decision, roles, weights)


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


def _table(rows: CheckedRows, decision: Decision, roles: Roles, weights: bool) -> pa.Table:
    table, offsets = pa.Table.from_batches([rows.data]), rows.offsets
    keep = _over_all(decision.keep, rows, np.bool_)
    if roles.mask is None:
        before = _lists(pa.list_(pa.int8()), offsets, np.ones(int(offsets[-1]), np.int8))
        table = table.append_column(MASK, _lists(pa.list_(pa.int8()), offsets, keep.astype(np.int8)))
    else:
        before = rows.data.column(roles.mask)
        index = table.schema.get_field_index(roles.mask)
        changed = _lists(before.type, offsets, keep)
        table = table.set_column(index, table.schema.field(index), changed)
    if weights and decision.weights is not None:
        per_token = _over_all(decision.weights, rows, np.float32)
        table = table.append_column(WEIGHTS, _lists(pa.list_(pa.float32()), offsets, per_token))
    if weights:
        table = table.append_column(ROW_WEIGHT, pa.array(decision.row_weights))
    table = table.append_column(BEFORE, before)
    kept = decision.kept_fraction
    table = table.append_column(KEPT, pa.array(kept, mask=np.isnan(kept)))
    return table.append_column(REJECTED_BY, pa.array(_names(decision), pa.list_(pa.string())))


def _objects(
    rows: CheckedRows, objects: list[dict[str, Any]], decision: Decision, roles: Roles, weights: bool
) -> list[dict[str, Any]]:
    keep = _split(_over_all(decision.keep, rows, np.bool_), rows.offsets)
    per_token = None
    if weights and decision.weights is not None:
        per_token = _split(_over_all(decision.weights, rows, np.float32), rows.offsets)
    mask, names, kept = roles.mask or MASK, _names(decision), decision.kept_fraction
    for i, row in enumerate(objects):
        before: list[Any] = row[mask] if roles.mask else [1] * len(keep[i])
        row[mask] = [value if stays else value.__class__(0) for value, stays in zip(before, keep[i], strict=True)]
        if per_token is not None:
            row[WEIGHTS] = per_token[i]
        if weights:
            row[ROW_WEIGHT] = float(decision.row_weights[i])
        row[BEFORE] = before
        row[KEPT] = None if np.isnan(kept[i]) else float(kept[i])
        row[REJECTED_BY] = names[i]
    return objects


def _over_all(values: NDArray[Any], rows: CheckedRows, dtype: Any) -> NDArray[Any]:
    """Values of valid tokens at their places among all tokens, 0 elsewhere."""
    if rows.valid is None:
        return values.astype(dtype)
    flat = np.zeros(len(rows.valid), dtype)
    flat[rows.valid] = values
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


def _names(decision: Decision) -> list[list[str]]:
    """Which rejections took each row, or tokens of it."""
    names: list[list[str]] = [[] for _ in decision.n_kept]
    for name, rows in decision.rejected.items():
        for i in np.flatnonzero(rows).tolist():
            names[i].append(name)
    return names


def _split(values: NDArray[Any], offsets: NDArray[np.int64]) -> list[list[Any]]:
    flat = values.tolist()
    return [flat[a:b] for a, b in pairwise(offsets.tolist())]
