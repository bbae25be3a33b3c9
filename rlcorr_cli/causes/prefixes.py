"""Tokens that share their whole prefix: the ratio of two temperatures without any unknown.

Samples of a prompt begin alike, and where two of them part, both tokens were drawn from one distribution.  The
normaliser falls out of the difference of their log-probs: a1 - a2 = T (b1 - b2), with T the temperature of rollout over
that of training.  Takes token ids and prompts.
"""

from collections.abc import Iterator
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.row_sample import RowSample

LONGEST = 64
"""Prefixes are compared up to this many tokens."""
MIN_SHARING, MIN_PREFIXES = 20, 5
FAR = 5.0
"""A difference so many typical ones off the line is of a row whose columns do not belong together, or of a flip."""
MAD_OF_NORMAL = 0.6745
ROUNDS = 6
"""Such tokens bend the line that they are measured from, so it is drawn again without them until none is left."""
Index = NDArray[np.int64]


@frozen(kw_only=True)
class SharedPrefixes:
    """ratio: T of rollout over that of training, with its error; of so many tokens that differ, after so many
    prefixes.  r2: what it explains of the differences between the two columns, which a curve explains less of."""

    ratio: float
    error: float
    r2: float
    tokens: int
    prefixes: int


def shared_prefixes(sample: RowSample) -> SharedPrefixes | None:
    """None where too few tokens share their prefix, or a dump has no token ids or no prompts."""
    pairs = [_differences(*group) for group in _sharing(sample)]
    if not pairs:
        return None
    b, a, prefix = (np.concatenate(column) for column in zip(*pairs, strict=True))
    kept = np.ones(len(b), np.bool_)
    ratio = error = r2 = 0.0
    n_prefixes = 0
    for _ in range(ROUNDS):
        b, a, prefix = b[kept], a[kept], prefix[kept]
        n_prefixes = len(np.unique(prefix))
        squares = float((b * b).sum())
        if len(b) < MIN_SHARING or n_prefixes < MIN_PREFIXES or squares == 0:
            return None
        ratio = float((a * b).sum()) / squares
        off = a - ratio * b
        error = sqrt(float((off * off).sum()) / max(1, len(b) - n_prefixes - 1) / squares)
        r2 = 1 - float((off * off).sum()) / max(1e-30, float(((a - b) ** 2).sum()))
        kept = np.abs(off) <= FAR * max(1e-9, float(np.median(np.abs(off))) / MAD_OF_NORMAL)
    return SharedPrefixes(ratio=ratio, error=error, r2=r2, tokens=len(b), prefixes=n_prefixes)


def _sharing(sample: RowSample) -> Iterator[tuple[Floats, Floats, Index, NDArray[np.uint64]]]:
    """Tokens at each place of the rows that still share a prefix with others: b, a, their ids and their prefixes."""
    if sample.token_ids is None:
        return
    starts = np.cumsum(sample.n_tokens) - sample.n_tokens
    rows = np.flatnonzero(sample.prompts != 0)
    prefix = sample.prompts[rows]
    # Of every token, its place among the valid ones.
    valid = np.ones(len(sample.token_ids), np.bool_) if sample.valid is None else sample.valid
    at_valid = np.cumsum(valid) - 1
    for place in range(LONGEST):
        _, group, counts = np.unique(prefix, return_inverse=True, return_counts=True)
        on = (counts[group] > 1) & (sample.n_tokens[rows] > place)
        rows, prefix = rows[on], prefix[on]
        if len(rows) < 2:
            return
        at = starts[rows] + place
        ids = sample.token_ids[at]
        known = valid[at] & (ids >= 0)
        if sample.unscored is not None:
            known[known] = ~sample.unscored[at_valid[at[known]]]
        tokens = at_valid[at[known]]
        b, a = (column[tokens].astype(np.float64) for column in (sample.rollout, sample.train))
        drawn = (b < 0) & (a < 0)
        yield b[drawn], a[drawn], ids[known][drawn], prefix[known][drawn]
        prefix = (prefix ^ ids.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        prefix ^= prefix >> np.uint64(29)


def _differences(
    b: Floats, a: Floats, ids: Index, prefix: NDArray[np.uint64]
) -> tuple[Floats, Floats, NDArray[np.uint64]]:
    """Each different token's b and a less the mean of its prefix's tokens; no token that is alone after its prefix."""
    order = np.lexsort((ids, prefix))
    b, a, ids, prefix = b[order], a[order], ids[order], prefix[order]
    new = np.concatenate([[True], (prefix[1:] != prefix[:-1]) | (ids[1:] != ids[:-1])]) if len(b) else np.zeros(0, bool)
    b, a, prefix = b[new], a[new], prefix[new]
    distinct, group, counts = np.unique(prefix, return_inverse=True, return_counts=True)
    less = [column - (np.bincount(group, column, len(distinct)) / np.maximum(counts, 1))[group] for column in (b, a)]
    on = counts[group] > 1
    return less[0][on], less[1][on], prefix[on]
