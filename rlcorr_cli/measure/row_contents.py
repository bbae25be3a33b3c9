"""What rows are known by: hashes of how they begin, and of all that they hold."""

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.lists import offsets_of, ranges, starts_of
from rlcorr_cli.totals.row_keys import Keys, KeySample, joined, keys_of_floats

HEAD = 16
"""Tokens of a row that a sample of rows is drawn by."""
Index = NDArray[np.int64]


def head_keys(logp: NDArray[np.floating], lengths: Index) -> Keys:
    """A hash of how each row begins, u64[B].  logp: [V]; lengths: i64[B], of its rows."""
    heads = np.minimum(lengths, HEAD)
    return keys_of_floats(logp[ranges(starts_of(lengths), heads)], offsets_of(heads))


def rollout_keys(rollout: NDArray[np.floating], lengths: Index) -> Keys:
    """A hash of each row's length and of how it begins, u64[B]: cheap, and the same wherever a rollout stands again."""
    return joined(head_keys(rollout, lengths), lengths.astype(np.uint64))


def content_sample(batch: Batch) -> KeySample:
    """A sample of the rows with tokens by what they hold: the log-probs of both policies, to float32."""
    offsets = batch.offsets[np.concatenate([[True], batch.filled])]
    trained = (batch.old_logp, batch.current_logp)
    keys = keys_of_floats(batch.rollout_logp, offsets)
    for logp in (each for each in trained if each is not None):
        keys = joined(keys, keys_of_floats(logp, offsets))
    return KeySample.of(keys)
