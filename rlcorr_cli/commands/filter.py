"""`rlcorr filter`: the corrected dataset, weights and masks written in."""

from rlcorr_cli.commands import options as o
from rlcorr_cli.commands.objective_options import Coef, CoefNormalized, ObjectiveOptions
from rlcorr_cli.commands.option_groups import ComputingOptions, PlanOptions, ReadingOptions


def filter(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    plan: PlanOptions,
    objective: ObjectiveOptions,
    compute: ComputingOptions,
    output: o.Dataset = None,
    profile: o.ProfileName = "canonical",
    rejected: o.Rejected = "drop",
    rejected_output: o.RejectedOutput = None,
    rows_per_file: o.RowsPerFile = 100_000,
    resample: o.Resample = None,
    seed: o.DrawSeed = 0,
    write_unused_weights: o.WriteUnusedWeights = False,
    coef: Coef = False,
    coef_normalized: CoefNormalized = False,
    overwrite: o.Overwrite = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write the corrected dataset: weights and masks, rejected rows dropped."""
    from rlcorr_cli.commands import reading as api
    from rlcorr_cli.commands import shared
    from rlcorr_cli.errors import UsageError

    chosen = plan.chosen(profile)
    if output is None and not dry_run:
        raise UsageError("No output is named.", "Use -o PATH, or --dry-run to see what would be kept.")
    writes_coefs = coef or coef_normalized
    if objective != ObjectiveOptions() and not writes_coefs:
        raise UsageError("An objective changes nothing that is written without --coef.", "Add --coef.")
    filtered = api.filter_dump(
        dumps,
        None if dry_run else output,
        chosen,
        keep_rejected=rejected == "keep",
        rejected_output=None if dry_run else rejected_output,
        overwrite=overwrite,
        rows_per_file=rows_per_file,
        resample=resample,
        seed=seed,
        write_unused_weights=write_unused_weights,
        objective=objective.chosen(chosen, wanted=writes_coefs),
        coef_normalized=coef_normalized,
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(return_memory=True),
    )
    shared.show_filtered(filtered, as_json=json)
