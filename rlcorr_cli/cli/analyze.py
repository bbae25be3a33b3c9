"""`rlcorr analyze`: diagnostics of a dump, and the statistics of a correction when one is named."""

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions


def analyze(
    dumps: o.Dumps,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    group_by: o.GroupBy = None,
    profile: o.ProfileName = "canonical",
    extreme_ratio: o.ExtremeRatio = 2.0,
    ppo_clip: o.PpoClip = 0.2,
    seed: o.Seed = 0,
    json: o.Json = False,
    output: o.Outputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Diagnose a dump, and see what a correction would do."""
    from rlcorr_cli.cli import shared
    from rlcorr_cli.metrics.settings import Thresholds
    from rlcorr_cli.pipeline import analyze as analysis

    chosen = plan.chosen(profile)
    outputs = shared.outputs(output or [], dumps, group_by or [], plan=plan.plan, quarantine=read.quarantine)
    report = analysis.analyze(
        read.request(dumps, group_by),
        chosen,
        thresholds=Thresholds(extreme_ratio, ppo_clip),
        computing=compute.computing(),
        seed=seed,
        watch=shared.watch(quiet),
        pictures=shared.pictured(outputs),
    )
    shared.write(report, outputs, as_json=json)
