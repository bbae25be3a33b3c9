"""Rules on metrics, and what judging by them finds: the heart of `check`.

A rule is one of `health.RULES` or one that a user wrote, in a file or as a flag; the user's on a metric replace the
default ones on it.  A metric without a value never passes: what cannot be told is not fine.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rlcorr_cli.errors import UsageError
from rlcorr_cli.metrics.catalog import ideal
from rlcorr_cli.rules.defaults import RULES
from rlcorr_cli.rules.rule import Over, Rule, Severity
from rlcorr_cli.totals.families import Value, Values

EXAMPLES = {
    "--max": "kl=0.1",
    "--min": "seq_ess=0.3",
    "--max-increase": "kl=20%",
    "--max-decrease": "seq_ess=10%",
}
"""Option -> what may stand behind it."""


@dataclass(frozen=True)
class Section:
    """The whole dump (an empty key) or one of its groups, with every metric it can be judged on."""

    key: Mapping[str, Any]
    values: Values


@dataclass(frozen=True)
class Finding:
    """What one rule found in one section.  remedy: None when fine; says: metric, value and rule in one sentence."""

    key: Mapping[str, Any]
    metric: str
    value: Value
    rule: str
    severity: Severity
    status: Literal["ok", "fail", "warn"]
    remedy: str | None
    says: str

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form."""
        return {**asdict(self), "key": dict(self.key)}


@dataclass(frozen=True)
class Asked:
    """A rule, and where a user wrote it: '--max kl', 'rules.toml, rule 2'; None for a default."""

    rule: Rule
    origin: str | None = None


DEFAULTS: tuple[Asked, ...] = tuple(Asked(rule) for rule in RULES)


def judge_all(sections: Sequence[Section], rules: Iterable[Rule]) -> tuple[Finding, ...]:
    """Every rule on every section that it looks at, rule by rule; a rule whose metric is not there finds nothing."""
    return tuple(
        _judged(rule, section)
        for rule in rules
        for section in sections
        if rule.metric in section.values
        and not (rule.optional and section.values[rule.metric] is None)
        and rule.over in ("both", "groups" if section.key else "total")
    )


def _judged(rule: Rule, section: Section) -> Finding:
    value = section.values[rule.metric]
    holds = value is not None and rule.holds(value)
    is_value = "has no data" if value is None else f"is {shown(value, rule.low, rule.high)}"
    return finding(section, rule.metric, str(rule), rule.severity, holds, rule.remedy, f"{is_value}, wants {rule}")


def finding(
    section: Section, metric: str, rule: str, severity: Severity, holds: bool, remedy: str, says: str
) -> Finding:
    """A finding; says: the sentence without the metric's name."""
    status = "ok" if holds else severity
    cure = None if holds or not remedy else remedy
    return Finding(section.key, metric, section.values[metric], rule, severity, status, cure, f"{metric} {says}.")


def shown(value: float, *bounds: float | None) -> str:
    """Three digits, and as many more as it takes not to look like a bound that the value is not equal to."""
    near = {bound for bound in bounds if bound is not None and abs(value) != abs(bound)}
    whole = len(f"{abs(value):.0f}") if abs(value) < 1e6 else 0  # none of these is cut
    for digits in range(max(3, whole), 18):
        text = f"{value:.{digits}g}"
        if not any(abs(float(text)) == abs(bound) for bound in near):
            return text
    return repr(value)


def remedy_of(metric: str) -> str:
    """What the default rules tell to do about a metric; empty where there is none on it."""
    return next((rule.remedy for rule in RULES if rule.metric == metric), "")


def written(
    metric: str,
    low: float | None,
    high: float | None,
    absolute: bool | None = None,
    severity: Severity = "fail",
    over: Over = "both",
    remedy: str | None = None,
) -> Rule:
    """A user's rule.  A high bound alone, on a metric whose ideal is 0, is one of its absolute value unless said
    otherwise: a kl of -5 is no better than one of 5."""
    if absolute is None:
        absolute = low is None and high is not None and high >= 0 and ideal(metric) == 0
    return Rule(metric, severity, remedy_of(metric) if remedy is None else remedy, low, high, absolute, over)


def replaced(*layers: Sequence[Asked]) -> tuple[Asked, ...]:
    """The rules of all layers, where each replaces what came before it on the same metrics."""
    found: tuple[Asked, ...] = ()
    for layer in layers:
        named = {one.rule.metric for one in layer}
        found = (*(one for one in found if one.rule.metric not in named), *layer)
    return found


def from_flags(at_most: Sequence[str], at_least: Sequence[str]) -> tuple[Asked, ...]:
    """--max and --min; both on one metric make one rule."""
    highs = {metric: _number("--max", metric, text) for metric, text in pairs("--max", at_most).items()}
    lows = {metric: _number("--min", metric, text) for metric, text in pairs("--min", at_least).items()}
    found: list[Asked] = []
    for metric in {**highs, **lows}:
        low, high = lows.get(metric), highs.get(metric)
        if low is not None and high is not None and low > high:
            message = f"--min {metric}={low:g} is above --max {metric}={high:g}."
            raise UsageError(message, "Nothing lies between them: swap them.")
        origin = "--min" if high is None else "--max"
        found.append(Asked(written(metric, low, high), f"{origin} {metric}"))
    return tuple(found)


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """['kl=0.1', ...] -> {'kl': '0.1'}; a metric may be named once."""
    found: dict[str, str] = {}
    for text in texts:
        metric, equals, amount = (part.strip() for part in text.partition("="))
        if not (metric and equals and amount):
            raise UsageError(
                f"Cannot read {option} {text}.", f"Write {option} METRIC=NUMBER: {option} {EXAMPLES[option]}."
            )
        if metric in found:
            raise UsageError(f"{option} names {metric} twice.", "Give each metric once.")
        found[metric] = amount
    return found


def finite(text: str) -> float | None:
    """A finite number, or None."""
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
