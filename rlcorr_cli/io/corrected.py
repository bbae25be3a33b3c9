"""Corrected rows: a portion as read, with what was decided about it written in.

Every column comes through as it was, in order; only the mask column changes (it is added where there was none).  The
columns of ADDED follow, and COEF among them where there is an objective.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.batch import Decision
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.as_numpy import as_arrow, as_lists, as_texts
from rlcorr_cli.io.batches import CheckedRows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.duplicates import DRAW
from rlcorr_cli.io.original_rows import OriginalRows

MASK = "response_mask"
WEIGHTS, ROW_WEIGHT, BEFORE, KEPT, REJECTED_BY = ADDED = (
    "rollout_is_weights",
    "rollout_is_seq_weight",
    "response_mask_before",
    "rlcorr_kept",
    "rlcorr_rejected_by",
)

COPIED_TOKENS, MOST_COPIES = 1 << 20, 1 << 14
"""Tokens and rows of one piece of drawn rows."""
COEF = "rlcorr_coef"
REFUSED = (*ADDED, COEF, DRAW)
"""Columns that are added, so must not be there."""


def check_added(available: Sequence[str]) -> None:
    """Refuse a dump that already has one of the columns that would be added."""
    taken = [name for name in REFUSED if name in available]
    if taken:
        raise DataError(
            f"The dump already has {' and '.join(taken)}, which filter adds.",
            "Filter the dump it was made from, or rename these columns first.",
        )


def corrected(rows: CheckedRows, decision: Decision, roles: Roles, *, weights: bool = True) -> OriginalRows:
    """All of the rows.  weights: whether to write them, which rows that are drawn by their weights go without."""
    assert rows.original is not None
    keep = _over_all(decision.keep, rows, np.bool_)
    added: dict[str, pa.Array] = {}
    if weights and decision.weights is not None:
        added[WEIGHTS] = as_lists(pa.list_(pa.float32()), rows.offsets, _over_all(decision.weights, rows, np.float32))
    if weights:
        added[ROW_WEIGHT] = as_arrow(decision.row_weights)
    if decision.coefs is not None:
        with np.errstate(over="ignore"):  # beyond float32 it is infinite, and looks so
            coefs = _over_all(decision.coefs, rows, np.float32)
        added[COEF] = as_lists(pa.list_(pa.float32()), rows.offsets, coefs)
    kept = decision.kept_fraction
    verdicts = {KEPT: as_arrow(kept, ~np.isnan(kept)), REJECTED_BY: _rejected_by(decision)}
    if roles.mask is not None:
        masked = rows.original.with_columns(added).masked(roles.mask, keep, rows.offsets, before=BEFORE)
        return masked.with_columns(verdicts)
    after, before = (as_lists(pa.list_(pa.int8()), rows.offsets, flags) for flags in (keep, np.ones_like(keep)))
    return rows.original.with_columns({MASK: after, **added, BEFORE: before, **verdicts})


def drawn(rows: OriginalRows, times: NDArray[np.int64], longest: int) -> Iterator[OriginalRows]:
    """Each row as often as it was drawn, its copies numbered in DRAW; longest: tokens of the longest row.

    In pieces, because rows can be drawn any number of times.
    """
    ends = np.cumsum(times)
    starts, n_copies = ends - times, int(ends[-1]) if len(ends) else 0
    at_once = max(1, COPIED_TOKENS // max(longest, COPIED_TOKENS // MOST_COPIES))
    for first in range(0, max(n_copies, 1), at_once):
        copies = np.arange(first, min(first + at_once, n_copies))
        sources = np.searchsorted(ends, copies, side="right")
        numbers = (copies - starts[sources]).astype(np.int32)
        yield rows.take(sources).with_columns({DRAW: as_arrow(numbers)})


def _over_all(values: NDArray[Any], rows: CheckedRows, dtype: Any) -> NDArray[Any]:
    """Values of valid tokens at their places among all tokens, 0 elsewhere."""
    if rows.valid is None:
        return values.astype(dtype)
    flat = np.zeros(len(rows.valid), dtype)
    flat[rows.valid] = values
    return flat


def _rejected_by(decision: Decision) -> pa.Array:
    """Names of the rejections that took each row, or tokens of it."""
    names: list[list[str]] = [[] for _ in decision.n_kept]
    for name, rows in decision.rejected.items():
        for i in np.flatnonzero(rows).tolist():
            names[i].append(name)
    ends = np.cumsum([0, *map(len, names)], dtype=np.int32)
    return pa.ListArray.from_arrays(as_arrow(ends), as_texts(list(chain.from_iterable(names))))
