"""`rlcorr plot`: pictures of a dump, or of a saved report."""

from typing import TYPE_CHECKING

from rlcorr_cli.cli import options as o

if TYPE_CHECKING:
    from rlcorr_cli.report import Report


def plot(
    dumps: o.DumpsOrReport,
    output: o.Picture = None,
    kind: o.KindName = None,
    format: o.FormatName = "auto",
    map: o.Map = None,
    mode: o.ModeName = None,
    group_by: o.GroupBy = None,
    batch_by: o.BatchBy = None,
    limit: o.Limit = None,
    preset: o.PresetName = None,
    plan: o.PlanPath = None,
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
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Draw a dump, or a saved report: one page, or pictures by kind."""
    from rlcorr_cli.cli import plotting, run
    from rlcorr_cli.cli.plans import Flags, resolve
    from rlcorr_cli.pipeline import analysis

    kinds = plotting.kinds(kind or [])
    targets = plotting.targets(output, kinds, dumps)
    flags = Flags(is_scope, is_high, is_low, is_outside, normalize, tuple(rs or ()), veto, mode)
    if plotting.is_report(dumps):
        plotting.check_alone(flags, (preset, plan, group_by, batch_by, limit, map))
        drawn = dict.fromkeys(kinds, plotting.saved(dumps[0]))
    else:
        chosen = resolve(preset, plan, "canonical", flags)
        reading = analysis.Reading(tuple(dumps), format, run.mapping(map or []), tuple(group_by or ()), batch_by, limit)
        computing = run.computing(device, threads, batch_tokens)

        def measured(versions: bool) -> "Report":
            along = analysis.along_steps(reading, chosen.plan, versions)
            watch = run.watch(quiet)
            return analysis.analyze(along, chosen.plan, None, None, computing, None, chosen.notes, watch, True)

        # Staleness looks at steps and versions at once, everything else at steps alone.
        reports = {versions: measured(versions) for versions in {kind == "staleness" for kind in kinds}}
        drawn = {kind: reports[kind == "staleness"] for kind in kinds}
    plotting.write(drawn, targets, as_json=json)
