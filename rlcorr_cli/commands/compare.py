"""`rlcorr compare`: several corrections on one dump, and which to take."""

from typing import TYPE_CHECKING

from rlcorr_cli.commands import comparing_options as c
from rlcorr_cli.commands import options as o
from rlcorr_cli.commands.objective_options import ObjectiveOptions
from rlcorr_cli.commands.option_groups import ComputingOptions, ReadingOptions, plan_file

if TYPE_CHECKING:
    from rlcorr_cli.commands.choosing import PlanLike


def compare(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    compute: ComputingOptions,
    objective: ObjectiveOptions,
    preset: c.PresetNames = None,
    plan: c.PlanPaths = None,
    all: c.AllPresets = False,
    sort: c.SortBy = "worth",
    group_by: o.GroupBy = None,
    cluster_by: o.ClusterBy = None,
    seed: o.Seed = 0,
    json: o.Json = False,
    output: c.SheetOutputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """See what each correction would leave of a dump, and which to take."""
    from rlcorr_cli.commands import comparing as api
    from rlcorr_cli.commands import shared
    from rlcorr_cli.show.stdout import emit_json
    from rlcorr_cli.show.terminal.compared import print_comparison

    plans: list[PlanLike] = [*(preset or ()), *map(plan_file, plan or ())]
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
    return emit_json(comparison.to_dict()) if json else print_comparison(comparison, sort)
