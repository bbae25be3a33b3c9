"""Numbers, lists and steps in sentences."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import Any

from rlcorr_cli.records.fields import Interval

ROUND_STEPS = (0.1, 0.05, 0.02, 0.01)
"""A setting that somebody chose is a multiple of the coarsest of these that allows one."""

MOST_NAMED = 4
"""Steps, or runs of them, that are named one by one."""


def percent(share: float) -> str:
    """A share in whole percent, such as 72%; with more digits where that is 0 or 1%."""
    if share == 0 or abs(share) >= 0.015:
        return f"{100 * share + 0.0:.0f}%"
    return f"{100 * share:.1g}%" if abs(share) >= 0.0001 else "< 0.01%"


def figures(value: float) -> str:
    """With two significant digits, and no exponent between 1e-4 and 1e6."""
    if not isfinite(value) or value == 0:
        return "0" if value == 0 else f"{value}"
    text = f"{value:.2g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e6 else text


def interval_text(interval: Interval, decimals: int = 3) -> str:
    """Such as 0.787 to 0.808; with three digits of a number that would have one or none."""
    largest = max(map(abs, interval))
    if 0 < largest < 10 ** (1 - decimals):
        decimals = 2 - floor(log10(largest))
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


def and_list(names: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def steps_named(steps: Sequence[Any], column: str = "step", every: Sequence[Any] = ()) -> str:
    """'step 3', 'steps 3, 7 and 11', 'steps 90 to 99', 'steps 3, 8 and 20 to 99', 'steps 10 to 90 (10 apart)', else
    '37 steps from 12 to 99'.  every: as of `_runs`."""
    if len(steps) == 1:
        return f"{column} {steps[0]}"
    runs = _runs(steps, every)
    return f"{column}s {runs}" if runs else f"{len(steps):,} {column}s from {steps[0]} to {steps[-1]}"


def levels_named(levels: Sequence[Any], every: Sequence[Any] = ()) -> str:
    """The same of any levels without a noun: 'w3', '3 and 7', '20 to 99', '37 from 12 to 99', 'w1, w3, w5, w6 and 30
    more'.  every: as of `_runs`."""
    names = [f"{level}" for level in levels]
    if all(isinstance(level, int | float) for level in levels):
        return _runs(levels, every) or f"{len(names):,} from {names[0]} to {names[-1]}"
    few = len(names) <= MOST_NAMED
    return and_list(names if few else [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED:,} more"])


def _runs(steps: Sequence[Any], every: Sequence[Any]) -> str:
    """'3', '3, 7 and 11', '90 to 99', '3, 8 and 20 to 99', '10 to 90 (10 apart)'; empty of more than MOST_NAMED runs.

    every: all steps there are, in order, where they are known: steps without another between them are a run.  Else
    whole numbers that follow each other are one.
    """
    names = [f"{step}" for step in steps]
    place_of = {step: place for place, step in enumerate(every)}
    places = [place_of.get(step, step) for step in steps]
    gaps = {b - a for a, b in pairwise(places)} if all(isinstance(place, int) for place in places) else {0}
    if gaps == {1} and len(names) > 2:
        return f"{names[0]} to {names[-1]}"
    if len(names) <= MOST_NAMED:
        return and_list(names)
    if len(gaps) == 1 and (apart := max(gaps)) > 1 and not every:
        return f"{names[0]} to {names[-1]} ({apart:,} apart)"
    starts = [n for n in range(len(names)) if not n or 0 in gaps or places[n] != places[n - 1] + 1]
    runs = [names[start:end] for start, end in pairwise([*starts, len(names)])]
    if len(runs) > MOST_NAMED:
        return ""
    return and_list([f"{run[0]} to {run[-1]}" if len(run) > 1 else run[0] for run in runs])
