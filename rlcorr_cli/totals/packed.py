"""pack() and unpack(): frozen dataclasses as msgpack and back, to the last bit, by msgspec.

What a class asks of its values it says in `__post_init__`, and what only bytes from elsewhere can lack in
`check_unpacked`.  A field that an older file lacks takes its default.

msgpack, because it holds NaN, infinities, bytes and 64-bit integers as they are; and because nothing in a file can run,
or take more memory than there are bytes.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
import numpy as np

from rlcorr_cli.errors import UsageError
from rlcorr_cli.places import utf8

T = TypeVar("T")
_Array = tuple[str, tuple[Annotated[int, msgspec.Meta(ge=0)], ...], bytes]
"""What NumPy calls an array's numbers, its shape, and its bytes."""
_NUMBERS = frozenset(np.dtype(letter).str for letter in "?bBhHiIqQfd")
"""What an array may hold: truth values, and numbers of 1 to 8 bytes."""


class MalformedError(ValueError):
    """Bytes that `pack` did not write, not of this class, or of values that do not belong together; in words that
    follow a file's name."""


def pack(value: Any) -> bytes:
    """A dataclass, and all that it holds, as bytes."""
    return msgspec.msgpack.encode(_encodable(value))


def unpack(cls: type[T], data: "bytes | memoryview") -> T:
    """What `pack` wrote of such a class; anything else is a MalformedError."""
    try:
        value = _decoder(cls).decode(data)
        _check_all_inside(value)
    except (msgspec.DecodeError, UsageError, RecursionError) as error:
        if isinstance(error.__cause__, ValueError):  # of a __post_init__
            raise _inconsistent(error.__cause__) from None
        raise MalformedError(f"cannot be read by this release of rlcorr: {error}") from None
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise _inconsistent(error) from None
    return value


def _inconsistent(error: Exception) -> MalformedError:
    return MalformedError(f"holds totals that do not belong together: {f'{error}' or type(error).__name__}")


def _encodable(value: Any) -> Any:
    """The same of what msgspec writes as it is: text and numbers of a class of their own are what they say, and an
    array is an _Array."""
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(_encodable, value))
    if isinstance(value, frozenset):
        return sorted(map(_encodable, value), key=repr)
    if is_dataclass(value):
        return {field.name: _encodable(getattr(value, field.name)) for field in fields(value)}
    return value


@cache
def _decoder(cls: type[T]) -> msgspec.msgpack.Decoder[T]:
    return msgspec.msgpack.Decoder(cls, dec_hook=_array)


def _array(hint: Any, node: Any) -> Any:
    """What `_encodable` made of an array, as one again; a ValidationError where the hint asks for other numbers."""
    kind, shape, content = msgspec.convert(node, _Array)
    name, kinds = _numbers_asked(hint)
    if kind not in kinds:
        raise msgspec.ValidationError(f"{name} was expected, not {kind}")
    # A copy, because bytes cannot be written to.
    return np.frombuffer(content, kind).reshape(shape).copy()


@cache
def _numbers_asked(hint: Any) -> tuple[str, frozenset[str]]:
    """The kind of numbers that an array's hint asks for, and what NumPy calls those of this kind."""
    (asked,) = get_args(get_args(hint)[1])
    number = get_origin(asked) or asked
    if number is Any:
        return "a number", _NUMBERS
    return number.__name__, frozenset(kind for kind in _NUMBERS if np.issubdtype(kind, number))


def _check_all_inside(value: Any) -> None:
    """What a value holds, and then itself, by `check_unpacked` of its class."""
    if is_dataclass(value):
        for field in fields(value):
            _check_all_inside(getattr(value, field.name))
    elif isinstance(value, (tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_all_inside(item)
    if hasattr(value, "check_unpacked"):
        value.check_unpacked()
