"""What stands around the tokens of checked rows: their ids, the masked ones between them, the levels of their rows, and
how far apart the two distributions of each token are.

A head is the log-probs of a token's likeliest candidates, in a dump a list for each token (`TokenLists`).  Of a
candidate that the heads of both policies have, both probabilities are known; all other tokens of the vocabulary are
taken as one, the tail.  The total variation and the KL of these coarser distributions (`head_distances`) are at most
those over the whole vocabulary, without sampling noise, and next to them where the head holds most of the mass.

A sampler with top-p, top-k or min-p keeps a set K of tokens and draws from it (`kept_sets`).  Dumps hold K in several
forms: a size for each token; a list of ids for each; an object {ids, counts, logprobs} (prime-rl) or {token_ids,
offsets} (vLLM), whose parts are lists, bytes of 32-bit numbers, or these in base64; or offsets beside a column of ids
(miles).  Where the log-probs of all of K are there, in columns of their own or in heads, the log of their sum is what a
policy gives to K: less that, its log-probs are over K.
"""

import binascii
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_numpy, call, cast, flattened, is_list, take
from rlcorr_cli.reading.batch import TokenContext
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.checks import Lists
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.names import KEPT_OFFSETS
from rlcorr_cli.reading.values import coded, coded_lags, row_keys
from rlcorr_cli.totals.flat import offsets_of, picker

N = TypeVar("N", bound=np.generic)
Index = NDArray[np.int64]
Floats = NDArray[np.float64]
LEAST_TAIL = 1e-6
"""A smaller tail is what float32 leaves of a sum that is 1."""
MOST_IDS = 1 << 31
"""No vocabulary has as many."""
MOST_WHOLE = 2.0**53
"""From it on doubles do not tell whole numbers apart."""
MOST_MASS = 1 + 1e-3
"""A head of more is no distribution's."""
LOG_ROUNDING = 1e-3
"""A set of more than e to this is no distribution's."""
IDS, COUNTS, OFFSETS, LOGPS = ("ids", "token_ids"), ("counts",), ("offsets",), ("logprobs", "log_probs")
"""Keys of a kept set's object."""


def token_context(rows: CheckedRows, roles: Roles, at: Index) -> TokenContext:
    """Of some rows of a batch, in this order, by the roles that they were read with."""
    names = dict.fromkeys([*(column for _, column in roles.levels), *roles.of_tokens.values()])
    data, prompts = take(rows.data.select(list(names)), at), dict(roles.levels).get("group_id")
    columns = {name: data.column(column) for name, column in roles.of_tokens.items()}
    lengths = np.diff(rows.offsets)[at]
    offsets = offsets_of(lengths)
    levels = {name: coded(data.column(column)) for name, column in roles.levels}
    # With how many versions each row's policy is behind its step, where both are numbers and nothing says it.
    if "lag" not in levels and {"step", "policy_version"} <= levels.keys():
        lags = coded_lags(levels["step"], levels["policy_version"])
        if None not in lags[1]:
            levels["lag"] = lags
    advantages = rows.batch.row_advantage
    token_ids, versions = (
        token_numbers(columns[name], offsets) if name in columns else None for name in ("token_ids", "versions")
    )
    heads = [
        TokenLists.of(columns[name]) if name in columns else None
        for name in ("rollout_head", "old_head", "rollout_head_ids", "old_head_ids")
    ]
    distances = head_distances(heads, offsets)
    is_offsets = roles.of_tokens.get("kept_sets") == KEPT_OFFSETS
    kept = kept_sets(columns, heads, offsets, is_offsets=is_offsets) if "kept_sets" in columns else KeptSets()
    return TokenContext(
        offsets=offsets,
        valid=None if rows.valid is None else np.concatenate(picker(rows.offsets[at], lengths)(rows.valid)),
        token_ids=token_ids,
        kept_sizes=kept.sizes,
        kept_by_rollout=kept.rollout,
        kept_by_train=kept.train,
        versions=versions,
        prefill=_scores(columns["prefill"], offsets) if "prefill" in columns else None,
        head_tv=None if distances is None else distances[0],
        head_kl=None if distances is None else distances[1],
        levels=levels,
        prompts=None if prompts is None else row_keys([data.column(prompts)]),
        advantages=None if advantages is None else advantages[at],
    )


def _scores(column: pa.Array, offsets: Index) -> Floats:
    """The rollout engine's log-probs in one forward pass of all tokens, NaN where they are none: of rows that have
    another number of them, too."""
    lists = Lists.of("prefill", column)
    values = lists.values.astype(np.float64)
    values = np.where(np.isfinite(values) & (values <= 0), values, np.nan)
    return _fitted(values, lists.offsets, offsets, np.nan)


def token_numbers(column: pa.Array, offsets: Index) -> Index | None:
    """The whole numbers of rows that have as many as log-probs, -1 elsewhere.

    What has another number of them tells of other tokens, too.
    """
    lists = Lists.of("token_ids", column)
    if not (np.diff(lists.offsets) == np.diff(offsets)).any():
        return None
    return _fitted(whole_numbers(lists.values), lists.offsets, offsets, -1)  # of JSON lines, or with nulls, floats


def _fitted(values: NDArray[N], ends: Index, offsets: Index, fill: float) -> NDArray[N]:
    """The values of rows that have as many as tokens, one a token, and `fill` in the others.  ends: where each row's
    values begin and end; offsets: the same of its tokens."""
    fits = np.diff(ends) == np.diff(offsets)
    fitted = np.full(int(offsets[-1]), fill, values.dtype)
    fitted[np.repeat(fits, np.diff(offsets))] = values[np.repeat(fits, np.diff(ends))]
    return fitted


@frozen
class TokenLists:
    """A list for each token.  values: f64, one list after another; offsets: where each begins and ends, i64[lists + 1];
    of_rows: how many lists each row has, i64[B]."""

    values: Floats
    offsets: Index
    of_rows: Index

    @classmethod
    def of(cls, column: pa.Array) -> "TokenLists":
        """Of a column of lists of lists of numbers."""
        items, offsets = flattened(call("list_flatten", column))
        return cls(
            values=as_numpy(cast(items, pa.float64(), lossy=True), null=np.nan),
            offsets=offsets,
            of_rows=as_numpy(call("list_value_length", column), null=-1),
        )

    def fits(self, offsets: Index) -> bool:
        """Whether each row has as many lists as tokens, which begin and end at `offsets`."""
        return np.array_equal(self.of_rows, np.diff(offsets))

    @property
    def token(self) -> Index:
        """Whose value each is."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def whole_numbers(values: NDArray[Any]) -> Index:
    """The whole numbers of an array, -1 in the place of others."""
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    return np.where((abs(values) < MOST_WHOLE) & (values == np.floor(values)), values, -1).astype(np.int64)


def coded_pairs(token: Index, ids: NDArray[Any]) -> Index:
    """One number for each token and id, from which token and id can be had back: token * MOST_IDS + id; -1 of what is
    no id."""
    ids = whole_numbers(ids)
    return np.where((ids >= 0) & (ids < MOST_IDS), token * MOST_IDS + ids, -1)


@np.errstate(all="ignore")
def head_distances(heads: Sequence[TokenLists | None], offsets: Index) -> tuple[Floats, Floats] | None:
    """The total variation and KL(rollout || training), f64[T] each, NaN of tokens without heads; None where there are
    none of both policies, or they do not fit the tokens.

    heads: log-probs under rollout and training, ids under rollout and training.  Without ids of training its log-probs
    are of the rollout's ids, in their order.
    """
    rollout, train, ids, of_train = heads
    if rollout is None or train is None or not all(each is None or each.fits(offsets) for each in heads):
        return None
    if of_train is None or ids is None:
        if (rollout.offsets != train.offsets).any():
            return None
        token, q, p = rollout.token, np.exp(rollout.values), np.exp(train.values)
        known = np.isfinite(rollout.values) & np.isfinite(train.values)
        if ids is not None and len(ids.values) == len(q):
            known &= ids.values >= 0
    else:
        if (ids.offsets != rollout.offsets).any() or (of_train.offsets != train.offsets).any():
            return None
        # Candidates that both heads have.
        pairs, of_train_pairs = (coded_pairs(each.token, each.values) for each in (ids, of_train))
        both, at, at_train = np.intersect1d(pairs, of_train_pairs, return_indices=True)
        log_q, log_p = rollout.values[at], train.values[at_train]
        token, q, p = both // MOST_IDS, np.exp(log_q), np.exp(log_p)
        known = (both >= 0) & np.isfinite(log_q) & np.isfinite(log_p)
    token, q, p = token[known], q[known], p[known]
    n = int(offsets[-1])
    mass_q, mass_p = (np.bincount(token, values, n) for values in (q, p))
    tail_q, tail_p = (np.maximum(1 - mass, LEAST_TAIL) for mass in (mass_q, mass_p))
    tv = (np.bincount(token, abs(q - p), n) + abs(tail_q - tail_p)) / 2
    kl = np.bincount(token, q * np.log(q / p), n) + tail_q * np.log(tail_q / tail_p)
    unknown = (np.bincount(token, minlength=n) == 0) | (mass_q > MOST_MASS) | (mass_p > MOST_MASS)
    return np.where(unknown, np.nan, tv), np.where(unknown, np.nan, np.maximum(kl, 0))


@frozen
class KeptSets:
    """sizes: i64[T], -1 of a token whose set is unknown.  rollout, train: f64[T], the log of what each policy gives to
    a token's set, NaN where that is unknown.  None where no token's is known."""

    sizes: Index | None = None
    rollout: Floats | None = None
    train: Floats | None = None


@np.errstate(all="ignore")
def kept_sets(
    columns: Mapping[str, pa.Array], heads: Sequence[TokenLists | None], offsets: Index, *, is_offsets: bool = False
) -> KeptSets:
    """Of the T tokens of some rows, which begin and end at `offsets`.

    columns: kept_sets in any form, of offsets alone if is_offsets, beside it what else OF_TOKENS has of them, log-probs
    in the ids' order.  heads: as of `head_distances`.  Of a row of another number of tokens, or whose parts do not fit
    each other, nothing is known.
    """
    sizes, ids, rollout = _sizes_and_members(columns["kept_sets"], is_offsets)
    beside = [
        _row_numbers(columns[name]) if name in columns else None for name in ("kept_ids", "rollout_kept", "old_kept")
    ]
    ids, rollout, train = ids or beside[0], rollout or beside[1], beside[2]
    lengths = np.diff(offsets)
    fits = sizes.lengths == lengths
    of_tokens = np.full(int(offsets[-1]), -1, np.int64)
    of_tokens[np.repeat(fits, lengths)] = np.maximum(whole_numbers(sizes.of(fits)), -1)
    if not (of_tokens >= 0).any():
        return KeptSets()
    members = _Members.of(of_tokens, offsets)
    head_q, head_p, of_q, of_p = heads
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


def _sizes_and_members(sets: pa.Array, is_offsets: bool) -> tuple[_Flat, _Flat | None, _Flat | None]:
    """The sizes, and the ids and the rollout's log-probs where an object has them."""
    if not pa.types.is_struct(sets.type):
        if is_list(sets.type.value_type):
            inner, ends = flattened(sets)
            return _Flat(as_numpy(call("list_value_length", inner), null=-1), ends), _row_numbers(sets), None
        numbers = _row_numbers(sets)
        return _sizes_by_offsets(numbers) if is_offsets else numbers, None, None
    fields = dict(zip(sets.type.names, sets.flatten(), strict=True))

    def part(names: tuple[str, ...], dtype: str) -> _Flat | None:
        column = next((fields[name] for name in names if name in fields), None)
        return None if column is None else _row_numbers(column, dtype)

    counts, offsets = part(COUNTS, "<i4"), part(OFFSETS, "<i4")
    if counts is None:
        counts = (
            _Flat(np.zeros(0), np.zeros(len(sets) + 1, np.int64)) if offsets is None else _sizes_by_offsets(offsets)
        )
    return counts, part(IDS, "<i4"), part(LOGPS, "<f4")


def _row_numbers(column: pa.Array, dtype: str = "<i4") -> _Flat:
    """The numbers of each row: of lists, of lists of lists, of bytes or of base64; none where there are none."""
    if is_list(column.type):
        items, ends = flattened(column)
        if is_list(items.type):
            items, inner_ends = flattened(items)
            ends = inner_ends[ends]
        return _Flat(as_numpy(cast(items, pa.float64(), lossy=True), null=np.nan), ends)
    rows = [np.frombuffer(_raw_bytes(each, dtype), dtype) for each in column.to_pylist()]
    return _Flat(
        np.concatenate([*rows, np.zeros(0, dtype)]).astype(np.float64), offsets_of(np.array([*map(len, rows)]))
    )


def _raw_bytes(value: Any, dtype: str) -> bytes:
    """Bytes of whole numbers; none of what is no such bytes."""
    if isinstance(value, str):
        try:
            value = binascii.a2b_base64(value, strict_mode=True)
        except ValueError:
            return b""
    return value if isinstance(value, bytes) and len(value) % np.dtype(dtype).itemsize == 0 else b""


def _sizes_by_offsets(offsets: _Flat) -> _Flat:
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
