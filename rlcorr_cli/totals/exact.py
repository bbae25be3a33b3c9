"""Numbers as JSON keeps them, to the last bit: JSON itself has no infinity and no NaN."""

from collections.abc import Sequence
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
