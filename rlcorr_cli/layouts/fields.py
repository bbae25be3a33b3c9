"""What a JSON object's keys hold, of the kind that is asked for, or a DataError that names the key.

Lists of numbers become arrays by `struct`, which takes nothing but numbers and is twice as quick as NumPy.
"""

import struct
from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError

HINT = "Is it a dump of this framework, complete and as it was written?"
LARGEST = 1 << 63
"""The first whole number that int64 does not hold."""

Row = Mapping[str, Any]


def floats(row: Row, key: str) -> NDArray[Any]:
    """Log-probs and the like: float64, or objects where some are null."""
    values = _list(row, key)
    try:
        return np.frombuffer(struct.pack(f"{len(values)}d", *values))
    except (struct.error, OverflowError) as error:
        if not all(value is None or isinstance(value, float | int) for value in values):
            raise _other(key, "a list of numbers") from error
    return _nullable(values, key)


def integers(row: Row, key: str) -> NDArray[np.int64]:
    """Token ids, places and the like."""
    values = _list(row, key)
    try:
        return np.frombuffer(struct.pack(f"{len(values)}q", *values), np.int64)
    except struct.error as error:
        raise _other(key, "a list of whole numbers") from error


def mask(row: Row, key: str) -> NDArray[np.bool_]:
    """Which tokens count: true and false, or 1 and 0."""
    values = _list(row, key)
    try:
        return np.frombuffer(bytes(values), np.uint8) != 0
    except (ValueError, TypeError):
        numbers = floats(row, key)
    if numbers.dtype == object:
        raise _other(key, "a list of true and false")
    return numbers != 0


def objects(row: Row, key: str) -> list[dict[str, Any]]:
    """A list of objects; empty where it is null or not there."""
    values = row.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise _other(key, "a list of objects")
    return values


def inner(row: Row, key: str) -> dict[str, Any]:
    """An object; empty where it is null or not there."""
    value = row.get(key)
    if value is not None and not isinstance(value, dict):
        raise _other(key, "an object")
    return value or {}


def number(row: Row, key: str) -> float | None:
    """One number."""
    value = row.get(key)
    if value is not None and not isinstance(value, float | int):
        raise _other(key, "a number")
    try:
        return None if value is None else float(value)
    except OverflowError as error:
        raise _other(key, "a number of double precision") from error


def whole(row: Row, key: str) -> int | None:
    """One whole number."""
    value = row.get(key)
    if value is not None and (not isinstance(value, int) or not -LARGEST <= value < LARGEST):
        raise _other(key, "a whole number")
    return value


def text(row: Row, key: str) -> str | None:
    """One text; of a number, its digits."""
    value = row.get(key)
    if value is not None and not isinstance(value, str | int | float):
        raise _other(key, "a text")
    try:
        str(value).encode()
    except UnicodeEncodeError as error:  # half of a character, which JSON can write
        raise _other(key, "a string of complete characters") from error
    return None if value is None else str(value)


def version(value: Any) -> int | None:
    """A policy's version where it is a number, or the text of one; null where the framework names it otherwise."""
    if isinstance(value, str) and len(value) < 19 and value.isdecimal():
        return int(value)
    return value if type(value) is int and 0 <= value < LARGEST else None


def aligned(**lists: Sized) -> int:
    """How many tokens these lists hold, all the same."""
    (first, n), *others = ((name, len(values)) for name, values in lists.items())
    for name, n_other in others:
        if n_other != n:
            raise DataError(f"{name} has {n_other:,} values, {first} has {n:,}.", HINT)
    return n


def span(valid: NDArray[np.bool_]) -> slice:
    """From the first to the last token that counts."""
    tokens = np.flatnonzero(valid)
    return slice(int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else slice(0, 0)


def spread(valid: NDArray[np.bool_], values: NDArray[Any], name: str) -> NDArray[Any]:
    """Values of the tokens that count only, at their tokens' places among all; 0.0 at the others."""
    if len(values) != int(np.count_nonzero(valid)):
        raise DataError(f"{name} has {len(values):,} values for {np.count_nonzero(valid):,} sampled tokens.", HINT)
    spread_out = np.zeros(len(valid), values.dtype)
    spread_out[valid] = values
    return spread_out


def _nullable(values: list[Any], key: str) -> NDArray[Any]:
    try:
        return np.array([None if value is None else float(value) for value in values], object)
    except OverflowError as error:
        raise _other(key, "a list of numbers of double precision") from error


def _list(row: Row, key: str) -> list[Any]:
    values = row.get(key)
    if not isinstance(values, list):
        raise _other(key, "a list")
    return values


def _other(key: str, kind: str) -> DataError:
    return DataError(f"{key} is not {kind}.", HINT)
