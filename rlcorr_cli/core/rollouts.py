"""Sums over rollouts: every sum of samples once more, each sample's with its share of its rollout for its weight."""

from collections.abc import Sequence

import numpy as np

from rlcorr_cli.batch import Batch
from rlcorr_cli.core.arrays import Segments
from rlcorr_cli.core.fold import Fold
from rlcorr_cli.core.part import Part
from rlcorr_cli.core.quantities import Columns
from rlcorr_cli.totals.block import Layout
from rlcorr_cli.totals.rollouts import EMPTY, ROLLOUT, RolloutTotals


def rollout_parts(
    batch: Batch, rollouts: RolloutTotals, rows: Segments, measured: Sequence[tuple[Columns, Fold]] = ()
) -> list[Part]:
    """What a batch adds to the sums over rollouts.  measured: columns of the rows that have a valid token."""
    assert batch.rollout_keys is not None
    shares = rollouts.shares(batch.rollout_keys, batch.lengths)
    sums = {EMPTY: np.where(batch.filled, 0.0, shares)}
    parts = [Part(columns=Columns(sums=sums), fold=Fold(batch.group_index.astype(np.int64), rows), prefix=ROLLOUT)]
    of_filled = shares[batch.filled]
    for columns, fold in measured:
        sums = {name: values * of_filled for name, values in columns.sums.items()}
        parts.append(Part(columns=Columns(sums=sums), fold=fold, prefix=ROLLOUT))
    return parts


def rollout_layout(layouts: Sequence[Layout], apart: str) -> Layout:
    """The names of such sums, of blocks of these layouts.  apart: what names of kept tokens begin with, which are no
    sums of samples."""
    names = (name for layout in layouts for name in layout.sums if not name.startswith(apart))
    sums = (EMPTY, *names)
    return Layout(sums=tuple(ROLLOUT + name for name in sums), mins=(), maxs=(), logs=(), histograms=())
