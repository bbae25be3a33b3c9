"""Batch normalisation as a scale on totals.

Dividing every applied weight of a training batch by the batch's mean f only rescales its moments, so one pass is
enough: groups are kept per (batch, *group), f comes from the batch's groups together, and each group gets columns
`normed.*` beside `applied.*`.  Never a mean over a reader chunk.

Frameworks differ in how f is taken (BatchMean).  Metrics and the weights that `filter` writes both divide by
`factors`, so the two cannot disagree.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.earlier_readings import EMPTY, ROLLOUT
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.totals import Merge, Totals
from rlcorr_cli.totals.view import Numbers, family_of, plan_block

_UNITS = {"tok": ("tokens", "unit"), "seq": ("sequences", "seq")}
"""Moment -> what it counts, and whose extremes are its own."""
_SUMS = ("tok", "tok_dev", "tok_sq", "seq", "seq_dev", "seq_sq")


@frozen
class BatchMean:
    """How a batch's mean weight is taken, and when it divides.

    Token weights: the mean over valid tokens.  Others: over sequences, each with the mean of its tokens' weights;
    counts_empty: a sequence without a valid token counts as weight 0, else it does not count.  A mean of at most
    `smallest` divides by 1 instead: the canonical rule leaves only a mean of 0 (every weight zeroed) alone and divides
    by any other, however small; verl and slime leave weights alone up to a mean of 1e-8.
    """

    counts_empty: bool = False
    smallest: float = 0.0

    def factor(self, numbers: Numbers, token_scope: bool) -> Any:
        """What the weights of a batch are divided by: a number, or f64[G] of many batches."""
        mean = family_of(numbers, "applied.", token_scope, 1.0).unit_mean()
        if mean is None:
            return 1.0
        if self.counts_empty and not token_scope:
            with np.errstate(invalid="ignore"):
                mean = mean * numbers.sequences / (numbers.sequences + numbers.sum("empty"))
        return np.where(mean > self.smallest, mean, 1.0)[()]


CANONICAL = BatchMean()


def factors(totals: Totals, plan: Plan, batch_mean: BatchMean = CANONICAL) -> Floats:
    """What each group's weights are divided by, f64[G]: the factor of its batch."""
    assert plan.weighting is not None
    of_batches = totals.numbers.regrouped(lambda key: key[:1])
    of_batch = batch_mean.factor(Numbers.of_plan(of_batches, plan), plan.weighting.scope == "token")
    places = {batch: place for place, (batch,) in enumerate(of_batches.keys)}
    return np.broadcast_to(of_batch, len(of_batches))[[places[batch] for batch, *_ in totals.keys]]


def normalize(totals: Totals, plan: Plan, factors: Floats) -> Totals:
    """The same with `normed.*` beside the plan's `applied.*`, each group's divided by its own factor, f64[G]."""
    numbers, over_rollouts = Numbers.of_plan(totals, plan), f"{ROLLOUT}.{EMPTY}" in totals.tables["sum"].places
    with np.errstate(invalid="ignore", over="ignore"):
        sums = dict(zip(_SUMS, _scaled_moments(numbers, factors), strict=True))
        sums |= {name: numbers.sum(f"applied.{name}") / factors for name in ("row_low", "row_high")}
        sums = {f"normed.{name}": values for name, values in sums.items()}
        if over_rollouts:
            of_rollouts = numbers.under(f"{ROLLOUT}.")
            names = ("seq", "row_low", "row_high")
            sums |= {f"{ROLLOUT}.normed.{name}": of_rollouts.sum(f"applied.{name}") / factors for name in names}
        ends = {
            end: {f"normed.{name}": read(f"applied.{name}") / factors for name in ("unit", "seq")}
            for end, read in (("min", numbers.min), ("max", numbers.max))
        }
    there = numbers.tokens > 0
    ends["min"]["normed.factor"], ends["max"]["normed.factor"] = (
        np.where(there, factors, nothing) for nothing in (np.inf, -np.inf)
    )
    columns: dict[Merge, dict[str, Floats]] = {"sum": sums, "min": ends["min"], "max": ends["max"]}
    normed = Totals.of_rows(totals.keys, np.arange(len(totals)), columns)
    return totals | normed.named(plan_block(plan))


def _scaled_moments(numbers: Numbers, factors: Floats) -> Iterator[Floats]:
    """Sum, squares about 1 and squares of the scaled weights, over tokens and over sequences."""
    for moment, (counted, unit) in _UNITS.items():
        names = counted, f"applied.{moment}", f"applied.{moment}_dev", f"applied.{moment}_sq"
        n, total_x, dev, squares = map(numbers.sum, names)
        lowest, highest = numbers.min(f"applied.{unit}"), numbers.max(f"applied.{unit}")
        # sum (x/f - 1)^2: from the moments about 1 where x and f are near it, else from the plain ones, because
        # either keeps digits only on its own side; of equal weights neither is needed.
        shift = factors - 1
        about_1 = (dev - 2 * shift * (total_x - n) + shift * shift * n) / factors**2
        about_0 = squares / factors**2 - 2 * total_x / factors + n
        of_equal = n * (lowest / factors - 1) ** 2
        scaled_dev = np.where(lowest == highest, of_equal, np.where(np.abs(shift) < 0.5, about_1, about_0))
        yield from (total_x / factors, scaled_dev, squares / factors**2)
