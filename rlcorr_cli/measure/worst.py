"""The worst sequences and tokens of a batch, by one measure: candidates for a list that is kept over a whole dump."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.measure.arrays import Array, Device, host
from rlcorr_cli.measure.statistics import EXP_LIMIT, k3
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.histogram import Floats


@dataclass(frozen=True)
class Worst:
    """Largest first.  rows, values: sequences.  at: i64 [.., 2], the tokens' rows and places among the row's valid
    tokens; token_values: theirs."""

    rows: NDArray[np.int64]
    values: Floats
    at: NDArray[np.int64]
    token_values: Floats


def _k3(tokens: Tokens) -> tuple[Array, Array]:
    each = k3(tokens.xp.clip(tokens.log_ratio, -EXP_LIMIT, EXP_LIMIT))
    return tokens.rows.sum(each) / tokens.rows.sizes, each


def _abs_log_ratio(tokens: Tokens) -> tuple[Array, Array]:
    each = abs(tokens.log_ratio)
    return tokens.rows.sum(each) / tokens.rows.sizes, each


def _seq_log_ratio(tokens: Tokens) -> tuple[Array, Array]:
    return abs(tokens.log_ratio_sum), abs(tokens.log_ratio)


MEASURES: dict[str, Callable[[Tokens], tuple[Array, Array]]] = {
    "k3": _k3,
    "abs_log_ratio": _abs_log_ratio,
    "seq_log_ratio": _seq_log_ratio,
}
"""Name -> values of sequences [B] and of tokens [V].  k3 and abs_log_ratio: mean over a sequence, and each token's own;
seq_log_ratio: |S| of a sequence, |l| of a token."""


@np.errstate(all="ignore")
def worst(batch: Batch, measure: str, n: int, device: Device) -> Worst:
    """The n worst of each kind, or all."""
    filled = np.flatnonzero(batch.filled)
    if not len(filled):
        none = np.zeros(0, np.int64)
        return Worst(none, np.zeros(0), none.reshape(0, 2), np.zeros(0))
    sequences, each = (host(values) for values in MEASURES[measure](Tokens.of(batch, device)))
    rows, tokens = largest(sequences, n), largest(each, n)
    inside = np.searchsorted(batch.offsets, tokens, side="right") - 1
    at = np.stack([inside, tokens - batch.offsets[inside]], axis=1)
    return Worst(filled[rows], sequences[rows], at, each[tokens])


def largest(values: Floats, n: int) -> NDArray[np.int64]:
    """Indices of the n largest, largest first, the earlier one first among equals."""
    if n < len(values):
        bound = np.partition(values, len(values) - n)[len(values) - n]
        candidates = np.flatnonzero(values >= bound)
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")][:n]
