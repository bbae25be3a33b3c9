"""Not worse than last time: limits on how far a metric may move from what a saved report holds.

A move is one of the absolute value where the metric's ideal is 0, else of the value.  Where both reports have groups of
the same key, these are compared as well; groups of only one of them have nothing to be compared with.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.catalog import ideal
from rlcorr_cli.rules.judge import EXAMPLES, Finding, Section, finite, pairs, remedy_of, shown

ROUNDING = 1e-9
"""Sums of the same numbers in another order differ by far less than this share of them; more is a change."""


@dataclass(frozen=True)
class Limit:
    """How far a metric may rise above its baseline, or fall below; share: as a part of the baseline."""

    metric: str
    rises: bool
    amount: float
    share: bool

    def __str__(self) -> str:
        amount = f"{100 * self.amount:.12g} %" if self.share else f"{self.amount:.12g}"
        return f"at most {amount} {'above' if self.rises else 'below'} the baseline"

    @property
    def option(self) -> str:
        """The option it was given with."""
        return "--max-increase" if self.rises else "--max-decrease"

    def room(self, then: float) -> float:
        """How far the metric may move from its baseline."""
        return (self.amount * abs(then) if self.share else self.amount) + ROUNDING * abs(then)


def limits(rises: Sequence[str], falls: Sequence[str]) -> tuple[Limit, ...]:
    """--max-increase and --max-decrease: METRIC=AMOUNT or METRIC=PERCENT%."""
    given = [("--max-increase", True, rises), ("--max-decrease", False, falls)]
    return tuple(
        _limit(option, rising, metric, amount)
        for option, rising, texts in given
        for metric, amount in pairs(option, texts).items()
    )


def _limit(option: str, rises: bool, metric: str, text: str) -> Limit:
    amount = finite(text.removesuffix("%"))
    if amount is None or amount < 0:
        message = f"{option} {metric}={text}: '{text}' is no amount of 0 or more."
        raise UsageError(message, f"For example {option} {EXAMPLES[option]}.")
    share = text.endswith("%")
    return Limit(metric, rises, amount / 100 if share else amount, share)


def refuse_lacking(limits: Iterable[Limit], then: Sequence[Section], name: str) -> None:
    """A limit on what the baseline of that name does not hold is a UsageError."""
    for limit in limits:
        if limit.metric not in then[0].values:
            message = f"{limit.option} {limit.metric}: {name} has no {limit.metric}."
            raise UsageError(message, f"Nearest: {nearest(limit.metric, then[0].values)}.")


def compare(limits: Iterable[Limit], now: Sequence[Section], then: Sequence[Section]) -> tuple[Finding, ...]:
    """Every limit on the whole dump and on each group that both have."""
    before = {_hashable(section.key): section for section in then}
    matched = [(section, before[_hashable(section.key)]) for section in now if _hashable(section.key) in before]
    return tuple(_compared(limit, *both) for limit in limits for both in matched)


def unmatched(now: Sequence[Section], then: Sequence[Section]) -> int:
    """How many groups the baseline does not have."""
    before = {_hashable(section.key) for section in then}
    return sum(_hashable(section.key) not in before for section in now)


def _hashable(key: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(key.items())


def _compared(limit: Limit, now: Section, then: Section) -> Finding:
    value = now.values[limit.metric]
    holds, says = _moved(limit, value, then.values[limit.metric])
    return Finding(
        key=now.key,
        metric=limit.metric,
        value=value,
        rule=str(limit),
        severity="fail",
        status="ok" if holds else "fail",
        fix=remedy_of(limit.metric) or None,
        says=f"{limit.metric} {says}.",
    )


def _moved(limit: Limit, now: float | None, then: float | None) -> tuple[bool, str]:
    """Whether a limit holds, and how to say it after the metric's name."""
    wanted = f"should be {limit}"
    if now is None:
        return False, f"has no data, {wanted}"
    if then is None:
        return False, f"is {shown(now)}, but the baseline has no data, {wanted}"
    size = ideal(limit.metric) == 0
    new, old = (abs(now), abs(then)) if size else (now, then)
    worse = new - old if limit.rises else old - new
    was = f"is {shown(now, then)}, the baseline {shown(then, now)}{_by(new, old, size and (now < 0 or then < 0))}"
    if old == 0 and limit.share and worse > 0:
        return False, f"{was}, and any change from 0 is more than {100 * limit.amount:.12g} % of it"
    return worse <= limit.room(old), f"{was}, {wanted}"


def _by(now: float, then: float, size: bool) -> str:
    """How far up or down, as a percentage of the baseline; size: of what."""
    if then == 0 or now == then:
        return ""
    change = (now - then) / abs(then)
    return f" ({'size ' if size else ''}{'up' if change > 0 else 'down'} {abs(100 * change):.3g} %)"
