"""`rlcorr compare`: several corrections on one dump, and which to take."""

from pathlib import Path

from rlcorr_cli.cli import comparing_options as c
from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.objective_options import ObjectiveOptions
from rlcorr_cli.cli.option_groups import ComputingOptions, ReadingOptions


def compare(
    dumps: o.Dumps,
    read: ReadingOptions,
    compute: ComputingOptions,
    objective: ObjectiveOptions,
    preset: c.PresetNames = None,
    plan: c.PlanPaths = None,
    all: c.AllPresets = False,
    sort: c.SortBy = "worth",
    group_by: o.GroupBy = None,
    seed: o.Seed = 0,
    json: o.Json = False,
    output: c.SheetOutputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """See what each correction would leave of a dump, and which to take."""
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared
    from rlcorr_cli.present.stdout import emit_json
    from rlcorr_cli.present.terminal.compared import print_comparison

    comparison = api.compare(
        dumps,
        [*(preset or ()), *map(Path, plan or ())],
        all=all,
        objective=None if objective == ObjectiveOptions() else objective.of_plan,
        group_by=group_by or (),
        seed=seed,
        output=output or (),
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    if json:
        emit_json(comparison.to_dict())
    else:
        print_comparison(comparison, sort)
