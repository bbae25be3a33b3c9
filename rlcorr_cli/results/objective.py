"""What a policy objective makes of a dump's training batches, as values: read of the totals of `measure/objectives.py`,
by the rows of `metrics/objective.py`."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.metric import evaluated
from rlcorr_cli.metrics.objective import OBJECTIVE, full_names
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.fields import Form, Key, Number, Scalar, computed
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.groups import Metrics
from rlcorr_cli.totals.limits import log
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import Numbers, Values, finite

PREFIX = "objective."


@frozen
class BatchObjective:
    """One training batch's totals as formulas read them.  batch_mean: what its weights are divided by."""

    numbers: Numbers
    objective: Objective
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
        half = (log(self.sum("square")) + self.numbers.log(f"{PREFIX}sequence_is.square")) / 2
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


def objective_values(batch: BatchObjective) -> Values:
    """Every number of one training batch; None where there is nothing to take it of."""
    return evaluated(OBJECTIVE, batch)


def mistake_values(batch: BatchObjective, mistake: Mistake) -> Values:
    """What a mistake makes of one training batch: its loss, the length of its coefficients over that of the plan's, and
    the cosine of both."""

    def size() -> float:
        unscaled = math.sqrt(batch.sum(f"{mistake.name}.square") / batch.sum("square"))
        return unscaled * batch.scale_of(mistake) / batch.scale

    return {
        "loss": finite(lambda: batch.sum(f"{mistake.name}.loss") * batch.scale_of(mistake)),
        "size": finite(size),
        "cos": finite(lambda: batch.cosine(mistake.name)),
    }


def means(of_batches: Sequence[Values]) -> Values:
    """The mean of each number over the batches that have it."""
    means: Values = {}
    for name in of_batches[0]:
        present = [value for values in of_batches if (value := values[name]) is not None]
        means[name] = math.fsum(present) / len(present) if present else None
    return means


MistakeNumbers = Annotated[Mapping[str, Number], Form(name="mistake_numbers", keys=("loss", "size", "cos"))]


@frozen(kw_only=True)
class MistakeReport(Record):
    """What a common mistake would make of it; size and cos compare its coefficients with the plan's."""

    name: MistakeName
    meaning: str
    loss: float | None
    size: float | None
    cos: float | None


@frozen(kw_only=True)
class ObjectiveBatch(Record):
    """One training batch.  batch: its value of the column of batches.  divisor: what its sums are divided by.
    mistakes: by name, as of `mistake_values`."""

    batch: Scalar
    divisor: float
    metrics: Metrics
    mistakes: Mapping[MistakeName, MistakeNumbers]


@frozen(kw_only=True)
class ObjectiveReport(Record):
    """An objective's numbers; every one is the mean over the training batches that have it.

    batch_by: the dump's column of batches, None where all of it is one.  moved: whether the current policy has left
    the old one, in which it is: without current_log_probs every ratio is 1.
    """

    objective: Annotated[Objective, Key(name="settings")]
    batch_by: str | None
    moved: bool
    batches: Annotated[tuple[ObjectiveBatch, ...], Form(least=1)]

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """What JSON has; a ValueError where a batch lacks a number."""
        made = super().of_keys(values)
        names = {metric.name for metric in OBJECTIVE}
        first = set(made.batches[0].mistakes)
        if any(set(batch.metrics) != names or set(batch.mistakes) != first for batch in made.batches):
            raise ValueError("objective: a batch lacks numbers that others have")
        return made

    @property
    @computed(after="moved")
    def metrics(self) -> Metrics:
        """Every number by name."""
        return means([dict(batch.metrics) for batch in self.batches])

    @property
    def named_metrics(self) -> Values:
        """The same by the names that tell objectives apart."""
        return full_names(dict(self.metrics), self.objective.name)

    @property
    def mistakes(self) -> dict[MistakeName, Values]:
        """What each mistake that the plan allows for would make of it."""
        names = self.batches[0].mistakes
        return {name: means([dict(batch.mistakes[name]) for batch in self.batches]) for name in names}

    @property
    @computed("What common mistakes would make of it.", name="mistakes", after="metrics")
    def named_mistakes(self) -> tuple[MistakeReport, ...]:
        """The same, with what each mistake is."""
        meanings = {mistake.name: mistake.meaning for mistake in MISTAKES}
        return tuple(MistakeReport(name=name, meaning=meanings[name], **of) for name, of in self.mistakes.items())


def objective_report(
    by_batch: Totals, plan: Plan, objective: Objective, *, batch_means: Mapping[Any, float], batch_by: str | None
) -> ObjectiveReport:
    """Of each training batch's totals, in their order.  batch_means: what weights are divided by, where they are."""
    batches: list[ObjectiveBatch] = []
    moved = False
    for at, (batch,) in enumerate(by_batch.keys):
        numbers = Numbers.of_plan(by_batch, plan, at)
        if not numbers.tokens:
            continue
        moved = objective.mode == "bypass" or numbers.has("drift.ratio")
        of_batch = BatchObjective(numbers, objective, batch_means.get(batch, 1.0))
        present = [mistake for mistake in MISTAKES if _is_mistake(mistake, of_batch, plan)]
        batches.append(
            ObjectiveBatch(
                batch=batch,
                divisor=of_batch.divisor,
                metrics=objective_values(of_batch),
                mistakes={mistake.name: mistake_values(of_batch, mistake) for mistake in present},
            )
        )
    return ObjectiveReport(objective=objective, batch_by=batch_by, moved=moved, batches=tuple(batches))


def group_objectives(
    totals: Totals, plan: Plan, objective: Objective, *, batch_means: Mapping[Any, float]
) -> dict[tuple[Any, ...], Values]:
    """Each group's numbers by its values, as though its rows alone were the training batch: what divides is its own.

    Means over the batches that have it; batch_means as of `objective_report`.
    """
    of_batches: dict[tuple[Any, ...], list[Values]] = {}
    for at, (batch, *values) in enumerate(totals.keys):
        numbers = Numbers.of_plan(totals, plan, at)
        if numbers.tokens:
            of_batch = objective_values(BatchObjective(numbers, objective, batch_means.get(batch, 1.0)))
            of_batches.setdefault(tuple(values), []).append(full_names(of_batch, objective.name))
    return {values: means(each) for values, each in of_batches.items()}


def _is_mistake(mistake: Mistake, of_batch: BatchObjective, plan: Plan) -> bool:
    """Whether it was measured, and departs from the plan at all."""
    corrects = plan.mode == "bypass" or plan.weighting is not None or bool(plan.rules)
    return of_batch.has(f"{mistake.name}.dot") and (corrects or not mistake.keeps_all)
