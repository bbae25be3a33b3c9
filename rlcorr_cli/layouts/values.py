"""The one checker of what frameworks' files hold: each value is taken with its kind checked, or a DataError names it.

Four ways to ask.  `as_number` and its like take one value, of whatever origin, and give None where it is of another
kind: what people put beside the tokens is their own.  `number(row, key)` and its like take a key of a JSON object, null
or absent being None, and refuse what is of another kind.  `floats(row, key)` and its like make an array of a list of
JSON.  `mapping`, `sequence`, `length` and `numbers` take the parts of a pickle without which there is no reading on.

Lists of numbers become arrays by `struct`, which takes nothing but numbers and is twice as quick as NumPy.  No list is
given to NumPy whose items are not known: it would walk lists that hold each other for ever.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.pickled import UnbuiltObject
from rlcorr_cli.layouts.tensors import Array, array, is_tensor, scalar

if TYPE_CHECKING:
    from rlcorr_cli.layouts.torch_files import TorchFile

HINT = "Is it a dump of this framework, complete and as it was written?"
LARGEST = 1 << 63
"""The first whole number that int64 does not hold."""
DOUBLE_BITS = 1000
"""A whole number of so many bits still is a float."""
SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON and pickles can write, and UTF-8 cannot."""

Row = Mapping[str, Any]
Found = TypeVar("Found", int, float, str)


def as_number(value: Any) -> float | None:
    """A number, also one of NumPy's, or alone in an array; None of anything else, such as a dict of rewards."""
    value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else scalar(value)
    if isinstance(value, int) and value.bit_length() > DOUBLE_BITS:
        return None
    return float(value) if isinstance(value, int | float) else None


def as_whole(value: Any) -> int | None:
    """A whole number that a column of int64 holds, also one that is written as a float; None of anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and -LARGEST <= value < LARGEST else None


def as_text(value: Any) -> str | None:
    """A text, or a number as text; None of anything else, which may be a text of any size, and of half characters."""
    if not isinstance(value, str | int | float):
        return None
    text = str(value)
    return text if text.isascii() or not SURROGATES.search(text) else None


def as_version(value: Any) -> int | None:
    """A policy's version where it is a number, or the text of one; None where the framework names it otherwise."""
    if isinstance(value, str) and len(value) < 19 and value.isdecimal():
        return int(value)
    return value if type(value) is int and 0 <= value < LARGEST else None


def number(row: Row, key: str) -> float | None:
    """One number."""
    value = row.get(key)
    return _taken(
        as_number(value), value, key, "a number of double precision" if isinstance(value, int) else "a number"
    )


def whole(row: Row, key: str) -> int | None:
    """One whole number."""
    value = row.get(key)
    fits = isinstance(value, int) and -LARGEST <= value < LARGEST
    return _taken(value if fits else None, value, key, "a whole number")


def text(row: Row, key: str) -> str | None:
    """One text; of a number, its digits."""
    value = row.get(key)
    kind = "a string of complete characters" if isinstance(value, str) else "a text"
    return _taken(as_text(value), value, key, kind)


def _taken(found: Found | None, value: Any, key: str, kind: str) -> Found | None:
    """What was found in a value; an error where that is nothing, and the value is not null."""
    if found is None and value is not None:
        raise other(key, kind)
    return found


def version(row: Row, key: str) -> int | None:
    """A policy's version, as `as_version` of a text."""
    return as_version(text(row, key))


def inner(row: Row, key: str) -> dict[str, Any]:
    """An object; empty where it is null or not there."""
    value = row.get(key)
    if value is not None and not isinstance(value, dict):
        raise other(key, "an object")
    return value or {}


def objects(row: Row, key: str) -> list[dict[str, Any]]:
    """A list of objects; empty where it is null or not there."""
    values = row.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise other(key, "a list of objects")
    return values


def floats(row: Row, key: str) -> NDArray[Any]:
    """Log-probs and the like: float64, or objects where some are null."""
    try:
        values = _as_floats(_list_of(row, key))
    except OverflowError as error:
        raise other(key, "a list of numbers of double precision") from error
    if values is None:
        raise other(key, "a list of numbers")
    return values


def integers(row: Row, key: str) -> NDArray[np.int64]:
    """Token ids, places and the like."""
    values = _as_integers(_list_of(row, key))
    if values is None:
        raise other(key, "a list of whole numbers")
    return values


def mask(row: Row, key: str) -> NDArray[np.bool_]:
    """Which tokens count: true and false, or 1 and 0."""
    with suppress(ValueError, TypeError):
        return np.frombuffer(bytes(_list_of(row, key)), np.uint8) != 0
    values = floats(row, key)
    if values.dtype == object:
        raise other(key, "a list of true and false")
    return values != 0


def mapping(value: Any, what: str) -> dict[Any, Any]:
    """The value, a dict.  what: its name in the error."""
    if not isinstance(value, dict):
        raise DataError(f"{what} is not a dict.", HINT)
    return value


def sequence(values: Mapping[Any, Any], key: str, n_values: int | None = None) -> list[Any]:
    """A list in a dict, of that length."""
    value = values.get(key)
    if not isinstance(value, list):
        raise DataError(f"it has no list {key}.", HINT)
    if n_values is not None and len(value) != n_values:
        raise DataError(f"it has {len(value):,} {key} for {n_values:,} sequences.", HINT)
    return value


def length(values: Mapping[Any, Any], key: str, what: str = "it") -> int:
    """A whole number from 0 up in a dict, such as a length, a rank or a step."""
    value = values.get(key)
    if type(value) is not int or not 0 <= value < LARGEST:
        raise DataError(f"{what} has no whole number {key}.", HINT)
    return value


def numbers(value: Any, what: str, file: "TorchFile | None", *, are_whole: bool = False) -> Array:
    """The numbers of a tensor, an array or a list, one after the other.  what: its name in the error.

    are_whole: whether a list is tried as one of whole numbers first, or of floats at once.
    """
    if is_tensor(value) and file is not None:
        value = file.array(value)
    elif isinstance(value, UnbuiltObject):
        value = array(value)
    if isinstance(value, list):
        integers = _as_integers(value) if are_whole else None
        value = _as_floats(value) if integers is None else integers
    if not isinstance(value, np.ndarray) or value.ndim != 1:
        raise DataError(f"{what} is not a list of numbers.", HINT)
    return value


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


def other(key: str, kind: str) -> DataError:
    """The error of a key that holds another kind of value."""
    return DataError(f"{key} is not {kind}.", HINT)


def _list_of(row: Row, key: str) -> list[Any]:
    values = row.get(key)
    if not isinstance(values, list):
        raise other(key, "a list")
    return values


def _as_floats(values: list[Any]) -> NDArray[Any] | None:
    """Numbers as float64, as objects where some are null; None where a value is neither.  An OverflowError where a
    number is beyond any float."""
    with suppress(struct.error, OverflowError):
        return np.frombuffer(struct.pack(f"{len(values)}d", *values))
    if not all(value is None or isinstance(value, float | int) for value in values):
        return None
    return np.array([None if value is None else float(value) for value in values], object)


def _as_integers(values: list[Any]) -> NDArray[np.int64] | None:
    """Whole numbers; None where a value is none, or beyond int64."""
    with suppress(struct.error):
        return np.frombuffer(struct.pack(f"{len(values)}q", *values), np.int64)
    return None


def rows_of_lists(batch: pa.RecordBatch, columns: Iterable[str]) -> Iterator[dict[str, Array | None]]:
    """Of each row its lists of numbers in these columns, as arrays; None of one that is null."""
    flat: dict[str, tuple[Array, list[int], list[bool]]] = {}
    for name in columns:
        lists = batch.column(name)
        if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
            raise DataError(f"its {name} is {lists.type}, not a list.", HINT)
        floats = pa.types.is_floating(lists.type.value_type)
        if not floats and (lists.values.null_count or not pa.types.is_integer(lists.type.value_type)):
            raise DataError(f"its {name} hold nulls, or something else than numbers.", HINT)
        # By DLPack, because pyarrow's own `to_numpy` imports pandas where it is installed, which takes half a second.
        values = np.from_dlpack(lists.values.fill_null(np.nan) if floats else lists.values)
        flat[name] = values, lists.offsets.to_pylist(), lists.is_valid().to_pylist()
    for i in range(batch.num_rows):
        yield {
            name: values[offsets[i] : offsets[i + 1]] if valid[i] else None
            for name, (values, offsets, valid) in flat.items()
        }
