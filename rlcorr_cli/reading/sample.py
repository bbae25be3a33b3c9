"""The first rows of a file, and the pairs of log-probs in them that can be compared."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen

FAR = 1000.0
"""Numbers beyond this size are marks (-9999 is one), not log-probs, and would rule every sum of squares."""


@frozen
class Pairs:
    """V pairs (rollout, train) in their rows: valid tokens on which both are finite and no farther out than FAR.

    offsets: i64[B+1] from 0 to V, empty rows included.  rollout, train: f64[V].
    """

    offsets: NDArray[np.int64]
    rollout: NDArray[np.float64]
    train: NDArray[np.float64]

    @property
    def n(self) -> int:
        """The number of pairs, V."""
        return len(self.rollout)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each pair, i64[V]."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def runs(self, hit: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The longest stretches of hits within a row: where each starts, and one past its end.  hit: bool[V]."""
        border = self.borders
        around = np.concatenate([[False], hit, [False]])
        starts = hit & (~around[:-2] | border[:-1])
        ends = hit & (~around[2:] | border[1:])
        return np.flatnonzero(starts), np.flatnonzero(ends) + 1

    @property
    def borders(self) -> NDArray[np.bool_]:
        """Whether a row starts (or the last one ends) before pair i: bool[V+1]."""
        border = np.zeros(self.n + 1, bool)
        border[self.offsets] = True
        return border


@frozen(kw_only=True)
class Sample:
    """The first rows of one file, masked tokens included; nothing in it has been checked but the lengths.

    offsets: i64[B+1] from 0.  rollout, train: float [T], aligned; rows of unequal length were left out before.
    valid: the mask, bool[T], None without a mask column.  columns: the dump's names of (rollout, train).
    step: of the first and the last row, None without.
    """

    path: str
    offsets: NDArray[np.int64]
    rollout: NDArray[Any]
    train: NDArray[Any]
    valid: NDArray[np.bool_] | None
    columns: tuple[str, str]
    step: tuple[float | None, float | None]

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs of valid tokens on which both columns hold a log-prob."""
        with np.errstate(all="ignore"):  # the cast of a huge or a signalling number
            rollout, train = np.asarray(self.rollout, np.float64), np.asarray(self.train, np.float64)
        use = np.maximum(np.abs(rollout), np.abs(train)) <= FAR  # false where either is NaN
        if self.valid is not None:
            use &= np.asarray(self.valid, bool)
        kept = np.concatenate([[0], np.cumsum(use)])
        return Pairs(kept[self.offsets], rollout[use], train[use])
