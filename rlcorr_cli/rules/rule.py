"""RULES: which values of a metric are a worry, and what to do about them.

Thresholds are those of verl's published guides and of the metric definitions.  A rule names a range; a value outside
it has the rule's severity, and a metric of no data has status "no data".  `check` judges by the same table, and by a
user's own rules (`rules.py`).
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["fail", "warn"]
Over = Literal["total", "groups", "both"]


@dataclass(frozen=True)
class Rule:
    """A metric's range [low, high], inclusive; absolute: of its absolute value.

    over: whether `check` judges the whole dump, each of its groups, or both.
    optional: of a metric that small dumps and equal policies do not have; without a value `check` finds nothing.
    """

    metric: str
    severity: Severity
    remedy: str
    low: float | None = None
    high: float | None = None
    absolute: bool = False
    over: Over = "both"
    optional: bool = False

    def __str__(self) -> str:
        head = "abs " if self.absolute else ""
        if self.low is None:
            return f"{head}<= {self.high:.12g}"
        return f"{head}>= {self.low:.12g}" if self.high is None else f"{head}{self.low:.12g} .. {self.high:.12g}"

    def holds(self, value: float) -> bool:
        """Whether a value is inside."""
        size = abs(value) if self.absolute else value
        return (self.low is None or size >= self.low) and (self.high is None or size <= self.high)
