"""Arrays of numbers and of counts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def check_counts(*numbers: NDArray[Any]) -> None:
    """A ValueError of numbers that count nothing: below 0, not finite, or beyond what a float counts exactly."""
    if not all(np.all((each >= 0) & (each < 1 << 53)) for each in numbers):
        raise ValueError("a count is no number of things")
