"""OBJECTIVE: what a policy objective makes of a training batch, read from the totals of `measure/objectives.py`.

Sums are taken before the batch's divisor, and before the batch mean that weights may be divided by: both are scales,
and known here.  A dump of several training batches has the mean of each number over them.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.metric import Metric, evaluated

if TYPE_CHECKING:
    from rlcorr_cli.plans.objective import Objective
    from rlcorr_cli.totals.families import Value, Values
    from rlcorr_cli.totals.view import Numbers

PREFIX = "objective."


@frozen
class BatchObjective:
    """One training batch's totals as formulas read them.  batch_mean: what its weights are divided by."""

    numbers: "Numbers"
    objective: "Objective"
    batch_mean: float = 1.0

    @property
    def divisor(self) -> float:
        """N' or B': the tokens or sequences that are kept, or all valid ones; 1 of a sum, where any is kept."""
        if self.objective.is_sum:
            return float(self.sum("kept_tokens") > 0)
        return self._units(self.objective.divides_by_tokens, self.objective.denominator == "kept")

    @property
    def scale(self) -> float:
        """What takes a sum of losses or coefficients to the batch's; a ZeroDivisionError where nothing is kept."""
        return 1 / (self.divisor * (self.batch_mean if self.objective.takes_weights else 1.0))

    def scale_of(self, mistake: "Mistake") -> float:
        """The same for the coefficients of a mistake."""
        # In place of a sum over tokens, the mean of means of sequences.
        by_tokens = self.objective.divides_by_tokens != mistake.other_average and not self.objective.is_sum
        kept = self.objective.denominator == "kept" and not mistake.keeps_all
        weights = mistake.takes_weights or (self.objective.takes_weights and not mistake.keeps_all)
        units = 1.0 if self.objective.is_sum and not mistake.other_average else self._units(by_tokens, kept)
        return 1 / (units * (self.batch_mean if weights else 1.0))

    def sum(self, name: str) -> float:
        """A sum before any divisor."""
        return float(self.numbers.sum(PREFIX + name))

    def max(self, name: str) -> float:
        """A maximum before any divisor."""
        return float(self.numbers.max(PREFIX + name))

    def has(self, name: str) -> bool:
        """Whether the totals hold this sum."""
        return self.numbers.has(PREFIX + name)

    def cosine(self, other: str) -> float:
        """The cosine of the coefficients with others of the same tokens."""
        return self.sum(f"{other}.dot") / math.sqrt(self.sum("square") * self.sum(f"{other}.square"))

    def cosine_to_sequence_is(self) -> float:
        """The same with those under e^S, whose sums are logs."""
        half = (_log(self.sum("square")) + self.numbers.log(f"{PREFIX}sequence_is.square")) / 2
        positive, negative = (self.numbers.log(f"{PREFIX}sequence_is.{sign}") for sign in ("positive", "negative"))
        return math.exp(positive - half) - math.exp(negative - half)

    def largest_share(self) -> float:
        """The share of the sum of |c| in the largest hundredth of the sequences, rounded up."""
        return self.numbers.tail(f"{PREFIX}mass").largest_hundredth / self.sum("abs")

    def _units(self, by_tokens: bool, kept: bool) -> float:
        units = "tokens" if by_tokens else "sequences"
        return self.sum(f"kept_{units}") if kept else float(self.numbers.sum(units))


MistakeName = Literal["uncorrected", "twice", "average"]


@frozen(kw_only=True)
class Mistake:
    """A common mistake, whose coefficients stand beside the plan's.

    name: what its totals are called.  label: what tables call it.  keeps_all: whether it weights nothing and rejects
    nothing.  takes_weights: whether it weights whatever the objective does.  other_average: whether it divides by
    sequences where the objective divides by tokens, and the other way round.
    """

    name: MistakeName
    label: str
    meaning: str
    keeps_all: bool = False
    takes_weights: bool = False
    other_average: bool = False


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
        value=BatchObjective.largest_share,
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
        formula="cosine of c with what it is under w = e^S, unbounded and nothing rejected",
        unit="none",
        meaning="How near the step is to the unbiased one, which is mostly noise if seq_ess is small.",
        worry="A low value alone means nothing: without a correction it is about the square root of seq_ess, even "
        "without bias.",
        can_be_negative=True,
        value=BatchObjective.cosine_to_sequence_is,
    ),
)
"""The numbers of an objective, in the order reports show them.  Formulas read `BatchObjective`."""

MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        name="uncorrected",
        label="no correction",
        meaning="no correction: old is taken for the policy that sampled",
        keeps_all=True,
    ),
    Mistake(
        name="twice",
        label="correction applied twice",
        meaning="the correction applied twice: a ratio over the rollout's, and the weights",
        takes_weights=True,
    ),
    Mistake(
        name="average",
        label="sequence mean instead of token mean",
        meaning="the other average: over tokens for over sequences, or the other way round",
        other_average=True,
    ),
)


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


def objective_values(batch: BatchObjective) -> "Values":
    """Every number of one training batch; None where there is nothing to take it of."""
    return evaluated(OBJECTIVE, batch)


def mistake_values(batch: BatchObjective, mistake: Mistake) -> "Values":
    """What a mistake makes of one training batch: its loss, the length of its coefficients over that of the plan's, and
    the cosine of both."""
    from rlcorr_cli.totals.families import finite

    return {
        "loss": finite(lambda: batch.sum(f"{mistake.name}.loss") * batch.scale_of(mistake)),
        "size": finite(
            lambda: (
                math.sqrt(batch.sum(f"{mistake.name}.square") / batch.sum("square"))
                * batch.scale_of(mistake)
                / batch.scale
            )
        ),
        "cos": finite(lambda: batch.cosine(mistake.name)),
    }


def means(of_batches: "Sequence[Values]") -> "Values":
    """The mean of each number over the batches that have it."""
    means: Values = {}
    for name in of_batches[0]:
        present = [value for values in of_batches if (value := values[name]) is not None]
        means[name] = math.fsum(present) / len(present) if present else None
    return means


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
