"""`rlcorr filter`: the corrected dataset, weights and masks written in."""

from pathlib import Path

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions


def filter(
    dumps: o.Dumps,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    output: o.Dataset = None,
    profile: o.ProfileName = "canonical",
    rejected: o.Rejected = "drop",
    rejected_output: o.RejectedOutput = None,
    rows_per_file: o.RowsPerFile = 100_000,
    resample: o.Resample = None,
    seed: o.DrawSeed = 0,
    write_unused_weights: o.WriteUnusedWeights = False,
    overwrite: o.Overwrite = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write the corrected dataset: weights, the modified mask, rejected sequences dropped."""
    from rlcorr_cli.cli import shared
    from rlcorr_cli.cli.plans import choice
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.pipeline.filter import filter_dump
    from rlcorr_cli.report.filtered import Target

    chosen = plan.chosen(profile)
    if chosen.plan.weighting is None and not chosen.plan.rules:
        hint = " ".join((*chosen.notes, "Name one, such as --preset geo_rs."))
        raise UsageError(f"The plan {chosen.plan.name} corrects nothing.", hint)
    if output is None and not dry_run:
        raise UsageError("No output is named.", "Use -o PATH, or --dry-run to see what would be kept.")
    keep = choice("--rejected", rejected, ("drop", "keep")) == "keep"
    path = None if dry_run or output is None else Path(output)
    apart = None if dry_run or rejected_output is None else Path(rejected_output)
    filtered = filter_dump(
        read.request(dumps),
        chosen,
        Target(path, keep, apart, overwrite, rows_per_file, resample, seed, write_unused_weights),
        computing=compute.computing(sparing=True),
        watch=shared.watch(quiet),
    )
    shared.show_filtered(filtered, as_json=json)
