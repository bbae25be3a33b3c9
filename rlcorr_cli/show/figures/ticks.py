"""Ticks that can be read whatever the data: at least three labelled ones on an axis, and room between their labels.

matplotlib's own choice leaves an axis of one length, one step or few weights with one label or none.  Each function
here sets the ticks of one axis once its limits are known, and opens these where fewer than three would lie inside.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

LEAST, MOST = 3, 7
ROOM = 42
"""Characters that the labels of a horizontal axis may take together: the narrowest panel is three inches wide."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def linear(axis: Axis) -> None:
    """Ticks at round numbers."""
    low, high = _view(axis)
    middle = max(abs(low), abs(high))
    if not high - low > 1e-6 * middle:
        low, high = (low - 0.05 * middle, high + 0.05 * middle) if middle > 0 else (-1.0, 1.0)
    _set(axis, low, high, _sparse(axis, low, high, integer=False))


def whole(axis: Axis) -> None:
    """Ticks at whole numbers, of places that are all whole."""
    low, high = _view(axis)
    while math.floor(high) - math.ceil(low) < LEAST - 1:
        low, high = low - 0.55, high + 0.55
    _set(axis, low, high, _sparse(axis, low, high, integer=True))


def counts(axis: Axis) -> None:
    """A logarithmic axis of counts, from just below one up."""
    high = _view(axis)[1]
    axis.axes.set_yscale("log")
    logarithmic(axis, 0.6, max(12.0, 1.6 * high))


def logarithmic(axis: Axis, low: float, high: float) -> None:
    """Ticks on an axis that is logarithmic already: at powers of ten, or closer where there are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1,), (1, 3), (1, 2, 5)):
        ticks = [mantissa * 10.0**k for k in decades for mantissa in mantissas]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= LEAST:
            break
    else:
        ticks = _sparse(axis, low, high, integer=False)
    _set(axis, low, high, _every(ticks), logarithmic=True)


def octaves(axis: Axis, low: float, high: float) -> None:
    """A logarithmic axis of places or lengths from 1 up, with ticks at powers of two."""
    low, high = max(0.9, low), max(high, 1.1)
    wanted = LEAST + 0.2
    if (lacking := wanted - math.log2(high / low)) > 0:
        low = max(0.9, low / 2 ** (lacking / 2))
        high = max(high, low * 2**wanted)
    axis.axes.set_xscale("log", base=2)
    ticks = [2.0**k for k in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    _set(axis, low, high, _every(ticks))


def symmetric(axis: Axis, threshold: float) -> None:
    """An axis that is logarithmic either side of +-threshold, with ticks at 0 and powers of ten."""
    low, high = (float(end) for end in axis.get_data_interval())
    axis.axes.set_yscale("symlog", linthresh=threshold)
    low, high = min(3 * low, -0.2 * threshold), max(3 * high, 12 * threshold)
    first = round(math.log10(threshold))
    powers = [10.0**k for k in range(first, math.floor(math.log10(max(high, -low))) + 1)]
    above, below = [p for p in powers if p <= high], [-p for p in powers if -p >= low]
    # One step for both sides: of few powers below 0, beside many above it, the labels would lie upon one another.
    step = max(1, math.ceil((len(above) + len(below)) / 9))
    above, below = above[::step], below[step - 1 :: step]
    _set(axis, low, high, sorted({*below, 0.0, *above}), logarithmic=True)


def fixed(axis: Axis, low: float, high: float, labels: Sequence[tuple[float, str]]) -> None:
    """Ticks at these places, with these labels."""
    _set_limits(axis, low, high)
    axis.set_major_locator(FixedLocator([place for place, _ in labels]))
    axis.set_major_formatter(FixedFormatter([text for _, text in labels]))
    axis.set_minor_locator(NullLocator())


def texts(ticks: Sequence[float], logarithmic: bool = False) -> list[str]:
    """Labels that tell the ticks apart: 0.25, 1,000, 1.2e9; on a logarithmic axis of many decades 10⁻³, 10¹³."""
    largest = max(map(abs, ticks), default=0.0)
    smallest = min((abs(tick) for tick in ticks if tick), default=1.0)
    if logarithmic:
        wide = largest > 1e5 or smallest < 1e-3
        return [_power(tick) if wide else _minus(f"{tick:,g}") for tick in ticks]
    step = min((b - a for a, b in pairwise(ticks)), default=largest) or 1.0
    decimals = next((d for d in range(16) if all(_is_near(t, round(t, d), step) for t in ticks)), 16)
    if (largest >= 1e6 and step >= largest / 1e4) or (0 < largest < 1e-3):
        return [_scientific(tick, step) for tick in ticks]
    return [_minus(f"{tick + 0.0:,.{decimals}f}") for tick in ticks]


def _is_near(tick: float, rounded: float, step: float) -> bool:
    return abs(tick - rounded) <= 1e-3 * step


def _scientific(tick: float, step: float) -> str:
    if tick == 0:
        return "0"
    exponent = math.floor(math.log10(abs(tick)) + 1e-9)
    for digits in range(8):
        text = f"{tick:.{digits}e}"
        if _is_near(tick, float(text), step):
            break
    else:
        text = f"{tick:.8e}"
    mantissa, _, written = text.partition("e")
    return _minus(f"{mantissa}e{int(written) if written else exponent}")


def _power(tick: float) -> str:
    if tick == 0:
        return "0"
    exponent = math.floor(math.log10(abs(tick)) + 1e-9)
    mantissa = f"{abs(tick) / 10.0**exponent:.3g}"
    power = f"10{str(exponent).translate(SUPERSCRIPTS)}"
    return ("−" if tick < 0 else "") + (power if mantissa == "1" else f"{mantissa}·{power}")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _every(ticks: Sequence[float], most: int = MOST) -> list[float]:
    """At most so many of them, evenly."""
    return list(ticks[:: max(1, math.ceil(len(ticks) / most))])


def _sparse(axis: Axis, low: float, high: float, *, integer: bool) -> list[float]:
    """As many round numbers as have room beside one another, three at least."""
    is_vertical, ticks = axis is axis.axes.yaxis, list[float]()
    for wanted in range(MOST, 1, -1):
        locator = MaxNLocator(nbins=wanted, steps=[1, 2, 2.5, 5, 10], integer=integer, min_n_ticks=LEAST)
        slack = 1e-9 * (high - low)
        ticks = [float(t) for t in locator.tick_values(low, high) if low - slack <= t <= high + slack]
        ticks = [0.0 if abs(tick) < 1e-6 * (high - low) else tick for tick in ticks]
        if is_vertical or sum(len(text) + 2 for text in texts(ticks)) <= ROOM:
            break
    return ticks


def _view(axis: Axis) -> tuple[float, float]:
    low, high = sorted(float(end) for end in np.asarray(axis.get_view_interval()))
    return low, high


def _set_limits(axis: Axis, low: float, high: float) -> None:
    set_limits: Callable[..., Any] = axis.axes.set_xlim if axis is axis.axes.xaxis else axis.axes.set_ylim
    set_limits(low, high)


def _set(axis: Axis, low: float, high: float, ticks: Sequence[float], *, logarithmic: bool = False) -> None:
    fixed(axis, low, high, list(zip(ticks, texts(ticks, logarithmic), strict=True)))
