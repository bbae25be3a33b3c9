"""What a policy objective makes of a dump's training batches, as values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.metrics.objective import (
    MISTAKES,
    OBJECTIVE,
    BatchObjective,
    Mistake,
    full_names,
    means,
    mistake_values,
    objective_values,
)
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.families import Values
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import Numbers


@dataclass(frozen=True, kw_only=True)
class ObjectiveBatch:
    """One training batch.  batch: its value of the column of batches.  divisor: what its sums are divided by.
    mistakes: by name, as of `mistake_values`."""

    batch: Any
    divisor: float
    metrics: Mapping[str, float | None]
    mistakes: Mapping[str, Mapping[str, float | None]]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "batch": plain(self.batch),
            "divisor": self.divisor,
            "metrics": dict(self.metrics),
            "mistakes": {name: dict(values) for name, values in self.mistakes.items()},
        }


@dataclass(frozen=True, kw_only=True)
class ObjectiveReport:
    """An objective's numbers; every one is the mean over the training batches that have it.

    batch_by: the dump's column of batches, None where all of it is one.  moved: whether the current policy has left
    the old one, in which it is: without current_log_probs every ratio is 1.
    """

    objective: Objective
    batch_by: str | None
    moved: bool
    batches: tuple[ObjectiveBatch, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ObjectiveReport":
        """What `to_dict` wrote; a ValueError where a batch lacks a number."""
        batches = tuple(ObjectiveBatch(**batch) for batch in data["batches"])
        names = {metric.name for metric in OBJECTIVE}
        if any(set(batch.metrics) != names or set(batch.mistakes) != set(batches[0].mistakes) for batch in batches):
            raise ValueError("objective: a batch lacks numbers that others have")
        objective = Objective(**data["settings"])
        return cls(objective=objective, batch_by=data["batch_by"], moved=data["moved"], batches=batches)

    @property
    def metrics(self) -> Values:
        """Every number by name."""
        return means([dict(batch.metrics) for batch in self.batches])

    @property
    def named_metrics(self) -> Values:
        """The same by the names that tell objectives apart."""
        return full_names(self.metrics, self.objective.name)

    @property
    def mistakes(self) -> dict[str, Values]:
        """What each mistake that the plan allows for would make of it."""
        names = self.batches[0].mistakes
        return {name: means([dict(batch.mistakes[name]) for batch in self.batches]) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        meanings = {mistake.name: mistake.meaning for mistake in MISTAKES}
        return {
            "settings": self.objective.to_dict(),
            "batch_by": self.batch_by,
            "moved": self.moved,
            "metrics": self.metrics,
            "mistakes": [{"name": name, "meaning": meanings[name], **of} for name, of in self.mistakes.items()],
            "batches": [batch.to_dict() for batch in self.batches],
        }


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


def plain(batch: Any) -> Any:
    """A batch's value as JSON has it: dates and infinities as text."""
    is_plain = isinstance(batch, int | str | None) or (isinstance(batch, float) and math.isfinite(batch))
    return batch if is_plain else str(batch)
