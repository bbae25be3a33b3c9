"""Which samples are of one rollout, as numbers that add: slime divides by the loss tokens of a whole rollout.

Samples of one rollout may lie anywhere in a dump, so that a sample's divisor is known only once all have been counted.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.row_keys import Keys

ROLLOUT, EMPTY = "rollout", "empty"
"""The block of sums over rollouts; and the sum of those without a valid token."""


@frozen(kw_only=True, eq=False)
class RolloutTotals:
    """R rollouts.  keys: u64[R], sorted, a hash of each one's id.  tokens, samples: f64[R], its valid tokens and its
    samples."""

    keys: Keys
    tokens: Floats
    samples: Floats

    @classmethod
    def of(cls, keys: Keys, lengths: NDArray[np.int64]) -> "RolloutTotals":
        """Of samples.  keys: u64[B], 0 of one that has no id, and is a rollout of its own.  lengths: their tokens."""
        known = keys != 0
        return cls._added(keys[known], lengths[known].astype(np.float64), np.ones(int(known.sum())))

    @classmethod
    def total(cls, parts: Iterable["RolloutTotals"]) -> "RolloutTotals":
        """The sum of any number of them, none included."""
        columns = [(part.keys, part.tokens, part.samples) for part in parts]
        if not columns:
            return cls(keys=np.zeros(0, np.uint64), tokens=np.zeros(0), samples=np.zeros(0))
        return cls._added(*map(np.concatenate, zip(*columns, strict=True)))

    @classmethod
    def _added(cls, keys: Keys, tokens: Floats, samples: Floats) -> "RolloutTotals":
        unique, places = np.unique(keys, return_inverse=True)
        return cls(
            keys=unique,
            tokens=np.bincount(places, tokens, minlength=len(unique)).astype(np.float64),
            samples=np.bincount(places, samples, minlength=len(unique)).astype(np.float64),
        )

    def shared(self) -> "RolloutTotals":
        """Those of several samples, which alone change anything."""
        several = self.samples > 1
        return RolloutTotals(keys=self.keys[several], tokens=self.tokens[several], samples=self.samples[several])

    def shares(self, keys: Keys, lengths: NDArray[np.int64]) -> Floats:
        """What each sample is of its rollout, f64[B]: its share of the tokens, or of the samples where none has any.

        The shares of a rollout's samples add to 1; one that is not among these has a single sample.
        """
        shares = np.ones(len(keys))
        if len(self.keys):
            at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            has_rollout, tokens = self.keys[at] == keys, self.tokens[at]
            with np.errstate(divide="ignore", invalid="ignore"):
                of_rollout = np.where(tokens > 0, lengths / tokens, 1 / self.samples[at])
            shares[has_rollout] = of_rollout[has_rollout]
        return shares
