"""Rule: the range that a metric should lie in, how bad it is outside, and what to do about it.

The default rules are in `defaults.py`, a user's own come from `files.py` or from flags (`judge.py`); `judge` holds
numbers to either.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

Severity = Literal["fail", "warn"]
Over = Literal["total", "groups", "both"]


@dataclass(frozen=True)
class Rule:
    """The range [low, high], inclusive, that a metric (absolute: its absolute value) should lie in.

    over: whether `check` judges the whole dump, each of its groups, or both.
    optional: the metric has no value in small dumps and for equal policies; then there is no finding.
    """

    metric: str
    severity: Severity
    remedy: str
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    absolute: bool = False
    over: Over = "both"
    optional: bool = False

    def __str__(self) -> str:
        """The range as it reads after "should be": '<= 0.01', 'between -0.1 and 0.1', '>= 0.1 in size'."""
        low, high = (None if bound is None else f"{bound:.12g}" for bound in (self.low, self.high))
        if low is None:
            return f"between -{high} and {high}" if self.absolute else f"<= {high}"
        return (f">= {low}" if high is None else f"between {low} and {high}") + (" in size" if self.absolute else "")

    def holds(self, value: float) -> bool:
        """Whether a value lies in the range."""
        size = abs(value) if self.absolute else value
        return (self.low is None or size >= self.low) and (self.high is None or size <= self.high)
