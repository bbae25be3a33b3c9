"""`rlcorr check`: a dump, or a saved report, held to rules; for CI."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.objective_options import ObjectiveOptions
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions

if TYPE_CHECKING:
    from rlcorr_cli.results.checked import Checked

SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable that names the file to which a step's summary is appended."""


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """What a dump is held to, beside the default rules."""

    rules: o.RulesPath = None
    at_most: o.Max = None
    at_least: o.Min = None
    baseline: o.Baseline = None
    max_increase: o.MaxIncrease = None
    max_decrease: o.MaxDecrease = None
    fail_on: o.FailOns = None
    strict: o.Strict = False


def check(
    dumps: o.DumpsOrReport,
    *,
    read: ReadingOptions,
    plan: PlanOptions,
    objective: ObjectiveOptions,
    compute: ComputingOptions,
    rules: RuleOptions,
    group_by: o.GroupBy = None,
    cluster_by: o.ClusterBy = None,
    profile: o.ProfileName = "canonical",
    junit: o.Junit = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> int:
    """Hold a dump or a saved report to rules; exit status 1 if one fails."""
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared

    notes = _check_summary(dumps, rules, plan)
    chosen = plan.chosen(profile)
    checked = api.check(
        dumps,
        chosen,
        rules=rules.rules,
        at_most=rules.at_most,
        at_least=rules.at_least,
        baseline=rules.baseline,
        max_increase=rules.max_increase,
        max_decrease=rules.max_decrease,
        junit=junit,
        fail_on=rules.fail_on or (),
        strict=rules.strict,
        group_by=group_by or (),
        cluster_by=cluster_by,
        objective=objective.chosen(chosen),
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    return _show(replace(checked, notes=checked.notes + notes), as_json=json)


def _check_summary(dumps: list[str], rules: RuleOptions, plan: PlanOptions) -> tuple[str, ...]:
    """Refuse the file of GitHub's step summary where it is what is read; notes as of `check_touched`."""
    import os
    from pathlib import Path

    from rlcorr_cli.api.touched import check_touched
    from rlcorr_cli.files.destinations import Destination

    path = os.environ.get(SUMMARY)
    if not path:
        return ()
    place = Destination(path=Path(path), option=SUMMARY, overwrite=True)
    return check_touched((place,), dumps, plan=plan.plan, rules=rules.rules, baseline=rules.baseline)


def _show(checked: "Checked", as_json: bool) -> int:
    """What GitHub reads first, then stdout.  Returns the exit status."""
    import os

    from rlcorr_cli.show import check as shown
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.forms import texts
    from rlcorr_cli.show.stdout import emit_json_pieces

    if os.environ.get(SUMMARY):
        shown.append_summary(checked, os.environ[SUMMARY])
    if os.environ.get("GITHUB_ACTIONS") == "true":
        shown.annotate(checked)
    if as_json:
        findings = (finding.to_dict() for finding in checked.findings)
        emit_json_pieces(texts.pieces(checked.to_dict(findings=False), "findings", findings))
    else:
        print_result(checked)
    return 0 if checked.passed else 1
