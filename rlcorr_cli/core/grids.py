"""Whether a column's values lie on a coarser grid than its type's: bf16, fp16, three or four decimals."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.histogram import Floats

BF16_BITS, FP16_BITS = 7, 10
"""Bits of the mantissa."""


def grid_sums(values: NDArray[Any]) -> Floats:
    """GRID_SUMS of a column's values: f64[K].  values: float32 or float64 [V], nats."""
    values = values[values != 0]
    narrow = values.astype(np.float32)
    as_stored = narrow == values  # a float64 between two float32s is on no coarser grid
    bf16 = as_stored & ((narrow.view(np.uint32) & 0xFFFF) == 0)
    with np.errstate(over="ignore"):
        fp16 = as_stored & (narrow.astype(np.float16) == narrow)
    # frexp gives mantissas from 1/2, so that its exponent is one above floor(log2).
    exponents = np.frexp(narrow)[1] - 1
    steps = [float(np.square(np.ldexp(1.0, exponents - bits)).sum()) / 12 for bits in (BF16_BITS, FP16_BITS)]
    decimals = [float(_rounded(values, places).sum()) for places in (3, 4)]
    return np.array([len(values), bf16.sum(), fp16.sum(), *decimals, *steps], np.float64)


def _rounded(values: NDArray[Any], places: int) -> NDArray[np.bool_]:
    """Values within a rounding of their type of a decimal of so many places."""
    scaled = np.abs(values.astype(np.float64)) * 10**places
    return np.abs(scaled - np.round(scaled)) <= scaled * np.finfo(values.dtype).eps
