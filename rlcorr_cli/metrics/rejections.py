"""rollout_rs_* and kept_*: what a plan's rejections take, each by itself and all together, and what they leave."""

from functools import partial
from typing import TYPE_CHECKING

from rlcorr_cli.metrics.metric import Metric, zero_share
from rlcorr_cli.plans.plan import STATISTICS, Plan

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers, StatisticFamily


def each_rejection(numbers: "Numbers", plan: Plan) -> "dict[str, StatisticFamily]":
    """The statistic of every rejection and budget of a plan, by what its metrics' names begin with."""
    from rlcorr_cli.totals.view import family_of

    families: dict[str, StatisticFamily] = {}
    for rule in plan.rules:
        where_equal = STATISTICS[rule.statistic].where_equal
        family = family_of(numbers, f"rs.{rule.name}.", rule.scope == "token", where_equal, bounds=rule.bounds)
        families[f"{EACH}{rule.name}_"] = family
    return families


def all_rejections(numbers: "Numbers") -> "StatisticFamily":
    """What all rejections together drop."""
    from rlcorr_cli.totals.view import family_of

    return family_of(numbers, "rs.", True, 0.0)


def veto_of(numbers: "Numbers", plan: Plan) -> "StatisticFamily":
    """What the veto of a plan that has one drops."""
    from rlcorr_cli.totals.view import family_of

    veto = next(rejection for rejection in plan.rejections if rejection.is_veto)
    return family_of(numbers, f"rs.{veto.name}.", False, 1.0)


EACH = "rollout_rs_"
"""What the name of a metric of one rejection begins with, before the rejection's own."""
_VERL = "verl's rollout correction metrics"
_of_statistic = partial(Metric, unit="the statistic's own", source=_VERL)
_lost_share = partial(zero_share, source=_VERL)

EACH_REJECTION: tuple[Metric, ...] = (
    _of_statistic(
        name="mean",
        formula="mean x over tokens or sequences",
        meaning="The mean of the statistic that this rejection bounds.",
        worry="Outside the bounds: the rejection drops what is ordinary and keeps the exceptions.",
        value=lambda x: x.unit_mean(),
    ),
    _of_statistic(
        name="std",
        formula="population std of x over tokens or sequences",
        meaning="How unequal the statistic is. Bounds that are tighter than this reject most of the batch.",
        value=lambda x: x.unit_std(),
    ),
    _of_statistic(
        name="min",
        formula="min x",
        meaning="The smallest value of the statistic that this rejection bounds.",
        value=lambda x: x.min(),
    ),
    _of_statistic(
        name="max",
        formula="max x",
        meaning="The largest value of the statistic that this rejection bounds.",
        value=lambda x: x.max(),
    ),
    _lost_share(
        name="fraction_high",
        formula="share of tokens or sequences with x > high",
        meaning="How many tokens, or sequences, this rejection drops because they are above its high bound.",
        value=lambda x: x.fraction("high") if x.bounds.high is not None else None,
    ),
    _lost_share(
        name="fraction_low",
        formula="share of tokens or sequences with x < low",
        meaning="How many tokens, or sequences, this rejection drops because they are below its low bound.",
        worry="Far from fraction_high: the bounds are not centred on the data, so they select by the sign of the gap.",
        value=lambda x: x.fraction("low") if x.bounds.low is not None else None,
    ),
    _lost_share(
        name="masked_fraction",
        formula="share of tokens that this rejection drops",
        meaning="How many tokens this rejection would drop if it were the only one.",
        value=lambda x: x.per_token("masked"),
    ),
    _lost_share(
        name="seq_masked_fraction",
        formula="share of sequences that lose any token to this rejection",
        meaning="How many sequences would lose a token if this rejection were the only one.",
        value=lambda x: x.per_sequence("seq_masked"),
    ),
)
"""rollout_rs_{rejection}_{name}, of every rejection and budget of a plan.  Formulas read its family."""

ALL_REJECTIONS: tuple[Metric, ...] = (
    _lost_share(
        name="rollout_rs_masked_fraction",
        formula="share of tokens that any rejection drops",
        meaning="How much of the batch all rejections together drop.",
        value=lambda lost: lost.per_token("masked"),
        shown={"course": 6, "groups": 8},
    ),
    _lost_share(
        name="rollout_rs_seq_masked_fraction",
        formula="share of sequences that lose any token",
        meaning="How many sequences lose a token to any rejection.",
        value=lambda lost: lost.per_sequence("seq_masked"),
    ),
    zero_share(
        name="rollout_rs_seq_dropped_fraction",
        formula="share of sequences with no token left",
        meaning="How many sequences are gone after all rejections.",
        worry="Above 0.3: the batch is much smaller than the trainer's settings assume.",
        value=lambda lost: lost.per_sequence("seq_dropped"),
    ),
)
"""Of all rejections together.  Formulas read `all_rejections`."""

VETO: tuple[Metric, ...] = (
    _lost_share(
        name="rollout_is_veto_fraction",
        formula="share of sequences with min rho < veto",
        meaning="How many sequences have a token that is almost impossible under the training policy.",
        value=lambda veto: veto.per_sequence("seq_masked"),
    ),
    _lost_share(
        name="rollout_is_catastrophic_token_fraction",
        formula="share of tokens with rho < veto",
        meaning="How many tokens are almost impossible under the training policy.",
        value=lambda veto: veto.per_token("catastrophic"),
    ),
)
"""Of a veto, whose ratios are never limited.  Formulas read `veto_of`."""

KEPT: tuple[Metric, ...] = (
    Metric(
        name="kept_tokens",
        formula="number of tokens that all rejections keep",
        unit="tokens",
        meaning="The tokens that are left to learn from.",
        value=lambda kept: kept.tokens,
    ),
    Metric(
        name="kept_sequences",
        formula="number of sequences with kept tokens",
        unit="sequences",
        meaning="The sequences that are left to learn from.",
        value=lambda kept: kept.sequences,
    ),
)
"""Of what all rejections together leave, from the totals of the kept tokens; beside them,
kept_NAME is the diagnostic NAME over the kept tokens."""
