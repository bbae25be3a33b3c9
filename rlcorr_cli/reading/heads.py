"""Top-k heads of both policies -> how far apart the two distributions of each token are, with no sampling noise.

A head is the log-probs of a token's likeliest candidates.  Of a candidate that both heads have, both probabilities are
known; all other tokens of the vocabulary are taken as one, the tail.  The total variation and the KL of these coarser
distributions are at most those over the whole vocabulary, and next to them where the head holds most of the mass.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_numpy, call, cast

Index = NDArray[np.int64]
Floats = NDArray[np.float64]
LEAST_TAIL = 1e-6
"""A smaller tail is what float32 leaves of a sum that is 1."""
MOST_IDS = 1 << 31
MOST_MASS = 1 + 1e-3
"""A head of more is no distribution's."""


@frozen
class _Lists:
    """Values of the lists of each token, one after another, and where each token's begin, i64[T + 1]."""

    values: Floats
    offsets: Index

    @classmethod
    def of(cls, column: pa.Array, lengths: Index) -> "_Lists | None":
        """Of a column of rows of as many lists as the rows have tokens; None where a row has not."""
        if (as_numpy(call("list_value_length", column), null=-1) != lengths).any():
            return None
        inner = call("list_flatten", column)
        sizes = as_numpy(call("list_value_length", inner), null=0)
        values = as_numpy(cast(call("list_flatten", inner), pa.float64(), lossy=True), null=np.nan)
        return cls(values, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))

    @property
    def token(self) -> Index:
        """Whose value each is."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@np.errstate(all="ignore")
def head_distances(columns: Sequence[pa.Array | None], offsets: Index) -> tuple[Floats, Floats] | None:
    """The total variation and KL(rollout || training), f64[T] each, NaN of tokens without heads; None where there are
    no columns of heads, or their lists do not fit the tokens.

    columns: log-probs under rollout and training, ids under rollout and training.  Without ids of training its
    log-probs are of the rollout's ids, in their order.
    """
    if not columns:
        return None
    lengths = np.diff(offsets)
    lists = [None if column is None else _Lists.of(column, lengths) for column in columns]
    rollout, train, ids, of_train = lists
    if (
        rollout is None
        or train is None
        or any(each is None for each, column in zip(lists, columns, strict=True) if column is not None)
    ):
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
        token, q, p, known = _matched(rollout, ids, train, of_train)
    token, q, p = token[known], q[known], p[known]
    n = int(offsets[-1])
    mass_q, mass_p = (np.bincount(token, values, n) for values in (q, p))
    tail_q, tail_p = (np.maximum(1 - mass, LEAST_TAIL) for mass in (mass_q, mass_p))
    tv = (np.bincount(token, abs(q - p), n) + abs(tail_q - tail_p)) / 2
    kl = np.bincount(token, q * np.log(q / p), n) + tail_q * np.log(tail_q / tail_p)
    unknown = (np.bincount(token, minlength=n) == 0) | (mass_q > MOST_MASS) | (mass_p > MOST_MASS)
    return np.where(unknown, np.nan, tv), np.where(unknown, np.nan, np.maximum(kl, 0))


def _matched(
    rollout: _Lists, ids: _Lists, train: _Lists, of_train: _Lists
) -> tuple[Index, Floats, Floats, NDArray[np.bool_]]:
    """Candidates that both heads have: their token, both probabilities, and whether both are known."""
    named, of_named = (
        np.where((each.values >= 0) & (each.values < MOST_IDS), each.token * MOST_IDS + each.values, -1).astype(
            np.int64
        )
        for each in (ids, of_train)
    )
    both, at, at_train = np.intersect1d(named, of_named, return_indices=True)
    q, p = rollout.values[at], train.values[at_train]
    return both // MOST_IDS, np.exp(q), np.exp(p), (both >= 0) & np.isfinite(q) & np.isfinite(p)
