"""Baselines: limits on how far a metric may move from its value in a saved report.

A move is one of the absolute value where the metric's ideal is 0, else of the value.  Groups that both reports have are
compared as well; a group that only one of them has is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.catalog import ideal
from rlcorr_cli.results.judge import EXAMPLES, Finding, Section, finite, pairs, remedy_of, shown

ROUNDING = 1e-9
"""Sums of the same numbers in another order differ by far less than this share of them; more is a change."""


@dataclass(frozen=True)
class Limit:
    """How far a metric may rise above its baseline, or fall below it.  share: whether `amount` is a part of that."""

    metric: str
    rises: bool
    amount: float
    share: bool

    def __str__(self) -> str:
        amount = f"{100 * self.amount:.12g} %" if self.share else f"{self.amount:.12g}"
        return f"at most {amount} {'above' if self.rises else 'below'} the baseline"

    @property
    def option(self) -> str:
        """The option that sets such a limit."""
        return "--max-increase" if self.rises else "--max-decrease"

    def room(self, baseline: float) -> float:
        """How far the metric may move from its baseline."""
        return (self.amount * abs(baseline) if self.share else self.amount) + ROUNDING * abs(baseline)


def limits(rises: Sequence[str], falls: Sequence[str]) -> tuple[Limit, ...]:
    """The limits of --max-increase and --max-decrease, each METRIC=AMOUNT or METRIC=PERCENT%."""
    options = [("--max-increase", True, rises), ("--max-decrease", False, falls)]
    return tuple(
        _limit(option, rising, metric, amount)
        for option, rising, texts in options
        for metric, amount in pairs(option, texts).items()
    )


def _limit(option: str, rises: bool, metric: str, text: str) -> Limit:
    amount = finite(text.removesuffix("%"))
    if amount is None or amount < 0:
        message = f"{option} {metric}={text}: '{text}' is not a number of 0 or more."
        raise UsageError(message, f"For example {option} {EXAMPLES[option]}.")
    share = text.endswith("%")
    return Limit(metric, rises, amount / 100 if share else amount, share)


def refuse_lacking(limits: Iterable[Limit], baseline: Sequence[Section], name: str) -> None:
    """Refuse a limit on a metric that the baseline of this name does not hold."""
    for limit in limits:
        if limit.metric not in baseline[0].values:
            message = f"{limit.option} {limit.metric}: {name} has no {limit.metric}."
            raise UsageError(message, f"Nearest: {nearest(limit.metric, baseline[0].values)}.")


def compare(limits: Iterable[Limit], now: Sequence[Section], baseline: Sequence[Section]) -> tuple[Finding, ...]:
    """A finding for every limit on the whole dump and on each group that both reports have."""
    before = {_hashable(section.key): section for section in baseline}
    matched = [(section, before[_hashable(section.key)]) for section in now if _hashable(section.key) in before]
    return tuple(_compared(limit, section, earlier) for limit in limits for section, earlier in matched)


def unmatched(now: Sequence[Section], baseline: Sequence[Section]) -> int:
    """How many groups of the report the baseline does not have."""
    before = {_hashable(section.key) for section in baseline}
    return sum(_hashable(section.key) not in before for section in now)


def _hashable(key: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(key.items())


def _compared(limit: Limit, now: Section, baseline: Section) -> Finding:
    value = now.values[limit.metric]
    holds, predicate = _moved(limit, value, baseline.values[limit.metric])
    return Finding(
        key=now.key,
        metric=limit.metric,
        value=value,
        rule=str(limit),
        severity="fail",
        status="ok" if holds else "fail",
        fix=remedy_of(limit.metric) or None,
        message=f"{limit.metric} {predicate}.",
    )


def _moved(limit: Limit, now: float | None, baseline: float | None) -> tuple[bool, str]:
    """Whether a limit holds, and the predicate of a sentence on it, whose subject is the metric."""
    wanted = f"should be {limit}"
    if now is None:
        return False, f"has no data, {wanted}"
    if baseline is None:
        return False, f"is {shown(now)}, but the baseline has no data, {wanted}"
    size = ideal(limit.metric) == 0
    new, old = (abs(now), abs(baseline)) if size else (now, baseline)
    worse = new - old if limit.rises else old - new
    by = _by(new, old, size and (now < 0 or baseline < 0))
    was = f"is {shown(now, baseline)}, the baseline {shown(baseline, now)}{by}"
    if old == 0 and limit.share and worse > 0:
        return False, f"{was}, and any change from 0 is more than {100 * limit.amount:.12g} % of it"
    return worse <= limit.room(old), f"{was}, {wanted}"


def _by(now: float, baseline: float, size: bool) -> str:
    """' (up 50 %)': how far a value moved, as a part of the baseline; size: whether it is one of absolute values."""
    if baseline == 0 or now == baseline:
        return ""
    change = (now - baseline) / abs(baseline)
    return f" ({'size ' if size else ''}{'up' if change > 0 else 'down'} {abs(100 * change):.3g} %)"
