"""`rlcorr compare`: several corrections on one dump, and which to take; or several dumps under one correction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlcorr_cli.cli import comparing_options as c
from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.objective_options import ObjectiveOptions
from rlcorr_cli.cli.option_groups import ComputingOptions, ReadingOptions, plan_file
from rlcorr_cli.errors import UsageError

if TYPE_CHECKING:
    from rlcorr_cli.api import PlanLike


def compare(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    compute: ComputingOptions,
    objective: ObjectiveOptions,
    preset: c.PresetNames = None,
    plan: c.PlanPaths = None,
    all: c.AllPresets = False,
    side_by_side: c.SideBySide = False,
    sort: c.SortBy = None,
    group_by: o.GroupBy = None,
    cluster_by: o.ClusterBy = None,
    seed: o.Seed = 0,
    json: o.Json = False,
    output: c.SheetOutputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """See what each correction would leave of a dump, and which to take."""
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.stdout import emit_json
    from rlcorr_cli.show.terminal.side_by_side import print_side_by_side

    plans: list[PlanLike] = [*(preset or ()), *map(plan_file, plan or ())]
    if side_by_side:
        of_many = {"--group-by": group_by, "--objective": objective != ObjectiveOptions(), "--sort": sort, "--all": all}
        sides = api.compare_dumps(
            dumps,
            _only(plans, [option for option, value in of_many.items() if value]),
            cluster_by=cluster_by,
            seed=seed,
            output=output or (),
            watch=shared.watch(quiet),
            **read.arguments(),
            **compute.arguments(),
        )
        return emit_json(sides.to_dict()) if json else print_side_by_side(sides)
    comparison = api.compare(
        dumps,
        plans,
        all=all,
        objective=None if objective == ObjectiveOptions() else objective.of_plan,
        group_by=group_by or (),
        cluster_by=cluster_by,
        seed=seed,
        output=output or (),
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    return emit_json(comparison.to_dict()) if json else print_result(comparison, sort=sort or "worth")


def _only(plans: "Sequence[PlanLike]", of_many: Sequence[str]) -> "PlanLike | None":
    """The one plan that dumps stand beside each other under, if any.  of_many: options of many plans on one dump."""
    if of_many:
        raise UsageError(
            f"{of_many[0]} is of plans on one dump, and --side-by-side is of dumps under one plan.",
            "Leave one of the two out.",
        )
    if len(plans) > 1:
        raise UsageError(
            "Dumps stand side by side under one plan, and more than one is named.", "Keep one --preset or --plan."
        )
    return plans[0] if plans else None
