"""Kept sets of a truncated sampler -> among how many tokens each was chosen, and how much each policy gives to these.

A sampler with top-p, top-k or min-p keeps a set K of tokens and draws from it.  Dumps hold K in several forms: a size
for each token; a list of ids for each; an object {ids, counts, logprobs} (prime-rl) or {token_ids, offsets} (vLLM),
whose parts are lists, bytes of 32-bit numbers, or these in base64; or offsets beside a column of ids (miles).

Where the log-probs of all of K are there, in columns of their own or in top-k heads, the log of their sum is what a
policy gives to K: less that, its log-probs are over K.
"""

import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_numpy, call, cast, flattened, is_list
from rlcorr_cli.reading.heads import MOST_IDS, Floats, Index, TokenLists, coded_pairs, whole
from rlcorr_cli.totals.flat import offsets_of

LOG_ROUNDING = 1e-3
"""A set of more than e to this is no distribution's."""
IDS, COUNTS, OFFSETS, LOGPS = ("ids", "token_ids"), ("counts",), ("offsets",), ("logprobs", "log_probs")
"""Keys of a kept set's object."""


@frozen
class KeptSets:
    """sizes: i64[T], -1 of a token whose set is unknown.  rollout, train: f64[T], the log of what each policy gives to
    a token's set, NaN where that is unknown.  None where no token's is known."""

    sizes: Index | None = None
    rollout: Floats | None = None
    train: Floats | None = None


@np.errstate(all="ignore")
def kept_sets(
    sets: pa.Array | None,
    parts: Sequence[pa.Array | None],
    heads: Sequence[TokenLists | None],
    offsets: Index,
    *,
    is_offsets: bool = False,
) -> KeptSets:
    """Of the T tokens of some rows, which begin and end at `offsets`.

    sets: the column of kept sets, in any form; of offsets alone if is_offsets.  parts: columns of their ids, and of
    their log-probs under rollout and training, in the ids' order.  heads: as of `head_distances`.  Of a row of another
    number of tokens, or whose parts do not fit each other, nothing is known.
    """
    if sets is None:
        return KeptSets()
    sizes, ids, rollout = _read(sets, is_offsets)
    beside = [None if column is None else _numbers(column) for column in parts]
    ids, rollout, train = ids or beside[0], rollout or beside[1], beside[2]
    lengths = np.diff(offsets)
    fits = sizes.lengths == lengths
    of_tokens = np.full(int(offsets[-1]), -1, np.int64)
    of_tokens[np.repeat(fits, lengths)] = np.maximum(whole(sizes.of(fits)), -1)
    if not (of_tokens >= 0).any():
        return KeptSets()
    members = _Members.of(of_tokens, offsets)
    head_q, head_p, of_q, of_p = heads or (None,) * 4
    by_rollout = members.log_sums(rollout, ids, head_q, of_q)
    by_train = members.log_sums(train, ids, head_p, of_q if of_p is None else of_p)
    return KeptSets(of_tokens, by_rollout, by_train)


@frozen
class _Flat:
    """The numbers of each row, one after another, and where each row's begin and end: i64[B + 1]."""

    values: NDArray[Any]
    ends: Index

    @property
    def lengths(self) -> Index:
        return np.diff(self.ends)

    def of(self, rows: NDArray[np.bool_]) -> NDArray[Any]:
        """Those of some rows."""
        return self.values[np.repeat(rows, self.lengths)]


@frozen
class _Members:
    """The tokens of each kept set, one after another.  sizes: i64[T].  token: whose set each is in.  totals: i64[B]."""

    sizes: Index
    token: Index
    totals: Index

    @classmethod
    def of(cls, sizes: Index, offsets: Index) -> "_Members":
        """Of sets of these sizes, -1 of an unknown one."""
        starts = offsets_of(np.maximum(sizes, 0))
        return cls(sizes, np.repeat(np.arange(len(sizes)), np.diff(starts)), np.diff(starts[offsets]))

    def log_sums(
        self, logps: _Flat | None, ids: _Flat | None, head: TokenLists | None, of_head: TokenLists | None
    ) -> Floats | None:
        """The log of each set's summed probabilities, by its members' log-probs or, without them, by a head and its
        ids, of the sets that are all in it; NaN of unknown ones, None where all are unknown."""
        if logps is not None:
            token, probs = self._fitting(logps)
            probs = np.exp(probs)
        elif ids is not None and head is not None and of_head is not None:
            token, probs = self._in_head(ids, head, of_head)
        else:
            return None
        sums, known = np.bincount(token, probs, len(self.sizes)), np.bincount(token, minlength=len(self.sizes))
        logs = np.where((known == self.sizes) & (known > 0), np.log(sums), np.nan)
        logs = np.where(logs <= LOG_ROUNDING, np.minimum(logs, 0.0), np.nan)
        return logs if np.isfinite(logs).any() else None

    def _fitting(self, flat: _Flat) -> tuple[Index, NDArray[Any]]:
        """Whose set each number is of, and the numbers, of rows that have as many as their sets have members."""
        fits = flat.lengths == self.totals
        return self.token[np.repeat(fits, self.totals)], flat.of(fits)

    def _in_head(self, ids: _Flat, head: TokenLists, of_head: TokenLists) -> tuple[Index, NDArray[Any]]:
        """Whose set the members that are in the head are of, and their probabilities."""
        if len(of_head.offsets) != len(self.sizes) + 1 or not np.array_equal(head.offsets, of_head.offsets):
            return np.zeros(0, np.int64), np.zeros(0)
        members = coded_pairs(*self._fitting(ids))
        both, _, at = np.intersect1d(members, coded_pairs(of_head.token, of_head.values), return_indices=True)
        return both[both >= 0] // MOST_IDS, np.exp(head.values[at[both >= 0]])


def _read(sets: pa.Array, is_offsets: bool) -> tuple[_Flat, _Flat | None, _Flat | None]:
    """The sizes, and the ids and the rollout's log-probs where an object has them."""
    if not pa.types.is_struct(sets.type):
        if is_list(sets.type.value_type):
            inner, ends = flattened(sets)
            return _Flat(as_numpy(call("list_value_length", inner), null=-1), ends), _numbers(sets), None
        numbers = _numbers(sets)
        return _differences(numbers) if is_offsets else numbers, None, None
    fields = dict(zip(sets.type.names, sets.flatten(), strict=True))

    def part(names: tuple[str, ...], dtype: str) -> _Flat | None:
        column = next((fields[name] for name in names if name in fields), None)
        return None if column is None else _numbers(column, dtype)

    counts, offsets = part(COUNTS, "<i4"), part(OFFSETS, "<i4")
    if counts is None:
        counts = _Flat(np.zeros(0), np.zeros(len(sets) + 1, np.int64)) if offsets is None else _differences(offsets)
    return counts, part(IDS, "<i4"), part(LOGPS, "<f4")


def _numbers(column: pa.Array, dtype: str = "<i4") -> _Flat:
    """The numbers of each row: of lists, of lists of lists, of bytes or of base64; none where there are none."""
    if is_list(column.type):
        items, ends = flattened(column)
        if is_list(items.type):
            items, inner_ends = flattened(items)
            ends = inner_ends[ends]
        return _Flat(as_numpy(cast(items, pa.float64(), lossy=True), null=np.nan), ends)
    rows = [np.frombuffer(_content(each, dtype), dtype) for each in column.to_pylist()]
    return _Flat(
        np.concatenate([*rows, np.zeros(0, dtype)]).astype(np.float64), offsets_of(np.array([*map(len, rows)]))
    )


def _content(value: Any, dtype: str) -> bytes:
    """Bytes of whole numbers; none of what is no such bytes."""
    if isinstance(value, str):
        try:
            value = binascii.a2b_base64(value, strict_mode=True)
        except ValueError:
            return b""
    return value if isinstance(value, bytes) and len(value) % np.dtype(dtype).itemsize == 0 else b""


def _differences(offsets: _Flat) -> _Flat:
    """The sizes that each row's offsets say, which begin at 0; -1 of those of rows that do not."""
    values, ends, lengths = offsets.values, offsets.ends, offsets.lengths
    if not len(values):
        return _Flat(values, ends)
    sizes = np.diff(values, append=0.0)
    last = np.zeros(len(values), np.bool_)
    last[ends[1:][lengths > 0] - 1] = True
    begins = values[np.minimum(ends[:-1], len(values) - 1)] == 0
    sizes = np.where(np.repeat(begins, lengths), sizes, -1)
    return _Flat(sizes[~last], offsets_of(np.maximum(lengths - 1, 0)))
