"""`rlcorr check`: a dump, or a saved report, held to rules; for CI."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions

if TYPE_CHECKING:
    from rlcorr_cli.report.checked import Checked
    from rlcorr_cli.rules.policy import Policy


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
    from rlcorr_cli.cli import shared
    from rlcorr_cli.pipeline.check import check as run
    from rlcorr_cli.report.checked import measurements_of
    from rlcorr_cli.report.saved import is_report, read_report
    from rlcorr_cli.rules.policy import refuse_impossible

    policy, target = _policy(rules), _target(junit, dumps, rules)
    if is_report(dumps):
        shared.refuse_saved_report_options(read, plan, group_by, profile)
        report = read_report(dumps[0])
    else:
        from rlcorr_cli.pipeline.analyze import analyze

        chosen, request = plan.chosen(profile), read.request(dumps, group_by)
        if chosen.profile is None:  # a peer's names are known once its function has run
            refuse_impossible(policy, chosen.plan, grouped=bool(group_by))
        # Without a seed there are no intervals, which no rule looks at.
        report = analyze(request, chosen, computing=compute.computing(), seed=None, watch=shared.watch(quiet))
    return _show(run(measurements_of(report), policy), target, as_json=json)


def _policy(options: RuleOptions) -> "Policy":
    """The policy that the options ask for, its files read."""
    from rlcorr_cli.report.checked import measurements_of
    from rlcorr_cli.report.saved import read_report
    from rlcorr_cli.rules.files import read_rules
    from rlcorr_cli.rules.policy import Baseline, policy

    baseline = None
    if options.baseline is not None:
        limited = bool(options.max_increase or options.max_decrease)  # without a limit, `policy` refuses any baseline
        sections = measurements_of(read_report(options.baseline)).sections if limited else ()
        baseline = Baseline(name=options.baseline, sections=sections)
    return policy(
        file=None if options.rules is None else read_rules(options.rules),
        at_most=options.at_most or (),
        at_least=options.at_least or (),
        max_increase=options.max_increase or (),
        max_decrease=options.max_decrease or (),
        baseline=baseline,
    )


def _target(path: str | None, dumps: list[str], options: RuleOptions) -> Path | None:
    """Where the JUnit file goes, refused before the scan where it cannot, or where it would replace what is read."""
    import os

    from rlcorr_cli.atomic import check_target
    from rlcorr_cli.errors import UsageError

    if path is None:
        return None
    for option, other in (("--rules", options.rules), ("--baseline", options.baseline)):
        if other is not None and os.path.exists(path) and os.path.samefile(path, other):
            raise UsageError(f"--junit and {option} name the same file, {path}.", "Name another place with --junit.")
    check_target(Path(path), dumps, option="--junit")
    return Path(path)


def _show(checked: "Checked", path: Path | None, as_json: bool) -> int:
    """Files first, then what GitHub reads, then stdout.  Returns the exit status."""
    import json
    import os

    from rlcorr_cli.present.ci import github, junit
    from rlcorr_cli.present.stdout import emit
    from rlcorr_cli.present.terminal.checked import print_checked

    if path is not None:
        junit.write(checked, path)
    if os.environ.get("GITHUB_STEP_SUMMARY"):
        github.append_summary(checked, os.environ["GITHUB_STEP_SUMMARY"])
    if os.environ.get("GITHUB_ACTIONS") == "true":
        github.annotate(checked)
    if as_json:
        emit(json.dumps(checked.to_dict(), indent=2, allow_nan=False) + "\n")
    else:
        print_checked(checked)
    return 0 if checked.passed else 1
