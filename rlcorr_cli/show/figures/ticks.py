"""Ticks where matplotlib's own are too few or unlike numbers in text: of whole numbers, and on logarithmic axes.

Each function here sets the ticks of one axis once its limits are known.  They are by matplotlib's locators, on axes
whose limits are opened where hardly one tick would lie inside.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
    SymmetricalLogLocator,
)

LEAST, BESIDE, ABOVE = 3, 5, 7
"""Ticks on an axis: as many at least; about as many at most beside each other, and above each other."""
STEPS = (1, 2, 2.5, 5, 10)


def whole(axis: Axis) -> None:
    """Ticks at whole numbers, of places that are all whole."""
    low, high = _view(axis)
    while math.floor(high) - math.ceil(low) < LEAST - 1:
        low, high = low - 0.55, high + 0.55
    _round(axis, low, high, integer=True)


def counts(axis: Axis) -> None:
    """A logarithmic axis of counts, from just below one up."""
    high = _view(axis)[1]
    axis.axes.set_yscale("log")
    logarithmic(axis, 0.6, max(12.0, 1.6 * high))


def logarithmic(axis: Axis, low: float, high: float) -> None:
    """Ticks on an axis that is logarithmic already: at powers of ten, or closer where there are few."""
    if high / low < 10:
        _round(axis, low, high, integer=False)
        return
    inside = math.floor(math.log10(high)) - math.ceil(math.log10(low)) + 1
    subs = (1,) if inside >= LEAST else (1, 3) if inside == LEAST - 1 else (1, 2, 5)
    _set(axis, low, high, LogLocator(subs=subs, numticks=ABOVE))


def octaves(axis: Axis, low: float, high: float) -> None:
    """A logarithmic axis of places or lengths from 1 up, with ticks at powers of two."""
    low, high = max(0.9, low), max(high, 1.1)
    wanted = LEAST + 0.2
    if (lacking := wanted - math.log2(high / low)) > 0:
        low = max(0.9, low / 2 ** (lacking / 2))
        high = max(high, low * 2**wanted)
    axis.axes.set_xscale("log", base=2)
    _set(axis, low, high, LogLocator(base=2, numticks=ABOVE + 1))


def symmetric(axis: Axis, threshold: float) -> None:
    """An axis that is logarithmic either side of +-threshold, with ticks at 0 and powers of ten."""
    low, high = (float(end) for end in axis.get_data_interval())
    axis.axes.set_yscale("symlog", linthresh=threshold)
    locator = SymmetricalLogLocator(base=10, linthresh=threshold)
    locator.set_params(numticks=ABOVE)
    _set(axis, min(3 * low, -0.2 * threshold), max(3 * high, 12 * threshold), locator)


def fixed(axis: Axis, low: float, high: float, labels: Sequence[tuple[float, str]]) -> None:
    """Ticks at these places, with these labels."""
    _set(axis, low, high, FixedLocator([place for place, _ in labels]))
    axis.set_major_formatter(FixedFormatter([text for _, text in labels]))


def _round(axis: Axis, low: float, high: float, *, integer: bool) -> None:
    """As many round numbers as have room beside one another, three at least."""
    _set(axis, low, high, MaxNLocator(_most(axis), steps=STEPS, integer=integer, min_n_ticks=LEAST))
    if integer or not _needs_power(low, high):
        formatter = ScalarFormatter()
        formatter.set_scientific(False)
        axis.set_major_formatter(formatter)


def without_power(axis: Axis) -> None:
    """Each number in full at matplotlib's own ticks, where it would write a power of ten above the axis."""
    if isinstance(axis.get_major_formatter(), ScalarFormatter) and _needs_power(*_view(axis)):
        axis.set_major_formatter(FuncFormatter(_text))
        axis.set_major_locator(MaxNLocator(_most(axis), steps=STEPS, min_n_ticks=LEAST))


def _most(axis: Axis) -> int:
    return ABOVE if axis is axis.axes.yaxis else BESIDE


def _needs_power(low: float, high: float) -> bool:
    return not 1e-3 <= max(abs(low), abs(high)) < 1e6


def _text(tick: float, _: object) -> str:
    return f"{tick:,g}".replace("-", "−")


def _view(axis: Axis) -> tuple[float, float]:
    low, high = sorted(float(end) for end in np.asarray(axis.get_view_interval()))
    return low, high


def _set(axis: Axis, low: float, high: float, locator: Locator) -> None:
    """The limits of an axis, and the ticks of a locator that lie inside."""
    (axis.axes.set_xlim if axis is axis.axes.xaxis else axis.axes.set_ylim)(low, high)
    slack = 1e-9 * (high - low)
    inside = [tick for tick in locator.tick_values(low, high) if low - slack <= tick <= high + slack]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_text))
