"""`rlcorr plot`: pictures of a dump, or of a saved report."""

from typing import TYPE_CHECKING

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions

if TYPE_CHECKING:
    from rlcorr_cli.report.report import Report


def plot(
    dumps: o.DumpsOrReport,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    output: o.Picture = None,
    kind: o.KindName = None,
    group_by: o.GroupBy = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Draw a dump, or a saved report: one page, or pictures by kind."""
    from rlcorr_cli.cli import plotting, run
    from rlcorr_cli.cli.saved_reports import check_alone
    from rlcorr_cli.pipeline import analyze as analysis
    from rlcorr_cli.report.saved import is_report

    kinds = plotting.kinds(kind or [])
    targets = plotting.targets(output, kinds, dumps)
    if is_report(dumps):
        check_alone(read, plan, group_by)
        drawn = dict.fromkeys(kinds, plotting.saved(dumps[0]))
    else:
        chosen, computing = plan.chosen(), compute.computing()
        dump = analysis.opened(read.request(dumps, group_by), chosen)

        def measured(groups: tuple[str, ...]) -> "Report":
            grouped = dump.grouped_by(groups)
            watch = run.watch(quiet)
            return analysis.analyze_dump(grouped, chosen, computing=computing, seed=None, watch=watch, pictures=True)

        # Staleness looks at steps and versions at once, everything else at steps alone; the dump is read twice only
        # where these groupings differ.
        groups = {kind: analysis.step_groups(dump, versions=kind == "staleness") for kind in kinds}
        reports = {names: measured(names) for names in dict.fromkeys(groups.values())}
        drawn = {kind: reports[groups[kind]] for kind in kinds}
    plotting.write(drawn, targets, as_json=json)
