"""`rlcorr filter`: the corrected dataset, weights and masks written in."""

from pathlib import Path

from rlcorr_cli.cli import options as o


def filter(
    dumps: o.Dumps,
    output: o.Dataset = None,
    format: o.FormatName = "auto",
    map: o.Map = None,
    mode: o.ModeName = None,
    batch_by: o.BatchBy = None,
    limit: o.Limit = None,
    preset: o.PresetName = None,
    plan: o.PlanPath = None,
    profile: o.ProfileName = "canonical",
    is_scope: o.WeightScopeName = None,
    is_high: o.IsHigh = None,
    is_low: o.IsLow = None,
    is_outside: o.IsOutside = None,
    normalize: o.Normalize = None,
    rs: o.Rs = None,
    veto: o.Veto = None,
    device: o.Device = "auto",
    batch_tokens: o.BatchTokens = None,
    threads: o.Threads = None,
    rejected: o.Rejected = "drop",
    rejected_output: o.RejectedOutput = None,
    rows_per_file: o.RowsPerFile = 100_000,
    resample: o.Resample = None,
    seed: o.DrawSeed = 0,
    overwrite: o.Overwrite = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write the corrected dataset: weights, the modified mask, rejected sequences dropped."""
    from rlcorr_cli.cli import run
    from rlcorr_cli.cli.plans import Flags, choice, resolve
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.filtered import Target
    from rlcorr_cli.pipeline.analysis import Reading
    from rlcorr_cli.pipeline.filtering import filter_dump

    flags = Flags(is_scope, is_high, is_low, is_outside, normalize, tuple(rs or ()), veto, mode)
    chosen = resolve(preset, plan, profile, flags)
    if chosen.plan.weighting is None and not chosen.plan.rules:
        raise UsageError(f"The plan {chosen.plan.name} corrects nothing.", "Name one, such as --preset geo_rs.")
    if output is None and not dry_run:
        raise UsageError("No output is named.", "Use -o PATH, or --dry-run to see what would be kept.")
    keep = choice("--rejected", rejected, ("drop", "keep")) == "keep"
    path = None if dry_run or output is None else Path(output)
    apart = None if dry_run or rejected_output is None else Path(rejected_output)
    filtered = filter_dump(
        Reading(tuple(dumps), format, run.mapping(map or []), (), batch_by, limit),
        chosen.plan,
        Target(path, keep, apart, overwrite, rows_per_file, resample, seed),
        chosen.profile,
        run.computing(device, threads, batch_tokens),
        chosen.notes,
        run.watch(quiet),
    )
    run.show_filtered(filtered, as_json=json)
