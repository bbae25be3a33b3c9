"""What `check` does around the judging: the policy its options make, what that refuses, and the ways out."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.atomic import check_target
from rlcorr_cli.errors import UsageError
from rlcorr_cli.metrics.catalog import missing, possible
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.present.ci import github, junit
from rlcorr_cli.present.stdout import emit
from rlcorr_cli.present.terminal.checked import print_checked
from rlcorr_cli.report.checked import Checked, Subject
from rlcorr_cli.report.saved import read_subject
from rlcorr_cli.rules.baseline import Limit, compare, limits, refuse_lacking, unmatched
from rlcorr_cli.rules.files import RulesFile, read_rules
from rlcorr_cli.rules.judge import DEFAULTS, Asked, Section, from_flags, judge_all, replaced

if TYPE_CHECKING:
    from rlcorr_cli.cli.check import RuleOptions

EXAMPLE = "Name a rule, such as --max kl=0.1."


@dataclass(frozen=True)
class Policy:
    """What to hold a subject to: rules, and limits on how far it may be from a baseline's sections (of that name)."""

    asked: tuple[Asked, ...]
    limits: tuple[Limit, ...] = ()
    then: tuple[Section, ...] = ()
    baseline: str = ""

    def named(self) -> Iterator[tuple[str, str]]:
        """The metrics that the user names, each with where."""
        yield from ((one.origin, one.rule.metric) for one in self.asked if one.origin is not None)
        yield from ((f"{limit.option} {limit.metric}", limit.metric) for limit in self.limits)


def policy(options: "RuleOptions") -> Policy:
    """default rules < file < flags, and the baseline's limits."""
    file = RulesFile() if options.rules is None else read_rules(options.rules)
    flags = from_flags(options.at_most or [], options.at_least or [])
    asked = replaced(DEFAULTS if file.defaults else (), file.rules, flags)
    moves = limits(options.max_increase or [], options.max_decrease or [])
    if options.baseline is None:
        if moves:
            raise UsageError(
                f"{moves[0].option} compares with a report, and none is named.", "Add --baseline report.json."
            )
        if not asked:
            raise UsageError(f"{options.rules} holds no rule, and switches off the default ones.", EXAMPLE)
        return Policy(asked)
    if not moves:
        raise UsageError(
            "--baseline is compared with nothing.", "Add --max-increase kl=20% or --max-decrease seq_ess=10%."
        )
    then = read_subject(options.baseline).sections
    refuse_lacking(moves, then, options.baseline)
    return Policy(asked, moves, then, options.baseline)


def target(path: str | None, dumps: Sequence[str], options: "RuleOptions") -> Path | None:
    """Where the JUnit file goes, refused before the scan where it cannot, or where it would replace what is read."""
    if path is None:
        return None
    for option, other in (("--rules", options.rules), ("--baseline", options.baseline)):
        if other is not None and os.path.exists(path) and os.path.samefile(path, other):
            raise UsageError(f"--junit and {option} name the same file, {path}.", "Name another place with --junit.")
    check_target(Path(path), dumps, option="--junit")
    return Path(path)


def refuse_impossible(policy: Policy, plan: Plan, grouped: bool) -> None:
    """What no dump under this plan can have is refused before one is read."""
    for origin, metric in policy.named():
        if not possible(metric, plan):
            raise missing(metric, origin, ())
    _refuse_ungrouped(policy, grouped)


def _refuse_ungrouped(policy: Policy, grouped: bool) -> None:
    lonely = next((one.origin for one in policy.asked if one.rule.over == "groups"), None)
    if lonely and not grouped:
        raise UsageError(
            f"{lonely} is over groups, and there are none.", 'Add --group-by COLUMN, or say over = "both".'
        )


def judged(policy: Policy, subject: Subject) -> Checked:
    """A subject held to a policy; a rule of the user's that does not apply, or no rule that does, is a UsageError."""
    sections, there = subject.sections, subject.sections[0].values
    for origin, metric in policy.named():
        if metric not in there:
            raise missing(metric, origin, there)
    _refuse_ungrouped(policy, len(sections) > 1)
    rules = [one.rule for one in policy.asked if one.rule.metric in there]
    if not rules and not policy.limits:
        some = ", ".join(list(there)[:3])
        raise UsageError(
            "No rule applies: none of the default ones is on a metric of this report.", f"It has {some}, …"
        )
    findings = (*judge_all(sections, rules), *compare(policy.limits, sections, policy.then))
    return Checked(subject, len(rules) + len(policy.limits), findings, (*subject.notes, *_notes(policy, sections)))


def _notes(policy: Policy, sections: Sequence[Section]) -> tuple[str, ...]:
    new = unmatched(sections, policy.then) if policy.limits else 0
    if not new:
        return ()
    return (f"{policy.baseline} has nothing to compare {new:,} of {len(sections) - 1:,} groups with.",)


def show(checked: Checked, path: Path | None, as_json: bool) -> int:
    """Files first, then what GitHub reads, then stdout.  Returns the exit status."""
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
