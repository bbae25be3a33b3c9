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
    """A metric's range [low, high], inclusive; absolute: of its absolute value.

    over: whether `check` judges the whole dump, each of its groups, or both.
    optional: of a metric that small dumps and equal policies do not have; without a value `check` finds nothing.
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
        head = "abs " if self.absolute else ""
        if self.low is None:
            return f"{head}<= {self.high:.12g}"
        return f"{head}>= {self.low:.12g}" if self.high is None else f"{head}{self.low:.12g} .. {self.high:.12g}"

    def holds(self, value: float) -> bool:
        """Whether a value is inside."""
        size = abs(value) if self.absolute else value
        return (self.low is None or size >= self.low) and (self.high is None or size <= self.high)
