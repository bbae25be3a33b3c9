"""`rlcorr check`: a dump, or a saved report, held to rules; for CI."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions

if TYPE_CHECKING:
    from rlcorr_cli.report.checked import Checked


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
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared

    target = _target(junit, dumps, rules)
    checked = api.check(
        dumps,
        plan.chosen(profile),
        rules=rules.rules,
        at_most=rules.at_most,
        at_least=rules.at_least,
        baseline=rules.baseline,
        max_increase=rules.max_increase,
        max_decrease=rules.max_decrease,
        group_by=group_by or (),
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    return _show(checked, target, as_json=json)


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
