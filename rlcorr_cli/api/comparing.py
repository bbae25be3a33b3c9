"""`compare`: several plans on one dump, and which to take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcorr_cli.api.arguments import Files, Names, Paths, computing, refuse_outside, request
from rlcorr_cli.api.choosing import ObjectiveLike, PlanLike, choose_objective, choose_plan
from rlcorr_cli.api.touched import check_touched, quarantines, sheet_files
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.plans.presets.compared import COMPARED
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import MOST_SEED, EngineName
from rlcorr_cli.results.compared import Comparison
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.runs.analyze import Watch


@speaks_of_arguments
def compare(
    dumps: Paths,
    plans: PlanLike | Sequence[PlanLike] = (),
    *,
    all: bool = False,
    objective: "ObjectiveLike | Callable[[ChosenPlan], Objective] | None" = None,
    group_by: Names = (),
    cluster_by: str | None = None,
    seed: int = 0,
    output: Files = (),
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    watch: "Watch | None" = None,
) -> Comparison:
    """See what each of several plans leaves of a dump and what it costs, and which to take, in one reading.

    plans: plans, names of presets or files; none for verl's presets and one of every other framework.  all: every
    preset.  objective: a policy objective whose numbers stand beside each plan: a name, one that was chosen (its mode
    is the plan's), or what chooses one for each plan; takes advantages.  output: files that the comparison is written
    to.  Plans whose columns the dump lacks are skipped, and `skipped` of the result says why.  The rest as of
    `analyze`.
    The result's `recommendation` names the plan to take with its reasons, or says why none can be named;
    `whole.plans` hold every plan's columns by name, `groups` those of each group.
    """
    from rlcorr_cli.runs import compare as comparing

    refuse_outside(0, MOST_SEED, seed=seed)
    chosen = _chosen(plans, everything=all)
    reading = request(
        dumps,
        group_by=group_by,
        cluster_by=cluster_by,
        format=format,
        columns=columns,
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows,
    )
    outputs = sheet_files(output)
    compared_plans = chosen or default_plans()
    places = [place for path in outputs for place in forms.sheet_destinations(path)]
    notes = check_touched((*places, *quarantines(bad_rows)), reading.paths, plans=chosen)
    with (
        Outputs() as staging,
        computing(
            device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
        ) as compute,
    ):
        comparison = comparing.compare(
            reading,
            compared_plans,
            named=bool(chosen),
            objectives=_objectives(compared_plans, objective),
            computing=compute,
            seed=seed,
            watch=watch,
            staging=staging,
        )
        comparison = replace(comparison, notes=comparison.notes + notes)
        for path in outputs:
            forms.write(comparison, path, staging)
        staging.publish()
    return comparison


def default_plans() -> list[ChosenPlan]:
    """The plans that are compared where none is asked for."""
    return [ChosenPlan(plan=row.plan, notes=row.notes) for row in COMPARED]


def _objectives(chosen: Sequence[ChosenPlan], objective: Any) -> dict[Plan, Objective]:
    """Plan -> its objective; none where none is asked for."""
    if objective is None:
        return {}
    if isinstance(objective, Objective):
        return {each.plan: replace(objective, mode=each.plan.mode) for each in chosen}
    choose: Any = objective if callable(objective) else partial(choose_objective, objective=objective)
    return {each.plan: choose(each) for each in chosen}


def _chosen(plans: Any, *, everything: bool) -> list[ChosenPlan]:
    """The plans asked for; none for the default list."""
    single = isinstance(plans, (str, Path, Plan, ChosenPlan, Mapping))
    listed = [plans] if single else list(plans)
    listed += [name for name in PRESETS if everything]
    return [choose_plan(plan) for plan in listed]
