"""Numbers in the sentences of a diagnosis."""

from math import ceil, floor, isfinite

from rlcorr_cli.records.fields import Interval

ROUND_STEPS = (0.1, 0.05, 0.02, 0.01)
"""A setting that somebody chose is a multiple of the coarsest of these that allows one."""


def percent(share: float) -> str:
    """A share in whole percent, such as 72%; with more digits where that is 0 or 1%."""
    if share == 0 or abs(share) >= 0.015:
        return f"{100 * share + 0.0:.0f}%"
    return f"{100 * share:.1g}%" if abs(share) >= 0.0001 else "< 0.01%"


def figures(value: float, digits: int = 2) -> str:
    """With so many significant digits, and no exponent between 1e-4 and 1e6."""
    if not isfinite(value) or value == 0:
        return "0" if value == 0 else f"{value}"
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e6 else text


def interval_text(interval: Interval, decimals: int = 3) -> str:
    """Such as 0.787 to 0.808."""
    return f"{interval[0]:.{decimals}f} to {interval[1]:.{decimals}f}"


def roundest(value: float, interval: Interval) -> float:
    """The roundest number in an interval, of those the nearest to the value; else the value."""
    low, high = interval
    for step in ROUND_STEPS:
        first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
        if first <= last:
            return round(min(range(first, last + 1), key=lambda k: abs(k * step - value)) * step, 10)
    return value


def count_noun(count: int, noun: str) -> str:
    """Such as 1 row, 1,200 rows."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
