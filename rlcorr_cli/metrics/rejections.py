"""rollout_rs_* and kept_*: what a plan's rejections take, each by itself and all together, and what they leave."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcorr_cli.metrics.definition import Definition
from rlcorr_cli.plans.plan import Bounds
from rlcorr_cli.totals.families import StatisticFamily, Value

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers


@dataclass(frozen=True, kw_only=True)
class RejectionMetric(Definition):
    """A definition with its computation from a rejection's family of totals and its bounds."""

    value: Callable[[StatisticFamily, Bounds], Value]


@dataclass(frozen=True, kw_only=True)
class FamilyMetric(Definition):
    """A definition with its computation from one family of totals."""

    value: Callable[[StatisticFamily], Value]


@dataclass(frozen=True, kw_only=True)
class KeptMetric(Definition):
    """A definition with its computation from the totals of the kept tokens."""

    value: Callable[["Numbers"], Value]


_VERL = "verl's rollout correction metrics"
_OWN_UNIT = "the statistic's own"

EACH_REJECTION: tuple[RejectionMetric, ...] = (
    RejectionMetric(
        name="mean",
        formula="mean x over tokens or sequences",
        unit=_OWN_UNIT,
        meaning="The mean of the statistic that this rejection bounds.",
        worry="Beyond a bound: it rejects what is ordinary, and keeps the exceptions.",
        source=_VERL,
        value=lambda family, bounds: family.unit_mean(),
    ),
    RejectionMetric(
        name="std",
        formula="population std of x over tokens or sequences",
        unit=_OWN_UNIT,
        meaning="How unequal the statistic is; bounds tighter than this reject most of the batch.",
        source=_VERL,
        value=lambda family, bounds: family.unit_std(),
    ),
    RejectionMetric(
        name="min",
        formula="min x",
        unit=_OWN_UNIT,
        meaning="The smallest value of the statistic that this rejection bounds.",
        source=_VERL,
        value=lambda family, bounds: family.min(),
    ),
    RejectionMetric(
        name="max",
        formula="max x",
        unit=_OWN_UNIT,
        meaning="The largest value of the statistic that this rejection bounds.",
        source=_VERL,
        value=lambda family, bounds: family.max(),
    ),
    RejectionMetric(
        name="fraction_high",
        formula="share of tokens or sequences with x > high",
        unit="share",
        ideal=0.0,
        meaning="How many tokens, or sequences, this rejection drops for lying above its bound.",
        source=_VERL,
        value=lambda family, bounds: family.fraction("high", bounds.high is not None),
    ),
    RejectionMetric(
        name="fraction_low",
        formula="share of tokens or sequences with x < low",
        unit="share",
        ideal=0.0,
        meaning="How many tokens, or sequences, this rejection drops for lying below its bound.",
        worry="Far from fraction_high: the bounds are off the middle of the data, and select by the sign of the gap.",
        source=_VERL,
        value=lambda family, bounds: family.fraction("low", bounds.low is not None),
    ),
    RejectionMetric(
        name="masked_fraction",
        formula="share of tokens that this rejection drops",
        unit="share",
        ideal=0.0,
        meaning="How many tokens this rejection would drop if it were the only one.",
        source=_VERL,
        value=lambda family, bounds: family.per_token("masked"),
    ),
    RejectionMetric(
        name="seq_masked_fraction",
        formula="share of sequences of which this rejection drops any token",
        unit="share",
        ideal=0.0,
        meaning="How many sequences this rejection would touch if it were the only one.",
        source=_VERL,
        value=lambda family, bounds: family.per_sequence("seq_masked"),
    ),
)
"""rollout_rs_{rejection}_{name}, of every rejection and budget of a plan."""

ALL_REJECTIONS: tuple[FamilyMetric, ...] = (
    FamilyMetric(
        name="rollout_rs_masked_fraction",
        formula="share of tokens that any rejection drops",
        unit="share",
        ideal=0.0,
        meaning="How much of the batch all rejections together drop.",
        source=_VERL,
        value=lambda lost: lost.per_token("masked"),
    ),
    FamilyMetric(
        name="rollout_rs_seq_masked_fraction",
        formula="share of sequences that lose any token",
        unit="share",
        ideal=0.0,
        meaning="How many sequences all rejections together touch.",
        source=_VERL,
        value=lambda lost: lost.per_sequence("seq_masked"),
    ),
    FamilyMetric(
        name="rollout_rs_seq_dropped_fraction",
        formula="share of sequences with no token left",
        unit="share",
        ideal=0.0,
        meaning="How many sequences are gone after all rejections.",
        worry="Above 0.3: the batch is much smaller than the trainer's settings assume.",
        value=lambda lost: lost.per_sequence("seq_dropped"),
    ),
)
"""Of all rejections together."""

VETO: tuple[FamilyMetric, ...] = (
    FamilyMetric(
        name="rollout_is_veto_fraction",
        formula="share of sequences with min rho < veto",
        unit="share",
        ideal=0.0,
        meaning="How many sequences hold a token that the training policy finds all but impossible.",
        source=_VERL,
        value=lambda family: family.per_sequence("seq_masked"),
    ),
    FamilyMetric(
        name="rollout_is_catastrophic_token_fraction",
        formula="share of tokens with rho < veto",
        unit="share",
        ideal=0.0,
        meaning="How many tokens the training policy finds all but impossible.",
        source=_VERL,
        value=lambda family: family.per_token("catastrophic"),
    ),
)
"""Of a veto, whose ratios are never limited."""

KEPT: tuple[KeptMetric, ...] = (
    KeptMetric(
        name="kept_tokens",
        formula="number of tokens that all rejections keep",
        unit="tokens",
        meaning="The tokens that are left to learn from.",
        value=lambda kept: kept.tokens,
    ),
    KeptMetric(
        name="kept_sequences",
        formula="number of sequences with a kept token",
        unit="sequences",
        meaning="The sequences that are left to learn from.",
        value=lambda kept: kept.sequences,
    ),
)
"""Of what all rejections together leave; beside them, kept_NAME is the diagnostic NAME over the kept tokens."""
