"""Some rows of a batch with what stands around them, and what rows are known by."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.reading.batch import Batch, TokenContext
from rlcorr_cli.totals.row_keys import Keys, KeySample, joined, keys_of_floats
from rlcorr_cli.totals.row_sample import stretches

HEAD = 16
"""Tokens of a row that a sample of rows is drawn by."""
Index = NDArray[np.int64]
N = TypeVar("N", bound=np.generic)
ChosenRows = tuple[Batch, TokenContext]


def chosen(batch: Batch, around: TokenContext, rows: Index) -> ChosenRows:
    """These rows, in order."""
    lengths = batch.lengths[rows]
    tokens = stretches(batch.offsets[rows], lengths)

    def of_tokens(values: NDArray[N] | None) -> NDArray[N] | None:
        return None if values is None else values[tokens]

    of_batch = replace(
        batch,
        offsets=_offsets(lengths),
        rollout_logp=batch.rollout_logp[tokens],
        old_logp=of_tokens(batch.old_logp),
        current_logp=of_tokens(batch.current_logp),
        advantages=of_tokens(batch.advantages),
        n_masked=batch.n_masked[rows],
        reward=None if batch.reward is None else batch.reward[rows],
        group_index=batch.group_index[rows],
        row_keys=None if batch.row_keys is None else batch.row_keys[rows],
        cluster_keys=None if batch.cluster_keys is None else batch.cluster_keys[rows],
        unscored=of_tokens(batch.unscored),
        rollout_keys=None,
    )
    # What stands around them counts masked tokens, too.
    lengths = np.diff(around.offsets)[rows]
    every = stretches(around.offsets[rows], lengths)

    def of_all_tokens(values: NDArray[N] | None) -> NDArray[N] | None:
        return None if values is None else values[every]

    return of_batch, TokenContext(
        offsets=_offsets(lengths),
        valid=of_all_tokens(around.valid),
        token_ids=of_all_tokens(around.token_ids),
        kept_sizes=of_all_tokens(around.kept_sizes),
        kept_by_rollout=of_all_tokens(around.kept_by_rollout),
        kept_by_train=of_all_tokens(around.kept_by_train),
        versions=of_all_tokens(around.versions),
        head_tv=of_all_tokens(around.head_tv),
        head_kl=of_all_tokens(around.head_kl),
        levels={name: (codes[rows], keys) for name, (codes, keys) in around.levels.items()},
        prompts=None if around.prompts is None else around.prompts[rows],
        advantages=None if around.advantages is None else around.advantages[rows],
    )


def rollout_keys(batch: Batch) -> Keys:
    """A hash of each row's length and of how it begins, u64[B]: cheap, and the same wherever a rollout stands again."""
    lengths = batch.lengths
    heads = np.minimum(lengths, HEAD)
    ends = _offsets(heads)
    at = stretches(batch.offsets[:-1], heads)
    return joined(keys_of_floats(batch.rollout_logp[at], ends), lengths.astype(np.uint64))


def content_sample(batch: Batch) -> KeySample:
    """A sample of the rows with tokens by what they hold: the log-probs of both policies, to float32."""
    offsets = batch.offsets[np.concatenate([[True], batch.filled])]
    trained = (batch.old_logp, batch.current_logp)
    keys = keys_of_floats(batch.rollout_logp, offsets)
    for logp in (each for each in trained if each is not None):
        keys = joined(keys, keys_of_floats(logp, offsets))
    return KeySample.of(keys)


def _offsets(lengths: Index) -> Index:
    return np.concatenate([[0], np.cumsum(lengths)])
