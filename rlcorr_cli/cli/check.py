"""`rlcorr check`: a dump, or a saved report, held to rules; for CI."""

from dataclasses import dataclass

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions


@dataclass(frozen=True)
class RuleOptions:
    """What a dump is held to, beside the default rules."""

    rules: o.RulesPath = None
    at_most: o.Max = None
    at_least: o.Min = None
    baseline: o.Baseline = None
    max_increase: o.MaxIncrease = None
    max_decrease: o.MaxDecrease = None


def check(
    dumps: o.DumpsOrReport,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    rules: RuleOptions,
    group_by: o.GroupBy = None,
    profile: o.ProfileName = "canonical",
    junit: o.Junit = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> int:
    """Hold a dump or a saved report to rules: exit status 0 when they hold, 1 when one fails."""
    from rlcorr_cli.cli import checking
    from rlcorr_cli.cli.saved_reports import check_alone
    from rlcorr_cli.report.checked import subject_of
    from rlcorr_cli.report.saved import is_report, read_subject

    policy, target = checking.policy(rules), checking.target(junit, dumps, rules)
    if is_report(dumps):
        check_alone(read, plan, group_by, profile)
        subject = read_subject(dumps[0])
    else:
        from rlcorr_cli.cli import run
        from rlcorr_cli.pipeline import analyze as analysis

        chosen, request = plan.chosen(profile), read.request(dumps, group_by)
        if chosen.profile is None:  # a peer's names are known once its function has run
            checking.refuse_impossible(policy, chosen.plan, bool(group_by))
        computing, watch = compute.computing(), run.watch(quiet)
        # Without a seed there are no intervals, which no rule looks at.
        report = analysis.analyze(request, chosen, computing=computing, seed=None, watch=watch)
        subject = subject_of(report)
    return checking.show(checking.judged(policy, subject), target, as_json=json)
