"""What a file's dicts hold, taken with its type checked: a file of another structure is a DataError that says where."""

from array import array as Numbers
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.canonical import OTHER
from rlcorr_cli.layouts.pickled import Inert
from rlcorr_cli.layouts.tensors import Array, array, is_tensor, number
from rlcorr_cli.layouts.torch_files import TorchFile


def mapping(value: Any, what: str) -> dict[Any, Any]:
    """The value, a dict.  what: its name in the error."""
    if not isinstance(value, dict):
        raise DataError(f"{what} is not a dict.", OTHER)
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


def numbers(value: Any, what: str, file: TorchFile, whole: bool = False) -> Array:
    """The numbers of a tensor, an array or a list, one after the other.  what: its name in the error.

    whole: whether a list is tried as one of whole numbers or of floats.  Lists in it are refused before NumPy
    sees them, which would walk lists that hold each other for ever.
    """
    if is_tensor(value):
        value = file.array(value)
    elif isinstance(value, Inert):
        value = array(value)
    if isinstance(value, list):
        value = _of_list(value, whole)
    if not isinstance(value, np.ndarray) or value.ndim != 1:
        raise DataError(f"{what} is not a list of numbers.", OTHER)
    return value


def _of_list(values: list[Any], whole: bool) -> Array | None:
    try:
        return np.asarray(Numbers("q" if whole else "d", values))
    except (TypeError, OverflowError):  # something else in it
        if not all(value is None or isinstance(value, int | float) for value in values):
            return None
        return np.array(values, object if None in values else np.float64)


def scalar(value: Any) -> float | None:
    """A number, also one of NumPy's; None of anything else, such as a dict of rewards."""
    value = number(value)
    if isinstance(value, int) and value.bit_length() > 1000:  # beyond any float
        return None
    return float(value) if isinstance(value, int | float) else None


def word(value: Any) -> str | int | None:
    """A text or a whole number; None of anything else, which may be of any size as a text."""
    return value if isinstance(value, str | int) else None
