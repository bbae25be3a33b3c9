"""`rlcorr analyze`: diagnostics of a dump, and the statistics of a correction when one is named."""

from rlcorr_cli.cli import options as o


def analyze(
    dumps: o.Dumps,
    format: o.FormatName = "auto",
    map: o.Map = None,
    mode: o.ModeName = None,
    group_by: o.GroupBy = None,
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
    extreme_ratio: o.ExtremeRatio = 2.0,
    ppo_clip: o.PpoClip = 0.2,
    device: o.Device = "auto",
    batch_tokens: o.BatchTokens = None,
    threads: o.Threads = None,
    seed: o.Seed = 0,
    json: o.Json = False,
    output: o.Outputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Diagnose a dump, and see what a correction would do."""
    from rlcorr_cli.cli import run
    from rlcorr_cli.cli.plans import Flags, resolve
    from rlcorr_cli.pipeline import analysis
    from rlcorr_cli.thresholds import Thresholds

    flags = Flags(is_scope, is_high, is_low, is_outside, normalize, tuple(rs or ()), veto, mode)
    chosen = resolve(preset, plan, profile, flags)
    outputs = run.outputs(output or [])
    report = analysis.analyze(
        analysis.Reading(tuple(dumps), format, run.mapping(map or []), tuple(group_by or ()), batch_by, limit),
        chosen.plan,
        chosen.profile,
        Thresholds(extreme_ratio, ppo_clip),
        run.computing(device, threads, batch_tokens),
        seed,
        chosen.notes,
        run.watch(quiet),
        run.pictured(outputs),
    )
    run.write(report, outputs, as_json=json)
