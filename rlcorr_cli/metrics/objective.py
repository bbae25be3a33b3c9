"""OBJECTIVE: what a policy objective makes of a training batch; `results/objective.py` takes it of totals.

Sums are taken before the batch's divisor, and before the batch mean that weights may be divided by: both are scales,
and known there.  A dump of several training batches has the mean of each number over them.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, get_args

from rlcorr_cli.metrics.metric import Metric

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Value, Values

OBJECTIVE: tuple[Metric, ...] = (
    Metric(
        name="loss",
        formula="sum of z w L over kept tokens",
        unit="advantage",
        meaning="The objective's loss on the batch, as the trainer's first update would log it.",
        source="verl's actor/pg_loss",
        can_be_negative=True,
        value=lambda b: b.sum("loss") * b.scale,
    ),
    Metric(
        name="clip_fraction",
        formula="share of kept tokens whose clipped branch is strictly larger",
        unit="share",
        meaning="How many tokens the clip excludes from learning, because they have moved far enough already.",
        worry="0 in a dump without current_log_probs, and on the first minibatch: the ratio is 1 there.",
        source="verl's actor/pg_clipfrac",
        value=lambda b: b.sum("clipped") / b.sum("kept_tokens"),
    ),
    Metric(
        name="dual_clip_fraction",
        formula="share of kept tokens with A < 0 whose loss is above -A times dual_clip",
        unit="share",
        meaning="How many tokens the second clip protects from being pushed down without limit.",
        source="verl's actor/pg_clipfrac_lower",
        value=lambda b: b.sum("dual_clipped") / b.sum("kept_tokens"),
    ),
    Metric(
        name="coef_sum",
        formula="sum of c",
        unit="advantage",
        meaning="Whether the step makes the sampled tokens more likely in total (negative) or less likely (positive).",
        can_be_negative=True,
        value=lambda b: b.sum("coef") * b.scale,
    ),
    Metric(
        name="coef_abs_sum",
        formula="sum of |c|",
        unit="advantage",
        meaning="How hard the step pushes in total.",
        value=lambda b: b.sum("abs") * b.scale,
    ),
    Metric(
        name="coef_square_sum",
        formula="sum of c^2",
        unit="advantage^2",
        meaning="The squared length of the coefficients. The noise of the gradient grows with it.",
        value=lambda b: b.sum("square") * b.scale**2,
    ),
    Metric(
        name="coef_max_abs",
        formula="max |c|",
        unit="advantage",
        meaning="The hardest push on one token.",
        value=lambda b: b.max("abs") * b.scale,
    ),
    Metric(
        name="mass_positive",
        formula="sum of |c| where A > 0",
        unit="advantage",
        meaning="How much of the push is towards responses that were better than expected.",
        value=lambda b: b.sum("positive") * b.scale,
    ),
    Metric(
        name="mass_negative",
        formula="sum of |c| where A < 0",
        unit="advantage",
        meaning="How much of the push is away from responses that were worse than expected.",
        worry="Far above mass_positive: the step mostly unlearns, and training may become unstable.",
        value=lambda b: b.sum("negative") * b.scale,
    ),
    Metric(
        name="top_1pct_share",
        formula="share of sum of |c| in the largest hundredth of the sequences by M, rounded up",
        unit="share",
        meaning="How much of the push comes from a few sequences.",
        worry="Near 1: one sequence in a hundred decides the step.",
        value=lambda b: b.largest_share(),
    ),
    Metric(
        name="effective_sequences",
        formula="(sum M)^2 / sum M^2",
        unit="sequences",
        meaning="How many sequences of equal push would give an equally noisy step.",
        source="Kish's effective sample size",
        value=lambda b: b.sum("abs") ** 2 / b.sum("mass_square"),
    ),
    Metric(
        name="cos_to_none",
        formula="cosine of c with what it is without weights and rejections",
        unit="none",
        meaning="How far the plan changes the direction of the step: 1 means not at all.",
        can_be_negative=True,
        value=lambda b: b.cosine("uncorrected"),
    ),
    Metric(
        name="cos_to_sequence_is",
        formula="cosine of c with what it is under weights e^S, unbounded and nothing rejected",
        unit="none",
        meaning="How near the step is to the unbiased one, which is mostly noise if seq_ess is small.",
        worry="A low value alone means nothing: without a correction it is about the square root of seq_ess, even "
        "without bias.",
        can_be_negative=True,
        value=lambda b: b.cosine_to_sequence_is(),
    ),
)
"""The numbers of an objective, in the order reports show them.  Formulas read `BatchObjective`."""


def full_name(objective: str, name: str) -> str:
    """A number's name beside other metrics, in tables and rules: 'objective/ppo/loss'."""
    return f"objective/{objective}/{name}"


def full_names(values: "Mapping[str, Value]", objective: str) -> "Values":
    """The same numbers by their full names."""
    return {full_name(objective, name): value for name, value in values.items()}


@cache
def by_full_name() -> Mapping[str, Metric]:
    """Every number of every objective."""
    from rlcorr_cli.plans.objective import ObjectiveName

    return {full_name(objective, metric.name): metric for objective in get_args(ObjectiveName) for metric in OBJECTIVE}
