"""Numbers as people read them, and the small pictures made of characters."""

import math
from collections.abc import Callable, Mapping, Sequence

from rlcorr_cli.errors import plural as plural
from rlcorr_cli.results.groups import Clusters
from rlcorr_cli.totals.bins import Histogram

NOTHING = "–"
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-:=+*#"


def number(value: float | None) -> str:
    """A number with three significant digits, four from 1 up, and all its nines just below 1, or '1 - 1.4e-11' where
    they are more than six; a dash for no data.

    What is not finite is 'nan', 'inf' or '-inf': a dump's own values may be so.
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return str(float(value))
    size = abs(value)
    if size in (0, 1):
        return f"{value + 0.0:.0f}"
    if 1 - 1e-6 < value < 1 - 1e-12:
        return _from_one(value)
    if 0.99 < size < 1 - 1e-12:
        return f"{value:.{1 - math.floor(math.log10(1 - size))}f}"
    if size < 1e-4 or size >= 1e6:
        return f"{value:.2e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(size)) - (size < 1))}f}"


def decimals(n: int) -> Callable[[float | None], str]:
    """What writes a number with so many decimals, or a dash for no data."""
    return lambda value: NOTHING if value is None else f"{value:.{n}f}"


def interval(low: float, high: float) -> str:
    """Both ends with the same decimals, enough to tell them apart; ends that hug 1 by their distance from it."""
    width = high - low
    if width <= 0 or max(abs(low), abs(high)) >= 1e5 or max(abs(low), abs(high)) < 1e-3:
        return f"{number(low)} to {number(high)}"
    decimals = max(0, 1 - math.floor(math.log10(width)))
    if decimals > 9 and max(abs(1 - low), abs(1 - high)) < 1e-6:
        return f"{_from_one(low)} to {_from_one(high)}"
    decimals = min(decimals, 9)
    return f"{low:,.{decimals}f} to {high:,.{decimals}f}"


def between(value: float | None, ends: tuple[float, float] | None) -> str:
    """A number, with the decimals of its interval where fewer would print it outside of that."""
    text = number(value)
    if value is None or ends is None or not ends[0] <= value <= ends[1]:
        return text
    low, high = interval(*ends).split(" to ")
    try:
        is_inside = float(low) <= float(text) <= float(high)
    except ValueError:  # '1 - 2e-12', '1,234'
        return text
    return text if is_inside or "e" in low else f"{value:.{len(low.partition('.')[2])}f}"


def _from_one(value: float) -> str:
    """'1 - 2.4e-12': nine decimals would round it to 1."""
    return "1" if value == 1 else f"1 {'-' if value < 1 else '+'} {abs(1 - value):.1e}"


def metric_value(value: float | None, profile: str) -> str:
    """A metric's value: as `number`, but with six digits under a framework's names, which are there to be compared."""
    return number(value) if value is None or profile == "canonical" else f"{value:.6g}"


def more(count: int, noun: str) -> str:
    """What is not listed: 'and 1 more file', 'and 2,000 more files'."""
    return f"and {count:,} more {noun}{'' if count == 1 else 's'}"


def thousands(value: float | None) -> str:
    """A whole number, its thousands apart: '27,465'; a dash for no data."""
    return NOTHING if value is None else f"{value:,}"


def duration(seconds: float) -> str:
    """Seconds in four characters up to 99.9, so that how fast a run was moves nothing to another line."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def signed(value: float | None) -> str:
    """A number as `number` writes it, with a plus sign above 0."""
    return f"+{number(value)}" if value is not None and value > 0 else number(value)


def share(value: float | None) -> str:
    """A fraction as a percentage; one just above 0 or just below 1 is not rounded to 0% or 100%.

    A sum's rounding is no such difference from 1.
    """
    if value is None:
        return NOTHING
    if value == 0 or abs(value - 1) < 1e-12:
        return f"{100 * value:.0f}%"
    if value < 0.0001 or value > 0.9999:
        return "< 0.01%" if value < 0.5 else "> 99.99%"
    return f"{100 * value:.2f}%" if value < 0.1 or value > 0.99 else f"{100 * value:.1f}%"


def amounts(counts: Mapping[str, int], clusters: Clusters | None) -> list[str]:
    """How much a dump holds: '320 sequences', '27,465 tokens', '8 prompts'; the last where they are not as many as the
    sequences."""
    parts = [plural(counts["sequences"], "sequence"), plural(counts["tokens"], "token")]
    return parts if clusters is None or clusters.n == counts["sequences"] else [*parts, clusters.counted]


def sparkline(values: Sequence[float | None], unicode: bool, low: float | None = None, least_span: float = 0.0) -> str:
    """One character a value, from the smallest to the largest; a blank for no data.  Values that differ by much less
    than least_span are drawn flat."""
    known = [v for v in values if v is not None]
    if not known:
        return ""
    bottom, top = (min(known) if low is None else low), max(known)
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    span = max(top - bottom, least_span)
    scale = (len(blocks) - 1) / span if span else 0.0
    return "".join(" " if v is None else blocks[round((v - bottom) * scale)] for v in values)


def histogram_line(histogram: Histogram, low: float, high: float, *, width: int, unicode: bool) -> str:
    """A histogram between two values as one line, log counts, so that tails show."""
    values, counts = histogram.by_value
    bins = [0] * width
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if low <= value <= high:
            bins[min(int((value - low) / (high - low) * width), width - 1)] += count
    return sparkline([math.log1p(n) if n else None for n in bins], unicode, low=0.0)
