"""`rlcorr analyze`: diagnostics of a dump, and the statistics of a correction when one is named."""

from rlcorr_cli.commands import options as o
from rlcorr_cli.commands.objective_options import ObjectiveOptions
from rlcorr_cli.commands.option_groups import ComputingOptions, PlanOptions, ReadingOptions


def analyze(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    plan: PlanOptions,
    objective: ObjectiveOptions,
    compute: ComputingOptions,
    group_by: o.GroupBy = None,
    cluster_by: o.ClusterBy = None,
    profile: o.ProfileName = "canonical",
    extreme_ratio: o.ExtremeRatio = 2.0,
    ppo_clip: o.PpoClip = 0.2,
    seed: o.Seed = 0,
    by_step: o.ByStep = False,
    json: o.Json = False,
    output: o.Outputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Diagnose a dump, and see what a correction would do."""
    from rlcorr_cli.commands import reading as api
    from rlcorr_cli.commands import shared

    chosen = plan.chosen(profile)
    report = api.analyze(
        dumps,
        chosen,
        group_by=group_by or (),
        cluster_by=cluster_by,
        by_step=by_step,
        extreme_ratio=extreme_ratio,
        ppo_clip=ppo_clip,
        seed=seed,
        objective=objective.chosen(chosen),
        output=output or (),
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    shared.show(report, as_json=json)
