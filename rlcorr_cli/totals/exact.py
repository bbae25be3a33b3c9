"""Numbers and group keys as JSON keeps them, to the last bit: JSON itself has no infinity, no NaN and no dates."""

from collections.abc import Sequence
from datetime import date, datetime
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def floats_to_list(values: Floats) -> list[Any]:
    """Numbers, nested as the array is; what is not finite is text ("inf", "-inf", "nan")."""
    if values.ndim > 1:
        return [floats_to_list(row) for row in values]
    return [value if isfinite(value) else str(value) for value in values.tolist()]


def floats_from_list(data: Sequence[Any]) -> Floats:
    """What `floats_to_list` wrote."""
    return np.array(data, np.float64)


def check_counts(*numbers: NDArray[Any]) -> None:
    """A ValueError of numbers that count nothing: below 0, not finite, or beyond what a float counts exactly."""
    if not all(np.all((each >= 0) & (each < 1 << 53)) for each in numbers):
        raise ValueError("a count is no number of things")


def key_to_list(key: tuple[Any, ...]) -> list[Any]:
    """A group key's values; dates, and floats that are not finite, say what they are."""
    return [_value_to_json(value) for value in key]


def key_from_list(data: Sequence[Any]) -> tuple[Any, ...]:
    """What `key_to_list` wrote."""
    return tuple(_FROM_TEXT[kind](text) for kind, text in (_kind_and_text(value) for value in data))


_FROM_TEXT: dict[str, Any] = {
    "": lambda value: value,
    "float": float,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def _value_to_json(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return {"float": str(value)}
    if isinstance(value, date):
        return {"datetime" if isinstance(value, datetime) else "date": value.isoformat()}
    return value


def _kind_and_text(value: Any) -> tuple[str, Any]:
    return next(iter(value.items())) if isinstance(value, dict) else ("", value)
