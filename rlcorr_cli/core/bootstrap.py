"""Poisson bootstrap over sequences, in one pass.

Tokens of one sequence are not independent, so sequences are resampled.  In replicate r a sequence counts
Poisson(1) times, drawn from a hash of (seed, r, the row's own values).  The draw depends on nothing but the row, so
any split of the work gives the same replicates, and replicates add like every other sum.

A row is known by its length and its first, middle and last tokens' values (the same for a Parquet file, its
JSON-lines twin, or seven parts of either), not by its place; two identical rows get the same draws.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from rlcorr_cli.core.quantities import Columns
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.totals.summary import Replicates

REPLICATES = 200
"""Enough for a 95 % interval whose ends are good to about 5 % of its width."""

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def resample(tokens: Tokens, columns: Columns, seed: int) -> Replicates:
    """The replicates' sums of one batch's columns."""
    draws = torch.from_numpy(poisson_draws(row_hashes(tokens), seed))
    names, logs = tuple(columns.sums), tuple(columns.logs)
    table = np.stack(tuple(columns.sums.values()))
    values = np.stack(tuple(columns.logs.values()))
    peaks = values.max(axis=1)
    rests = np.exp(values - peaks[:, None])
    # torch's product, because it keeps to the one thread it was given.
    sums, rests = (torch.from_numpy(rows) @ draws for rows in (table, rests))
    return Replicates(names, sums.numpy(), logs, peaks, rests.numpy())


def row_hashes(tokens: Tokens) -> NDArray[np.uint64]:
    """One 64-bit identity per sequence, from its length and three of its tokens; u64[B]."""
    offsets = tokens.ragged.offsets
    first, last = offsets[:-1], offsets[1:] - 1
    places = torch.from_numpy(np.concatenate([first, (first + last) // 2, last])).to(tokens.ragged.device)
    state = np.diff(offsets).astype(np.uint64)
    for values in (tokens.rollout_logp, tokens.log_ratio):
        for words in values.index_select(0, places).cpu().numpy().view(np.uint64).reshape(3, -1):
            state = _mix(state ^ words)
    return state


def poisson_draws(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Poisson(1) counts, f64[B, REPLICATES]; 16 bits of hash for each."""
    words = np.arange(REPLICATES // 4, dtype=np.uint64) + np.uint64(seed) * np.uint64(1 << 32)
    bits = _mix(hashes[:, None] + (words * _GOLDEN)[None, :])
    return _POISSON[bits.view(np.uint16)].astype(np.float64)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = (state ^ (state >> np.uint64(27))) * _MIX[1]
    return state ^ (state >> np.uint64(31))


def _poisson_table() -> NDArray[np.uint8]:
    """Poisson(1)'s inverse distribution function at the 65,536 bin middles."""
    probabilities = np.exp(-1.0) / np.cumprod(np.concatenate([[1.0], np.arange(1.0, 12.0)]))
    middles = (np.arange(65536) + 0.5) / 65536
    return np.searchsorted(np.cumsum(probabilities), middles).astype(np.uint8)


_POISSON = _poisson_table()
