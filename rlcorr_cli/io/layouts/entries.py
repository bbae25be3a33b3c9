"""What a file's dicts hold, taken with its type checked: a file of another structure is a DataError that says where."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.containers.tensors import number
from rlcorr_cli.io.layouts.canonical import OTHER


def mapping(value: Any, what: str) -> dict[Any, Any]:
    """The value, a dict.  what: its name in the error."""
    if not isinstance(value, dict):
        raise DataError(f"{what} is no dict.", OTHER)
    return value


def sequence(values: dict[Any, Any], key: str, what: str = "it", length: int | None = None) -> list[Any]:
    """A list in a dict, of that length."""
    value = values.get(key)
    if not isinstance(value, list):
        raise DataError(f"{what} has no list {key}.", OTHER)
    if length is not None and len(value) != length:
        raise DataError(f"{what} has {len(value):,} {key} for {length:,} sequences.", OTHER)
    return value


def whole(values: dict[Any, Any], key: str, what: str = "it") -> int:
    """A whole number from 0 up in a dict."""
    value = values.get(key)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise DataError(f"{what} has no whole number {key}.", OTHER)
    return value


def numbers(value: Any, what: str) -> NDArray[Any]:
    """A list as an array.  what: its name in the error."""
    try:
        array = np.asarray(value if isinstance(value, list) else None)
    except ValueError as error:  # lists of different lengths in it
        raise DataError(f"{what} is no list of numbers.", OTHER) from error
    if array.ndim != 1:
        raise DataError(f"{what} is no list of numbers.", OTHER)
    return array


def scalar(value: Any) -> float | None:
    """A number, also one of NumPy's; None of anything else, such as a dict of rewards."""
    value = number(value)
    if isinstance(value, int) and value.bit_length() > 1000:  # beyond any float
        return None
    return float(value) if isinstance(value, int | float) else None


def version(value: Any) -> int | None:
    """A policy's version where it is a number, or the text of one."""
    if isinstance(value, str) and len(value) < 19 and value.isdecimal():
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 63 else None
