"""Numbers that a dump is read for before it is measured: where a budget's bound falls, and which samples are of one
rollout.

A bound takes totals per bucket first, then the values of the one bucket that holds it.  Ascending, the mean of the
first k values only grows with k, so the budget is kept by the largest k whose mean is below it.  Counts and sums by
float bucket (16 bits, as a Histogram's) say in which bucket that k lies; a second reading brings just that bucket's
values.  Both add, so shards, threads and batches do not matter.

Source: M2PO, AReaL's actor.m2_threshold: strict, and where not even one value is below, the smallest stays.  AReaL
looks at a micro-batch and at an arbitrary one of equal values; here it is the training batch, and all of them.

slime divides by the loss tokens of a whole rollout.  Its samples may lie anywhere in a dump, so that a sample's divisor
is known only once all have been counted.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, FloatBits
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.row_keys import Keys
from rlcorr_cli.totals.totals import GroupKey


@frozen
class BudgetBatch:
    """A budget's name and the training batch that has to keep it."""

    budget: str
    batch: Any


@frozen
class BudgetGroup:
    """A budget's name and a group of rows, whose key begins with the training batch."""

    budget: str
    group: GroupKey

    @property
    def of_batch(self) -> BudgetBatch:
        """The budget in the training batch that the group is part of."""
        return BudgetBatch(self.budget, self.group[0])


@frozen
class Crossing:
    """The bucket in which the mean reaches the budget, and what lies below it.  bucket: None where it never does, and
    what lies below is not looked at."""

    bucket: int | None
    n_below: int
    sum_below: float


def binned_values(values: Floats) -> Binned[FloatBits]:
    """Counts and sums by bucket of values >= 0."""
    return Binned.of_values(FLOAT_BITS, FLOAT_BITS.bins_of(values), {"sum": values})


def crossing(totals: Binned[FloatBits], mean_below: float) -> Crossing:
    """Where, ascending, the mean first is no longer below the budget."""
    counts, sums = np.cumsum(totals.counts), np.cumsum(totals.sums["sum"])
    over = np.flatnonzero(~(sums < mean_below * counts))
    if not len(over):
        return Crossing(None, 0, 0.0)
    i = int(over[0])
    return Crossing(int(totals.bins[i]), int(counts[i - 1]) if i else 0, float(sums[i - 1]) if i else 0.0)


def cut(at: Crossing, values: Iterable[Floats], mean_below: float) -> tuple[float, bool]:
    """The largest value that stays (inf where all do), and whether the budget is kept: not where even the smallest
    value is too large.  values: those of the crossing's bucket."""
    if at.bucket is None:
        return np.inf, True
    ordered = np.sort(np.concatenate([*values, np.zeros(0)]))
    counts, sums = at.n_below + np.arange(1, len(ordered) + 1), at.sum_below + np.cumsum(ordered)
    stay = int(np.count_nonzero(sums < mean_below * counts))
    # Equal values stay or go together.
    stay = int(np.searchsorted(ordered, ordered[stay], side="left")) if stay < len(ordered) else stay
    if stay:
        return float(ordered[stay - 1]), True
    # None of this bucket's values stays.  What lies below the bucket does, all of it: the next float below the smallest
    # one here is a bound that keeps it whole.  With nothing below, the smallest stays although it breaks the budget.
    return (float(np.nextafter(ordered[0], 0.0)), True) if at.n_below else (float(ordered[0]), False)


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
