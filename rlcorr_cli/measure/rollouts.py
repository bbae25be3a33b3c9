"""Sums over rollouts: every sum of samples once more, each sample's with its share of its rollout for its weight."""

from collections.abc import Sequence

import numpy as np

from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.rollouts import EMPTY, ROLLOUT, RolloutTotals
from rlcorr_cli.totals.totals import Totals


def rollout_totals(batch: Batch, rollouts: RolloutTotals, measured: Sequence[Columns]) -> Totals:
    """What a batch adds to the sums over rollouts.  measured: columns of the rows that have a valid token."""
    assert batch.rollout_keys is not None
    shares, filled, group_of = rollouts.shares(batch.rollout_keys, batch.lengths), batch.filled, batch.group_index
    empty = {EMPTY: np.where(filled, 0.0, shares)}
    sums = {name: values * shares[filled] for columns in measured for name, values in columns.sums.items()}
    of_empty = Totals.of_rows(batch.group_keys, group_of.astype(np.int64), {"sum": empty})
    of_filled = Totals.of_rows(batch.group_keys, group_of[filled].astype(np.int64), {"sum": sums})
    return (of_empty | of_filled).named(ROLLOUT)
