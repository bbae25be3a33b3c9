"""Policy: everything that `check` compares a dump with, as one value made of plain arguments.

It works on sections of numbers and loads no dump and no report; `runs/check.py` applies it to a report.  A new way
to ask for a rule becomes a field of `Policy` and a line in `policy`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rlcorr_cli.errors import UsageError
from rlcorr_cli.metrics.availability import missing, possible
from rlcorr_cli.metrics.catalog import logged_name
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.results.baseline import Limit, compare, limits, refuse_lacking, unmatched
from rlcorr_cli.results.judge import Finding, NamedRule, Section, from_flags, judge, replaced, unexcused
from rlcorr_cli.results.rule import Rule
from rlcorr_cli.results.rule_defaults import RULES
from rlcorr_cli.results.rule_files import RulesFile

FailOn = Literal["anomaly", "moved", "far", "outliers", "cause"]
"""What `check` may fail on beside its rules: faults of the data, `compare`'s flags of a gap, and a cause that
`diagnose` names."""
FLAGS: tuple[FailOn, ...] = ("moved", "far", "outliers")
EXAMPLE = "Name a rule, such as --max kl=0.1."


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The numbers of an earlier report, and the name of where they come from."""

    name: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What `check` compares a dump with: rules, and limits on how far it may be from a baseline.

    fail_on: what fails beside the rules.  strict: whether warnings and anomalies fail, too.  notes: on metrics that
    were named as a framework does.
    """

    rules: tuple[NamedRule, ...]
    limits: tuple[Limit, ...] = ()
    baseline: Baseline | None = None
    fail_on: frozenset[FailOn] = frozenset()
    strict: bool = False
    notes: tuple[str, ...] = ()

    def named(self) -> Iterator[tuple[str, str]]:
        """Each metric that the user names, after the option or file that names it."""
        yield from ((rule.origin, rule.rule.metric) for rule in self.rules if rule.origin is not None)
        yield from ((f"{limit.option} {limit.metric}", limit.metric) for limit in self.limits)


def policy(
    *,
    defaults: Sequence[Rule] = RULES,
    file: RulesFile | None = None,
    at_most: Sequence[str] = (),
    at_least: Sequence[str] = (),
    max_increase: Sequence[str] = (),
    max_decrease: Sequence[str] = (),
    baseline: Baseline | None = None,
    fail_on: Iterable[FailOn] = (),
    strict: bool = False,
    own_names: bool = True,
) -> Policy:
    """Default rules, replaced by those of a file, replaced by single ones; and the limits on a baseline.

    at_most, at_least: 'kl=0.1'.  max_increase, max_decrease: 'kl=0.1' or 'kl=20%'.  own_names: whether the report has
    metrics under our names, so that a framework's name of one stands for it.
    """
    file = RulesFile() if file is None else file
    notes: list[str] = []
    if own_names:
        file = replace(file, rules=tuple(_renamed_rule(named, notes) for named in file.rules))
        at_most = [_renamed("--max", text, notes) for text in at_most]
        at_least = [_renamed("--min", text, notes) for text in at_least]
        max_increase = [_renamed("--max-increase", text, notes) for text in max_increase]
        max_decrease = [_renamed("--max-decrease", text, notes) for text in max_decrease]
    fails = frozenset(fail_on)
    rules = replaced(
        tuple(map(NamedRule, defaults)) if file.defaults else (), file.rules, from_flags(at_most, at_least)
    )
    moves = limits(max_increase, max_decrease)
    if baseline is None:
        if moves:
            raise UsageError(
                f"{moves[0].option} compares with a report, and none is named.", "Add --baseline report.json."
            )
        if not rules:
            raise UsageError(f"{file.path} holds no rule, and switches off the default ones.", EXAMPLE)
        return Policy(rules=rules, fail_on=fails, strict=strict, notes=tuple(notes))
    if not moves:
        raise UsageError(
            "--baseline is compared with nothing.", "Add --max-increase kl=20% or --max-decrease seq_ess=10%."
        )
    refuse_lacking(moves, baseline.sections, baseline.name)
    return Policy(rules=rules, limits=moves, baseline=baseline, fail_on=fails, strict=strict, notes=tuple(notes))


def _renamed_rule(named: NamedRule, notes: list[str]) -> NamedRule:
    metric = _renamed(named.origin or "", named.rule.metric, notes)
    return replace(named, rule=replace(named.rule, metric=metric))


def _renamed(origin: str, text: str, notes: list[str]) -> str:
    """'rollout_corr/kl=0.1' as 'kl=0.1', with a note; as it is where the framework's number would be another."""
    metric, equals, amount = text.partition("=")
    logged = logged_name(metric.strip())
    if logged is None or logged.difference:
        return text
    notes.append(
        f"{origin} {logged.name}: {logged.framework}'s name of {logged.canonical}. {logged.otherwise}".rstrip()
    )
    return f"{logged.canonical}{equals}{amount}"


def refuse_impossible(policy: Policy, plan: Plan, *, grouped: bool, objective: str | None = None) -> None:
    """Refuse rules on metrics that no dump under this plan can have, before a dump is read.  objective: its name."""
    for origin, metric in policy.named():
        if not possible(metric, plan, objective):
            raise missing(metric, origin, ())
    _refuse_ungrouped(policy, grouped)


def _refuse_ungrouped(policy: Policy, grouped: bool) -> None:
    origin = next((rule.origin for rule in policy.rules if rule.rule.over == "groups"), None)
    if origin and not grouped:
        raise UsageError(
            f"{origin} is over groups, and there are none.", 'Add --group-by COLUMN, or say over = "both".'
        )


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The findings of n_rules rules and limits; notes: what none of them could judge."""

    n_rules: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def apply(policy: Policy, sections: Sequence[Section]) -> Judged:
    """Hold sections to a policy.

    A rule that the user named on a metric that is not there is a UsageError, and so is a policy of which no rule
    applies.
    """
    available = sections[0].values
    for origin, metric in policy.named():
        if metric not in available:
            raise missing(metric, origin, available)
    _refuse_ungrouped(policy, len(sections) > 1)
    rules = [named.rule for named in policy.rules if named.rule.metric in available]
    if not rules and not policy.limits:
        examples = ", ".join(list(available)[:3])
        raise UsageError(
            "No rule applies: none of the default ones is on a metric of this report.", f"It has {examples}, …"
        )
    before = () if policy.baseline is None else policy.baseline.sections
    findings = (*unexcused(judge(sections, rules)), *compare(policy.limits, sections, before))
    return Judged(
        n_rules=len(rules) + len(policy.limits), findings=findings, notes=(*policy.notes, *_notes(policy, sections))
    )


def _notes(policy: Policy, sections: Sequence[Section]) -> tuple[str, ...]:
    if policy.baseline is None:
        return ()
    n_new = unmatched(sections, policy.baseline.sections)
    if not n_new:
        return ()
    return (f"{policy.baseline.name} has nothing to compare {n_new:,} of {len(sections) - 1:,} groups with.",)
