"""Options of a framework's config: numbers, flags and choices read from it, and what is refused."""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from rlcorr_cli.errors import UsageError, nearest, shortened
from rlcorr_cli.plans.plan import LEVELS, WeightScope

Config = Mapping[str, Any]
Option = TypeVar("Option", bound=str)


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
        raise UsageError(f"{key} must be a finite number, got {shortened(value)}.", "Use null for no bound.")
    return result


def positive(config: Config, key: str, default: float | None = None) -> float | None:
    """A number above 0, or None."""
    value = number(config, key, default)
    if value is not None and value <= 0:
        raise UsageError(f"{key} must be positive, got {value:g}.", "Use null to switch it off.")
    return value


def flag(config: Config, key: str, default: bool = False) -> bool:
    """The option's true or false."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise UsageError(f"{key} must be true or false, got {shortened(value)}.", "Write it without quotes.")
    return value


def choice(config: Config, key: str, allowed: tuple[Option, ...], default: Option | None = None) -> Option | None:
    """One of `allowed`, or None."""
    value = config.get(key, default)
    if value is None or value in allowed:
        return value
    raise UsageError(
        f"{key} must be one of {', '.join(allowed)}, got {shortened(value)}.", "Use null to switch it off."
    )


def ratio_level(config: Config, key: str, default: WeightScope | None = None) -> WeightScope | None:
    """The scope of a ratio that verl and slime call its level, or None."""
    name = choice(config, key, tuple(LEVELS), default)
    return next((scope for scope in LEVELS if scope == name), None)


def contradiction(first: str, second: str, hint: str) -> UsageError:
    """The error for two options that contradict each other."""
    return UsageError(f"{first} and {second} contradict each other.", hint)
