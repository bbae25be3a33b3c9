"""What a policy objective makes of a dump's training batches, as values."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.objective import (
    MISTAKES,
    OBJECTIVE,
    BatchObjective,
    Mistake,
    MistakeName,
    full_names,
    means,
    mistake_values,
    objective_values,
)
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.fields import Form, Key, Number, Scalar, computed
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.groups import Metrics
from rlcorr_cli.totals.families import Values
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import Numbers

MistakeNumbers = Annotated[Mapping[str, Number], Form(keys=("loss", "size", "cos"))]


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
    by_batch: Totals,
    plan: Plan,
    objective: Objective,
    *,
    batch_means: Mapping[Any, float],
    batch_by: str | None,
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
