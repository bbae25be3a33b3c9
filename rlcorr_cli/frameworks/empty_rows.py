"""Statistics over sequences that count those without a valid token, as verl and slime do.

rlcorr's own leave such rows out.  Without any valid token at all there is no statistic: None.
"""

import math
from collections.abc import Callable

from rlcorr_cli.totals.view import Numbers, StatisticFamily, Value


def with_empty(mean: Value, numbers: Numbers, value: float) -> Value:
    """A mean over non-empty sequences with the empty ones counted in at `value`."""
    if mean is None:
        return None
    n, empty = numbers.sequences, numbers.sum("empty")
    return (mean * n + value * empty) / (n + empty)


def std_with_empty(family: StatisticFamily, numbers: Numbers, value: float) -> Value:
    """Sample standard deviation of the sequences' means with the empty ones counted in at `value`; 0.0 of one row."""
    n, empty = numbers.sequences, numbers.sum("empty")
    rows = n + empty
    if not n:
        return None
    if rows < 2:
        return 0.0
    mean = (numbers.sum(f"{family.prefix}seq") + empty * value) / rows
    deviation = numbers.sum(f"{family.prefix}seq_dev") + empty * (value - family.centre) ** 2
    return math.sqrt(max(deviation - rows * (mean - family.centre) ** 2, 0.0) / (rows - 1))


def extreme(value: Value, numbers: Numbers, at_empty: float, pick: Callable[[float, float], float]) -> Value:
    """A minimum or maximum over sequences with an empty one's value considered too."""
    return value if value is None or not numbers.sum("empty") else pick(value, at_empty)


def counted_empty(numbers: Numbers, framework: str, counted: str) -> tuple[str, ...]:
    """A remark on rows without a valid token, where there are any."""
    empty = int(numbers.sum("empty"))
    if not empty:
        return ()
    return (f"Rows without a valid token: {empty:,}; {framework} counts each as {counted}.",)
