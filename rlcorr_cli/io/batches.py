"""From Arrow rows to Batches: flat arrays, masked tokens dropped, every value checked once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, GroupKey
from rlcorr_cli.errors import DataError
from rlcorr_cli.io.checks import ADVANTAGE_HINT, Lists, check_advantages, check_lengths, check_log_probs, kept
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.types import is_list


@dataclass(frozen=True)
class Rows:
    """Rows as read, unchecked.  where(row): how an error names one, `dump.jsonl, line 17`.

    lines: the rows' own bytes, where they are JSON lines; data then holds only the columns that are needed.
    """

    data: pa.RecordBatch
    where: Callable[[int], str]
    lines: Callable[[], list[bytes]] | None = None


@dataclass(frozen=True)
class Portion:
    """A Batch and the rows that it came from.

    data: the rows as read.  lines: their bytes, of JSON lines.  offsets: i64[B+1] into all tokens, valid or not.
    valid: bool over all tokens, None where all are.
    """

    batch: Batch
    data: pa.RecordBatch
    lines: list[bytes] | None
    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_] | None


def portions(rows: Rows, roles: Roles, batch_tokens: int) -> Iterator[Portion]:
    """The rows in order, cut where the next would pass batch_tokens; an error names the first bad row of its kind."""
    names = [*roles.log_probs, *([roles.mask] if roles.mask else [])]
    if roles.advantages and is_list(rows.data.column(roles.advantages).type):
        names.append(roles.advantages)
    lists = {name: _flat(name, rows) for name in names}
    offsets = lists[roles.rollout].offsets
    for name in names[1:]:
        check_lengths(lists[name], lists[roles.rollout])
    lines = rows.lines() if rows.lines else None
    for first, last in _cuts(offsets, batch_tokens):
        yield _portion(rows, lists, roles, first, last, lines)


def _cuts(offsets: NDArray[np.int64], batch_tokens: int) -> Iterator[tuple[int, int]]:
    first, n_rows = 0, len(offsets) - 1
    while first < n_rows:
        fitting = int(np.searchsorted(offsets, offsets[first] + batch_tokens, side="right")) - 1
        last = max(fitting, first + 1)
        yield first, last
        first = last


def _portion(
    rows: Rows, lists: dict[str, Lists], roles: Roles, first: int, last: int, lines: list[bytes] | None
) -> Portion:
    cut = {name: whole.rows(first, last) for name, whole in lists.items()}
    keep = kept(cut[roles.mask]) if roles.mask else None
    valid = {name: check_log_probs(cut[name], keep, roles.mask) for name in roles.log_probs}
    offsets = cut[roles.rollout].offsets
    n_masked = _masked_per_row(keep, offsets)
    leaf, keys = _grouped(rows, roles.keys, first, last)
    batch = Batch(
        offsets=offsets - np.concatenate([[0], np.cumsum(n_masked)]),
        train_logp=valid[roles.train],
        rollout_logp=valid[roles.rollout],
        current_logp=valid[roles.current] if roles.current else None,
        advantages=_advantages(rows, cut, roles, keep, first, last),
        n_masked=n_masked,
        reward=_reward(rows.data.column(roles.reward).slice(first, last - first)) if roles.reward else None,
        leaf=leaf,
        keys=keys,
    )
    return Portion(batch, rows.data.slice(first, last - first), lines and lines[first:last], offsets, keep)


def _flat(name: str, rows: Rows) -> Lists:
    column = rows.data.column(name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"{rows.where(row)}: {name} is null.", "Every row needs its list; write [] for a row without tokens."
        )
    # `.values` would ignore a slice, and offsets need not start at 0.
    items = column.flatten()
    lengths = pc.call_function("list_value_length", [column]).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return Lists(name, _values(items), offsets, items, rows.where)


def _values(items: pa.Array) -> NDArray[Any]:
    """Nulls become NaN, in the smallest float that has one; float16 becomes float32."""
    values = items.to_numpy(zero_copy_only=False)
    if items.null_count and values.dtype.kind != "f":
        return items.cast(pa.float32()).to_numpy(zero_copy_only=False)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _masked_per_row(keep: NDArray[np.bool_] | None, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    if keep is None:
        return np.zeros(len(offsets) - 1, np.int64)
    return np.diff(np.searchsorted(np.flatnonzero(~keep), offsets)).astype(np.int64)


def _advantages(
    rows: Rows, cut: dict[str, Lists], roles: Roles, keep: NDArray[np.bool_] | None, first: int, last: int
) -> NDArray[np.float64] | None:
    """Of every valid token; a row's one number is all its tokens'."""
    name = roles.advantages
    if name is None:
        return None
    if name in cut:
        return check_advantages(cut[name], keep)
    values = _reward(rows.data.column(name).slice(first, last - first))
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row = int(bad[0])
        given = rows.data.column(name)[first + row].as_py()
        raise DataError(f"{rows.where(first + row)}: {name} is {'null' if given is None else given}.", ADVANTAGE_HINT)
    lengths = np.diff(cut[roles.rollout].offsets)
    spread = np.repeat(values, lengths)
    return spread if keep is None else spread[keep]


def _reward(column: pa.Array) -> NDArray[np.float64]:
    return pc.fill_null(column.cast(pa.float64(), safe=False), float("nan")).to_numpy(zero_copy_only=False)


def _grouped(rows: Rows, keys: Sequence[str], first: int, last: int) -> tuple[NDArray[np.int32], tuple[GroupKey, ...]]:
    """Which group each row is in, and the groups there are; without columns all rows are one group, ()."""
    code: NDArray[np.int64] = np.zeros(last - first, np.int64)
    groups: list[GroupKey] = [()]
    for name in keys:
        try:
            codes, values = _coded(rows.data.column(name).slice(first, last - first))
        except UnicodeDecodeError as error:
            raise DataError(f"{rows.where(first)} or later: {name} is not UTF-8.", "Write the column again.") from error
        used, code = np.unique(code * len(values) + codes, return_inverse=True)
        groups = [(*groups[i // len(values)], values[i % len(values)]) for i in used.tolist()]
    return code.astype(np.int32), tuple(groups)


def _coded(column: pa.Array) -> tuple[NDArray[np.int64], list[Any]]:
    """One key column as codes into its distinct Python values; null and NaN are None."""
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_timestamp(plain.type) and plain.type.unit == "ns":
        plain = plain.cast(pa.timestamp("us", plain.type.tz), safe=False)  # Python's datetime has no nanoseconds
    encoded = plain.dictionary_encode()
    seen = [None if isinstance(v, float) and isnan(v) else v for v in encoded.dictionary.to_pylist()]
    distinct = {value: i for i, value in enumerate(dict.fromkeys([*seen, None]))}
    recode = np.array([distinct[value] for value in [*seen, None]])
    indices = pc.fill_null(encoded.indices, len(seen)).to_numpy(zero_copy_only=False)
    return recode[indices], list(distinct)
