"""The order of groups in every report."""

import math
from collections.abc import Iterable
from typing import Any


def key_order(values: Iterable[Any]) -> list[tuple[int, Any]]:
    """What a group's key is sorted by, value after value."""
    return [order(value) for value in values]


def order(value: Any) -> tuple[int, Any]:
    """Numbers first, text that is a number among them; then other text, NaN too, which has no order; null last."""
    if value is None:
        return (2, "")
    try:
        number = float(value)
    except ValueError:
        return (1, value)
    return (1, value) if math.isnan(number) else (0, number)
