"""comparison_totals(): several plans on one dump, in one reading."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import NO_BATCH, PlanColumns, ReadRequest
from rlcorr_cli.results.compared import ComparisonRun, NamedPlan, Skipped
from rlcorr_cli.runs.analyze import measure, sampling_of
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.reading import OpenDump, anomalies_of, check_quarantine, one_reading
from rlcorr_cli.totals.comparison import uncorrected
from rlcorr_cli.totals.totals import GroupKey

NO_ADVANTAGES = "The dump has no advantages: each counts as 1, so rewards of the two policies cannot be compared."


def comparison_totals(
    read: OpenDump,
    chosen: Sequence[ChosenPlan],
    *,
    named: bool,
    objectives: Mapping[Plan, Objective] | None = None,
    seed: int | None = 0,
) -> ComparisonRun:
    """Measure plans on a dump.

    objectives: one for each plan, if any.  named: whether plans were asked for, and are not the default list.

    Plans whose columns the dump lacks are skipped; one that is left at least.
    """
    dump, computing = read.dump, read.computing
    check_quarantine(dump)
    reasons = [(each, lacking(dump, each.plan)) for each in _distinct(chosen, named=named)]
    plans = [each for each, why in reasons if not why]
    skipped = tuple(Skipped(each.name, why) for each, why in reasons if why)
    if not plans:
        why = "; ".join(f"{each.name}: {each.why}" for each in skipped[:3])
        raise DataError(f"No plan is left to compare. {why}.", "Name another with ⟦preset⟧, or the column with ⟦map⟧.")
    # And no correction in each of their modes, which tells how the advantages shift.
    modes: dict[Mode, None] = dict.fromkeys(each.plan.mode for each in plans)
    all_plans = [*(each.plan for each in plans), *map(uncorrected, modes)]
    observed = tuple({plan.id: plan for plan in reversed(all_plans)}.values())[::-1]
    of_plans = {named_plan.plan: objectives[named_plan.plan] for named_plan in plans} if objectives else {}
    observation = Observation(plans=observed, seed=seed, objectives=of_plans, compares=True)
    anomalies = anomalies_of(dump, computing)
    bounds: dict[str, Mapping[GroupKey, float]] = {}
    for plan in observed:
        bounds.update(search_budgets(dump, plan, computing).bounds)
    with one_reading(read) as reading:
        measured = measure(reading, observation, bounds=bounds, sampling=sampling_of(dump, plans[0].plan.mode))
        reading.check()
        notes = [*dump.notes, *(_plan_notes(chosen, skipped) if named else ())]
        if dump.roles.advantages is None:
            notes.append(NO_ADVANTAGES)
        return ComparisonRun(
            measured=measured,
            plans=tuple(plans),
            skipped=skipped,
            objectives=tuple(of_plans.values()),
            has_advantages=dump.roles.advantages is not None,
            inputs=reading.inputs,
            notes=tuple(dict.fromkeys(notes)),
            problems=reading.log.counts,
            anomalies=anomalies,
        )


def comparison_columns(request: ReadRequest, plans: Sequence[Plan], has_objectives: bool = False) -> PlanColumns:
    """What all plans together read, and objectives; advantages and a third policy where the dump has them.

    Decoupled, because a dump is opened so whichever trained policy it holds, and plans of the other mode are told apart
    afterwards.
    """
    batched, column = has_objectives or any(plan.batched for plan in plans), request.batch_by
    batch = None if not batched or column == NO_BATCH else column or "step"
    return PlanColumns(
        mode="decoupled",
        needed=("advantages",) if has_objectives else (),
        wanted=("advantages",),
        batch=batch,
        batch_required=batched and column not in (None, NO_BATCH),
        clusters=True,
        levels=True,
    )


def _distinct(chosen: Iterable[ChosenPlan], *, named: bool) -> list[NamedPlan]:
    """Equal plans once, with all their names."""
    plans: dict[str, NamedPlan] = {}
    for each in chosen:
        known = plans.get(each.plan.id)
        if known is None:
            plans[each.plan.id] = NamedPlan(each.plan.name, each.plan, is_named=named)
        elif each.plan.name != known.name:
            also = tuple(dict.fromkeys((*known.also, each.plan.name)))
            plans[each.plan.id] = replace(known, also=also)
    budgets = Counter(budget.name for plan in plans.values() for budget in plan.plan.budgets)
    for name, count in budgets.items():
        if count > 1:
            raise UsageError(
                f"Two plans keep a budget called {name}, and each budget needs a name of its own.",
                "Compare one of them at a time, or rename it in a plan file.",
            )
    return list(plans.values())


def _plan_notes(chosen: Sequence[ChosenPlan], skipped: Sequence[Skipped]) -> list[str]:
    """The notes of the plans that are compared, one that several have once, with all their names."""
    left_out = {plan.name for plan in skipped}
    names_of: dict[str, list[str]] = {}
    for each in chosen:
        of_plan = f"{each.plan.name}: "
        for note in each.notes if each.plan.name not in left_out else ():
            names_of.setdefault(note.removeprefix(of_plan), []).extend([each.plan.name] * note.startswith(of_plan))
    return [f"{', '.join(dict.fromkeys(names))}: {note}" if names else note for note, names in names_of.items()]


def lacking(dump: Dump, plan: Plan) -> str:
    """What a plan needs and the dump has not; empty where it has all."""
    if plan.mode == "bypass" and not dump.has("current_log_probs"):
        return "bypass mode compares current_log_probs, which the dump lacks"
    if "current_log_probs" in plan.needs and dump.roles.current is None:
        return "it looks at current_log_probs beside old_log_probs, which the dump lacks"
    if "advantages" in plan.needs and dump.roles.advantages is None:
        return "it looks at advantages, which the dump lacks"
    return ""
