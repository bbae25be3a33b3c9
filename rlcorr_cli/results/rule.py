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
    needs: another metric, without which this one is not judged: where either has no value there is no finding.
    """

    metric: str
    severity: Severity
    remedy: str
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    absolute: bool = False
    over: Over = "both"
    needs: str = ""

    def __str__(self) -> str:
        """The range as it reads after "should be": '<= 0.01', 'between -0.1 and 0.1', '0', '>= 0.1 in size'."""
        least = -self.high if self.absolute and self.low is None and self.high is not None else self.low
        low, high = (None if end is None else f"{end + 0.0:.12g}" for end in (least, self.high))  # -0.0 is 0
        in_size = " in size" if self.absolute and self.low is not None else ""
        if low is None or high is None:
            return f"<= {high}" if low is None else f">= {low}{in_size}"
        return (low if low == high else f"between {low} and {high}") + in_size

    def holds(self, value: float) -> bool:
        """Whether a value lies in the range."""
        size = abs(value) if self.absolute else value
        return (self.low is None or size >= self.low) and (self.high is None or size <= self.high)
