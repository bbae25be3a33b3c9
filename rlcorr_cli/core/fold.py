"""Rows of numbers, one per sequence, folded by group."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.core.arrays import Segments, bin_counts, top_bits
from rlcorr_cli.core.quantities import Table
from rlcorr_cli.totals.histogram import Floats, Histogram, narrowed
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail


class Fold:
    """Rows by group: reduces tables [B] to [G, K] with one sort (none when all rows are of one group).

    rows: the rows' tokens.  Values to fold are one for each token or one for each row, as their number says.
    """

    def __init__(self, group_index: NDArray[np.int64], rows: Segments) -> None:
        self.group_index = group_index
        self.rows = rows
        self.order = None if (group_index == group_index[:1]).all() else np.argsort(group_index, kind="stable")
        ordered = group_index if self.order is None else group_index[self.order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])
        self.groups = ordered[self.starts]

    def __call__(self, ufunc: np.ufunc, table: Table) -> Floats:
        return ufunc.reduceat(self._rows(table), self.starts, axis=1).T

    def logs(self, table: Table) -> tuple[Floats, Floats]:
        """(peak, rest) of each group."""
        rows = self._rows(table)
        peaks = np.maximum.reduceat(rows, self.starts, axis=1)
        sizes = np.diff(np.append(self.starts, rows.shape[1]))
        # A sum of nothing but zeros has the log -inf, and no distance from its peak.
        shifts = np.where(np.isneginf(peaks), 0.0, peaks)
        rests = np.add.reduceat(np.exp(rows - np.repeat(shifts, sizes, axis=1)), self.starts, axis=1)
        return peaks.T, rests.T

    def histograms(self, values: Floats) -> list[Histogram]:
        """The histogram of each group.  values: of tokens or of sequences, [V or B]."""
        bucket = top_bits(values)
        if not len(self.groups):
            return []
        if self.order is None:
            return [Histogram.of_counts(bin_counts(bucket, 1 << 16))]
        place = np.searchsorted(self.groups, self.group_index)
        if len(values) != len(place):
            place = np.repeat(place, self.rows.lengths)
        keyed, counted = np.unique((place << 16) + bucket, return_counts=True)
        cuts = np.searchsorted(keyed, np.arange(len(self.groups) + 1) << 16)
        buckets, counted = (keyed & 0xFFFF).astype(np.uint16), narrowed(counted)
        # Copies: of a part, the whole would stay.
        return [Histogram(buckets[a:b].copy(), counted[a:b].copy()) for a, b in pairwise(cuts.tolist())]

    def tails(self, log_weights: Floats) -> list[Tail]:
        """The upper tail of each group; log_weights: of tokens or of sequences, f64[V or B]."""
        group_index = (
            self.group_index
            if len(log_weights) == len(self.group_index)
            else np.repeat(self.group_index, self.rows.lengths)
        )
        order = np.argsort(group_index, kind="stable")
        ends = np.searchsorted(group_index[order], self.groups, side="right")
        ordered, cuts = log_weights[order], np.concatenate([[0], ends]).tolist()
        return [Tail.of(ordered[a:b], GROUP_SIZE) for a, b in pairwise(cuts)]

    def _rows(self, table: Table) -> Floats:
        rows = np.stack(tuple(table.values())) if table else np.zeros((0, len(self.group_index)))
        return rows if self.order is None else rows[:, self.order]
