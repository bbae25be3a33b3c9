"""Sums over tokens by their ids: what differs where a token comes again in its row, and what goes with the token."""

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.gap import ID_BUCKETS, N_SURPRISE, PROMPT_BUCKETS, Vocabulary
from rlcorr_cli.totals.histogram import Floats

REPEAT_LIMIT, ID_LIMIT = 5.0, 2.0
"""What |d| is held to, so that no single token rules a sum."""


def vocabulary(
    ids: NDArray[np.int64],
    *,
    again: NDArray[np.bool_],
    surprise: NDArray[np.int64],
    prompts: NDArray[np.int64],
    d: Floats,
) -> Vocabulary:
    """Of inside body tokens that have an id, each [V]: whether it came before in its row, its bin of u, its prompt's
    bucket and d, the difference in log-odds."""
    held = d.clip(-REPEAT_LIMIT, REPEAT_LIMIT)
    repeats = _sums(surprise * 2 + again, N_SURPRISE * 2, (np.ones(len(d)), held, held**2))
    held = d.clip(-ID_LIMIT, ID_LIMIT)
    by_id = _sums(prompts * ID_BUCKETS + ids % ID_BUCKETS, PROMPT_BUCKETS * ID_BUCKETS, (np.ones(len(d)), held))
    return Vocabulary(
        repeats=repeats.reshape(N_SURPRISE, 2, -1),
        by_id=by_id.reshape(PROMPT_BUCKETS, ID_BUCKETS, -1),
        spread=np.array([len(held), held.sum(), (held**2).sum()]),
    )


def came_before(ids: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each token's id stands earlier in its row.  ids: [T], offsets: i64[B+1].  Returns bool[T]."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((ids, rows))  # stable: equal ids of a row stay in their order
    ordered = ids[order], rows[order]
    same = np.logical_and(*(values[1:] == values[:-1] for values in ordered))
    again = np.zeros(len(ids), np.bool_)
    again[order[1:]] = same
    return again


def _sums(at: NDArray[np.int64], n: int, columns: tuple[Floats, ...]) -> Floats:
    return np.stack([np.bincount(at, column, n) for column in columns], axis=-1).astype(np.float64)
