"""What a profile is, and the pieces that several share."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.families import Moments, Value, Values
from rlcorr_cli.totals.view import Numbers

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Profile:
    """keys: the peer's config keys (a file with any of them under `block`, or at top level, is its config).

    read: those keys -> Plan.  write: totals and that plan -> the peer's metrics, by its names.  notes: what a user
    of this plan should know about the peer's quirks.
    """

    name: str
    keys: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    read: Callable[[Config], Plan]
    write: Callable[[Numbers, Plan], Values]
    notes: Callable[[Plan], tuple[str, ...]] = lambda plan: ()


def checked(config: Config, keys: tuple[str, ...], profile: str) -> Config:
    """`config` if the profile knows all its keys; else an error that names the nearest."""
    for key in config:
        if key not in keys:
            raise UsageError(f"{profile} has no option '{key}'.", f"Nearest: {nearest(str(key), keys)}.")
    return config


def number(config: Config, key: str, default: float | None = None) -> float | None:
    """A finite number or None; strings of digits count, 'nan' and booleans do not."""
    value = config.get(key, default)
    if value is None:
        return None
    try:
        result = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise UsageError(f"{key} must be a finite number, got {value!r}.", "Use null for no bound.")
    return result


def positive(config: Config, key: str, default: float | None = None) -> float | None:
    """A number above 0, or None."""
    value = number(config, key, default)
    if value is not None and value <= 0:
        raise UsageError(f"{key} must be positive, got {value:g}.", "Use null to switch it off.")
    return value


def flag(config: Config, key: str, default: bool = False) -> bool:
    """A true or false."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise UsageError(f"{key} must be true or false, got {value!r}.", "Write it without quotes.")
    return value


def choice(config: Config, key: str, allowed: tuple[str, ...], default: str | None = None) -> str | None:
    """One of `allowed`, or None."""
    value = config.get(key, default)
    if value is None or value in allowed:
        return value
    raise UsageError(f"{key} must be one of {', '.join(allowed)}, got {value!r}.", "Use null to switch it off.")


def with_empty(mean: Value, numbers: Numbers, value: float) -> Value:
    """A mean over non-empty sequences with the empty ones counted in at `value`, as verl does."""
    if mean is None:
        return None
    n, empty = numbers.sequences, numbers.sum("empty")
    return (mean * n + value * empty) / (n + empty)


def std_with_empty(family: Moments, numbers: Numbers, value: float) -> Value:
    """Sample standard deviation of the sequences' means with the empty ones counted in at `value`; 0.0 of one."""
    n, empty = numbers.sequences, numbers.sum("empty")
    rows = n + empty
    if rows < 2:
        return 0.0 if n else None
    mean = (numbers.sum(f"{family.prefix}seq") + empty * value) / rows
    deviation = numbers.sum(f"{family.prefix}seq_dev") + empty * (value - family.centre) ** 2
    return math.sqrt(max(deviation - rows * (mean - family.centre) ** 2, 0.0) / (rows - 1))


def extreme(value: Value, numbers: Numbers, at_empty: float, pick: Callable[[float, float], float]) -> Value:
    """A minimum or maximum over sequences with an empty one's value considered too."""
    return value if value is None or not numbers.sum("empty") else pick(value, at_empty)
