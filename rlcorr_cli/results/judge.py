"""judge: metrics are compared with rules, for reports, tables, pages and `check` alike.

A rule is one of `defaults.RULES` or a user's, from a file or an option; a user's rules on a metric replace the default
ones on it.  A metric without a value has the status "no data", which a report shows and `check` counts as broken
(`unexcused`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from rlcorr_cli.errors import UsageError
from rlcorr_cli.metrics.catalog import is_two_sided
from rlcorr_cli.records import HIDDEN, Key, Number, Record, Scalar, computed
from rlcorr_cli.results.rule import Over, Rule, Severity
from rlcorr_cli.results.rule_defaults import RULES
from rlcorr_cli.totals.families import Value

EXAMPLES = {
    "--max": "kl=0.1",
    "--min": "seq_ess=0.3",
    "--max-increase": "kl=20%",
    "--max-decrease": "seq_ess=10%",
}
"""Option -> an example of its value."""


@dataclass(frozen=True)
class Section:
    """The whole dump (its key is empty) or one of its groups, with every metric that a rule may be on."""

    key: Mapping[str, Any]
    values: Mapping[str, Value]


Status = Literal["ok", "warn", "fail", "no data"]
BROKEN: tuple[Status, ...] = ("fail", "warn")
"""The statuses of a rule that is broken, the worse first."""


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """The result of one rule on one metric in one section.

    rule: the range in words.  fix: what to do where the rule does not hold; None where nothing is known to help.
    message: metric, value and rule in one sentence.
    """

    key: Annotated[Mapping[str, Scalar], Key(about="Empty for the whole dump.")]
    metric: str
    value: Number
    rule: str
    severity: Severity
    status: Status
    fix: Annotated[str | None, HIDDEN]
    message: Annotated[str, Key(name="says", after="remedy")]

    @property
    def broken(self) -> bool:
        """Whether there is a value, and it is outside the range."""
        return self.status in BROKEN

    @property
    @computed(after="status")
    def remedy(self) -> str | None:
        """The fix of a broken rule; None where the rule holds or cannot be judged."""
        return self.fix if self.broken else None

    @property
    def health(self) -> "Health":
        """As a report has it."""
        return Health(metric=self.metric, value=self.value, rule=self.rule, status=self.status, remedy=self.remedy)


@dataclass(frozen=True, kw_only=True)
class Health(Record):
    """A default rule on the whole dump."""

    metric: str
    value: Number
    rule: str
    status: Status
    remedy: str | None


@dataclass(frozen=True)
class NamedRule:
    """A rule, and where a user wrote it: '--max kl', 'rules.toml, rule 2'; None for a default."""

    rule: Rule
    origin: str | None = None


def judge(sections: Sequence[Section], rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """A finding for each rule on each section that it is over, rule by rule; none where a section lacks the metric."""
    return tuple(
        _judged(rule, section)
        for rule in rules
        for section in sections
        if rule.metric in section.values
        and not (rule.needs and None in (section.values[rule.metric], section.values.get(rule.needs)))
        and rule.over in ("both", "groups" if section.key else "total")
    )


def _judged(rule: Rule, section: Section) -> Finding:
    value = section.values[rule.metric]
    status = "no data" if value is None else "ok" if rule.holds(value) else rule.severity
    is_value = "has no data" if value is None else f"is {shown(value, rule.low, rule.high)}"
    return Finding(
        key=section.key,
        metric=rule.metric,
        value=value,
        rule=str(rule),
        severity=rule.severity,
        status=status,
        fix=rule.remedy or None,
        message=f"{rule.metric} {is_value}, should be {rule}.",
    )


def unexcused(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings as `check` counts them: a metric without data breaks its rule."""
    return tuple(
        replace(finding, status=finding.severity) if finding.status == "no data" else finding for finding in findings
    )


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of broken rules: failures, then warnings, each in the order of the rules."""
    broken = (finding for finding in findings if finding.broken)
    return tuple(sorted(broken, key=lambda finding: BROKEN.index(finding.status)))


def shown(value: float, *bounds: float | None) -> str:
    """A value with three digits, and as many more as it takes to differ from a bound that it is not equal to."""
    near = {bound for bound in bounds if bound is not None and abs(value) != abs(bound)}
    whole = len(f"{abs(value):.0f}") if abs(value) < 1e6 else 0  # none of these is cut
    for digits in range(max(3, whole), 18):
        text = f"{value:.{digits}g}"
        if not any(abs(float(text)) == abs(bound) for bound in near):
            return text
    return repr(value)


def remedy_of(metric: str) -> str:
    """What the default rules advise about a metric; empty where none is on it."""
    return next((rule.remedy for rule in RULES if rule.metric == metric), "")


def written(
    metric: str,
    low: float | None,
    high: float | None,
    *,
    absolute: bool | None = None,
    severity: Severity = "fail",
    over: Over = "both",
    remedy: str | None = None,
) -> Rule:
    """A user's rule.

    absolute: by default a high bound alone, on a metric of either sign around an ideal of 0, bounds the absolute value,
    because a kl of -5 is no better than one of 5.
    """
    if absolute is None:
        absolute = low is None and high is not None and high >= 0 and is_two_sided(metric)
    remedy = remedy_of(metric) if remedy is None else remedy
    return Rule(metric, severity, remedy, low=low, high=high, absolute=absolute, over=over)


def replaced(*layers: Sequence[NamedRule]) -> tuple[NamedRule, ...]:
    """The rules of all layers, where each replaces what came before it on the same metrics."""
    rules: tuple[NamedRule, ...] = ()
    for layer in layers:
        metrics = {named.rule.metric for named in layer}
        rules = (*(named for named in rules if named.rule.metric not in metrics), *layer)
    return rules


def from_flags(at_most: Sequence[str], at_least: Sequence[str]) -> tuple[NamedRule, ...]:
    """The rules of --max and --min; a metric that both name has one rule with two bounds."""
    highs = {metric: _number("--max", metric, text) for metric, text in pairs("--max", at_most).items()}
    lows = {metric: _number("--min", metric, text) for metric, text in pairs("--min", at_least).items()}
    rules: list[NamedRule] = []
    for metric in {**highs, **lows}:
        low, high = lows.get(metric), highs.get(metric)
        if low is not None and high is not None and low > high:
            message = f"--min {metric}={low:g} is above --max {metric}={high:g}."
            raise UsageError(message, "Nothing lies between them: swap them.")
        origin = "--min" if high is None else "--max"
        rules.append(NamedRule(written(metric, low, high), f"{origin} {metric}"))
    return tuple(rules)


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """An option's texts METRIC=AMOUNT as metric -> amount; a metric that is named twice is a UsageError."""
    amounts: dict[str, str] = {}
    for text in texts:
        metric, equals, amount = (part.strip() for part in text.partition("="))
        if not (metric and equals and amount):
            raise UsageError(
                f"Cannot read {option} {text}.", f"Write {option} METRIC=NUMBER: {option} {EXAMPLES[option]}."
            )
        if metric in amounts:
            raise UsageError(f"{option} names {metric} twice.", "Give each metric once.")
        amounts[metric] = amount
    return amounts


def finite(text: str) -> float | None:
    """The finite number that a text says; None of any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _number(option: str, metric: str, text: str) -> float:
    value = finite(text)
    if value is None:
        message = f"{option} {metric}={text}: '{text}' is not a finite number."
        raise UsageError(message, f"For example {option} {EXAMPLES[option]}.")
    return value
