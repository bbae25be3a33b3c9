"""Top-k heads of both policies -> how far apart the two distributions of each token are, with no sampling noise.

A head is the log-probs of a token's likeliest candidates, in a dump a list for each token (`TokenLists`).  Of a
candidate that both heads have, both probabilities are known; all other tokens of the vocabulary are taken as one, the
tail.  The total variation and the KL of these coarser distributions are at most those over the whole vocabulary, and
next to them where the head holds most of the mass.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_numpy, call, cast, flattened

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


def whole(values: NDArray[Any]) -> Index:
    """The whole numbers of an array, -1 in the place of others."""
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    return np.where((abs(values) < MOST_WHOLE) & (values == np.floor(values)), values, -1).astype(np.int64)


def coded_pairs(token: Index, ids: NDArray[Any]) -> Index:
    """One number for each token and id, from which token and id can be had back: token * MOST_IDS + id; -1 of what is
    no id."""
    ids = whole(ids)
    return np.where((ids >= 0) & (ids < MOST_IDS), token * MOST_IDS + ids, -1)


@np.errstate(all="ignore")
def head_distances(heads: Sequence[TokenLists | None], offsets: Index) -> tuple[Floats, Floats] | None:
    """The total variation and KL(rollout || training), f64[T] each, NaN of tokens without heads; None where there are
    no heads, or they do not fit the tokens.

    heads: log-probs under rollout and training, ids under rollout and training.  Without ids of training its log-probs
    are of the rollout's ids, in their order.
    """
    if not heads:
        return None
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
