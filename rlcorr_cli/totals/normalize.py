"""Batch normalisation as a scale on totals.

Dividing every applied weight of a training batch by the batch's mean f only rescales its moments, so one pass is
enough: groups are kept per (batch, *group), f comes from the batch's groups together, and each group gets columns
`normed.*` beside `applied.*`.  Never a mean over a reader chunk.

Frameworks differ in how f is taken (BatchMean).  Metrics and the weights that `filter` writes both divide by
`factors`, so the two cannot disagree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.block import Layout, plan_block
from rlcorr_cli.totals.families import StatisticFamily
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.rollouts import ROLLOUT, ROLLOUTS
from rlcorr_cli.totals.summary import GROUPS_AT_ONCE, GroupKey, Layouts, Summary, total
from rlcorr_cli.totals.view import GroupTotals, TotalsView

_UNITS = {"tok": ("tokens", "unit"), "seq": ("sequences", "seq")}
"""Moment -> what it counts, and whose extremes are its own."""
_SUMS = ("tok", "tok_dev", "tok_sq", "seq", "seq_dev", "seq_sq", "row_low", "row_high")
_OF_ROLLOUTS = ("seq", "row_low", "row_high")


@dataclass(frozen=True)
class BatchMean:
    """How a batch's mean weight is taken, and when it divides.

    Token weights: the mean over valid tokens.  Others: over sequences, each with the mean of its tokens' weights;
    counts_empty: a sequence without a valid token counts as weight 0, else it does not count.  A mean of at most
    `smallest` divides by 1 instead: the canonical rule leaves only a mean of 0 (every weight zeroed) alone and divides
    by any other, however small; verl and slime leave weights alone up to a mean of 1e-8.
    """

    counts_empty: bool = False
    smallest: float = 0.0

    def factor(self, numbers: TotalsView, token_scope: bool) -> float:
        """What the weights of one batch are divided by."""
        mean = StatisticFamily(numbers, "applied.", token_scope, 1.0).unit_mean()
        if mean is not None and self.counts_empty and not token_scope:
            mean *= numbers.sequences / (numbers.sequences + numbers.sum("empty"))
        return mean if mean is not None and mean > self.smallest else 1.0


CANONICAL = BatchMean()


def normalize(
    groups: Mapping[GroupKey, Summary],
    layouts: Layouts,
    plan: Plan,
    batch_mean: BatchMean = CANONICAL,
) -> dict[GroupKey, Summary]:
    """Groups with `normed.*` added to the plan's block, each divided by its own batch's factor."""
    divisors = factors(groups, layouts, plan, batch_mean)
    items, normed = list(groups.items()), dict[GroupKey, Summary]()
    for first in range(0, len(items), GROUPS_AT_ONCE):
        keys, summaries = zip(*items[first : first + GROUPS_AT_ONCE], strict=True)
        normed |= zip(keys, _scaled(summaries, plan, np.array([divisors[key] for key in keys])), strict=True)
    return normed


def factors(
    groups: Mapping[GroupKey, Summary],
    layouts: Layouts,
    plan: Plan,
    batch_mean: BatchMean = CANONICAL,
) -> dict[GroupKey, float]:
    """What each group's weights are divided by: the factor of its batch."""
    assert plan.weighting is not None
    token_scope = plan.weighting.scope == "token"
    batches: dict[Any, list[Summary]] = {}
    for (batch, *_), summary in groups.items():
        batches.setdefault(batch, []).append(summary)
    divisors = {
        batch: batch_mean.factor(TotalsView(total(summaries, layouts), plan), token_scope)
        for batch, summaries in batches.items()
    }
    return {key: divisors[key[0]] for key in groups}


def normed_layouts(layouts: Layouts, plan: Plan) -> Layouts:
    """Layouts with the normalised columns added to the plan's."""
    name = plan_block(plan)
    return {**layouts, name: _normed(layouts[name], ROLLOUTS in layouts)}


@lru_cache(maxsize=64)
def _normed(layout: Layout, by_rollout: bool) -> Layout:
    sums = tuple(f"normed.{name}" for name in _SUMS)
    sums += tuple(f"{ROLLOUT}normed.{name}" for name in _OF_ROLLOUTS if by_rollout)
    ends = ("normed.unit", "normed.seq", "normed.factor")
    return replace(layout, sums=layout.sums + sums, mins=layout.mins + ends, maxs=layout.maxs + ends)


def _scaled(summaries: Sequence[Summary], plan: Plan, factors: Floats) -> Iterator[Summary]:
    """Each with what its own factor makes of its weights; factors: f64[G]."""
    numbers, by_rollout = GroupTotals(summaries, plan), ROLLOUTS in summaries[0].blocks
    with np.errstate(invalid="ignore", over="ignore"):
        rows = [f"applied.{name}" for name in ("row_low", "row_high")]
        rows += [f"{ROLLOUT}applied.{name}" for name in _OF_ROLLOUTS if by_rollout]
        sums = np.stack([*_scaled_moments(numbers, factors), *(numbers.sum(name) / factors for name in rows)])
        lows = np.stack([*(numbers.min(f"applied.{name}") / factors for name in ("unit", "seq")), factors])
        highs = np.stack([*(numbers.max(f"applied.{name}") / factors for name in ("unit", "seq")), factors])
    lows[-1, numbers.tokens == 0], highs[-1, numbers.tokens == 0] = np.inf, -np.inf
    name = plan_block(plan)
    for i, summary in enumerate(summaries):
        block = summary.blocks[name]
        normed = replace(
            block,
            layout=_normed(block.layout, by_rollout),
            sums=np.append(block.sums, sums[:, i]),
            mins=np.append(block.mins, lows[:, i]),
            maxs=np.append(block.maxs, highs[:, i]),
        )
        yield replace(summary, blocks={**summary.blocks, name: normed})


def _scaled_moments(numbers: GroupTotals, factors: Floats) -> Iterator[Floats]:
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
