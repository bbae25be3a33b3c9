"""pack() and unpack(): frozen dataclasses as bytes and back, to the last bit.

Both walk a class's own fields, so a new block of totals needs no code here.  A dataclass is a map of its fields, its
class's name under "is"; where it is met again (a Layout that all groups have, a histogram that two blocks share) stands
the number of the one met before, and sharing survives.  A field of a later release is refused, one that an older file
lacks takes its default.  What a class asks of its values it says in `__post_init__`, and what only bytes from elsewhere
can lack in `check_unpacked`: an error of either is an InconsistentError.

msgpack, because it holds NaN, infinities, bytes and 64-bit integers as they are, where JSON needs text for each of
them and base64 for arrays; and because nothing in a file can run.
"""

import struct
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import date, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from rlcorr_cli.errors import UsageError
from rlcorr_cli.places import utf8

T = TypeVar("T")
IS = "is"
"""The key of a class's name: a keyword of Python's, so that no field is called so."""
_ARRAY, _DATE, _DATETIME = 1, 2, 3
_LARGE = 1 << 16
"""Bytes of an array that is not copied to be packed; not fewer, because msgpack says shorter lengths in other ways."""
_KINDS = frozenset(f"{'<|'[size == 1]}{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)) | {"|b1", "<f4", "<f8"}
"""What an array may hold, in NumPy's words: numbers and truth values."""
_SCALARS: Mapping[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (float, int)}
_AS_THEY_ARE = frozenset({int, float, bool, NoneType})
_encode = msgspec.msgpack.Encoder().encode
Reader = Callable[[Any, list[Any]], Any]
"""Takes a plain value, and the dataclasses made so far."""


class MalformedError(ValueError):
    """Bytes that `pack` did not write, or not of this class."""


class InconsistentError(MalformedError):
    """Values of the right types that do not belong together."""


def pack(value: Any) -> bytes:
    """A dataclass, and all that it holds, as bytes."""
    return b"".join(pieces(value))


def pieces(value: Any) -> "list[bytes | memoryview]":
    """The same bytes in order, of which large arrays are not copied."""
    packing = _Packing()
    packing.write(value)
    return [*packing.pieces, bytes(packing.latest)]


def unpack(cls: type[T], data: "bytes | memoryview") -> T:
    """What `pack` wrote of such a class; anything else is a MalformedError."""
    try:
        return _reader(cls)(msgspec.msgpack.decode(data, ext_hook=_extension), [])
    except InconsistentError:
        raise
    except UsageError as error:  # of a plan that may not be
        raise MalformedError(error.message) from None
    except (msgspec.DecodeError, ValueError, LookupError, OverflowError, RecursionError) as error:
        raise MalformedError(f"{error}" or type(error).__name__) from None


@dataclass
class _Packing:
    """Values as msgpack has them.  numbers: dataclass -> its number, in the order in which they were finished."""

    numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    pieces: list[bytes | memoryview] = field(default_factory=list[bytes | memoryview])
    latest: bytearray = field(default_factory=bytearray)

    def write(self, value: Any) -> None:
        """One value more, and what it holds."""
        if type(value) in _AS_THEY_ARE:  # nearly all
            self.latest += _encode(value)
        elif type(value) is str:
            self.latest += _encode(utf8(value))
        elif type(value) is tuple:
            self._list(value)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif is_dataclass(value):
            self._fields(value)
        elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            self._map({utf8(key): item for key, item in value.items()})
        elif isinstance(value, Mapping):
            self._list(value.items())
        elif isinstance(value, AbstractSet):
            self._list(sorted(value, key=repr))
        elif isinstance(value, (list, tuple)):
            self._list(value)
        elif isinstance(value, date):
            kind = _DATETIME if isinstance(value, datetime) else _DATE
            self.latest += _encode(Ext(kind, value.isoformat().encode()))
        # Text and numbers of a class of their own, such as the name of a table in memory, are what they say.
        elif isinstance(value, str):
            self.latest += _encode(utf8(value))
        else:
            self.latest += _encode(float(value) if isinstance(value, float) else value)

    def _fields(self, value: Any) -> None:
        try:
            hash(value)
            known: Hashable = value
        except TypeError:  # it holds a dict, or arrays
            known = id(value)
        if known in self.numbers:
            self.latest += _encode(self.numbers[known])
            return
        start, keys = _keys(type(value))
        self.latest += start
        for name, key in keys:
            self.latest += key
            self.write(getattr(value, name))
        self.numbers[known] = len(self.numbers)

    def _map(self, items: Mapping[str, Any]) -> None:
        self.latest += _head(len(items), 0x80, (0xDE, 0xDF))
        for key, item in items.items():
            self.latest += _encode(key)
            self.write(item)

    def _list(self, items: Collection[Any]) -> None:
        self.latest += _head(len(items), 0x90, (0xDC, 0xDD))
        for item in items:
            self.write(item)

    def _array(self, array: NDArray[Any]) -> None:
        """As an extension, whose data are a list of three: type, shape and bytes."""
        data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        if len(data) < _LARGE:
            content = _encode((array.dtype.str, array.shape, data))
            self.latest += _encode(Ext(_ARRAY, content))
            return
        about = b"\x93" + _encode(array.dtype.str) + _encode(array.shape)
        about += struct.pack(">BI", 0xC6, len(data))
        self.latest += struct.pack(">BIb", 0xC9, len(about) + len(data), _ARRAY) + about
        self.pieces += [bytes(self.latest), data]
        self.latest.clear()


@cache
def _keys(cls: Any) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """What a map of a dataclass begins with, its class's name in it; and each field with its key."""
    names = [f.name for f in fields(cls)]
    start = _head(len(names) + 1, 0x80, (0xDE, 0xDF)) + _encode(IS) + _encode(cls.__name__)
    return start, tuple((name, _encode(name)) for name in names)


def _head(n: int, few: int, codes: tuple[int, int]) -> bytes:
    """What msgpack says of a map or list of n before its items."""
    if n < 16:
        return bytes([few | n])
    return struct.pack(">BH", codes[0], n) if n < 1 << 16 else struct.pack(">BI", codes[1], n)


def _extension(code: int, data: memoryview) -> Any:
    if code == _ARRAY:
        kind, shape, content = msgspec.msgpack.decode(data, type=tuple[str, tuple[int, ...], memoryview])
        if kind not in _KINDS:
            raise ValueError(f"an array of {kind}")
        # A copy, because what msgpack hands over cannot be written to.
        return np.frombuffer(content, kind).reshape(shape).copy()
    if code in (_DATE, _DATETIME):
        return (datetime if code == _DATETIME else date).fromisoformat(bytes(data).decode())
    raise ValueError(f"an extension {code}")


@cache
def _reader(hint: Any) -> Reader:
    """How a plain value is read as what an annotation says."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    if (named := getattr(origin, "__value__", None)) is not None:  # a `type` statement, as NDArray is from NumPy 2.5 on
        return _reader(named[args] if args else named)
    if hint is Any:
        return lambda node, made: node
    if isinstance(hint, TypeVar):
        return _reader(hint.__bound__)
    if origin in (Union, UnionType):
        return _union(args)
    if origin is Literal:
        return _scalar(args, lambda node: isinstance(node, str) and node in args)
    if hint is NoneType or hint in _SCALARS:
        types = _SCALARS.get(hint, (NoneType,))
        return _scalar(hint, lambda node: type(node) in types)
    if origin is np.ndarray:
        return _array(args)
    if is_dataclass(origin):
        return _dataclass(origin, args)
    if origin is tuple and args[1:] != (...,):
        return _record(tuple(map(_reader, args)))
    if issubclass(origin, Mapping):
        return _mapping(*map(_reader, args))
    if issubclass(origin, (tuple, AbstractSet, Sequence)):
        return _sequence(frozenset if issubclass(origin, AbstractSet) else tuple, _reader(args[0]))
    raise TypeError(f"no value is packed as {hint}")


def _expect(holds: bool, hint: Any, node: Any) -> None:
    if not holds:
        raise ValueError(f"{getattr(hint, '__name__', hint)} was expected, not {type(node).__name__}")


def _scalar(hint: Any, fits: Callable[[Any], bool]) -> Reader:
    def read(node: Any, made: list[Any]) -> Any:
        _expect(fits(node), hint, node)
        return float(node) if hint is float else node

    return read


def _array(args: tuple[Any, ...]) -> Reader:
    (kind,) = get_args(args[-1])
    number: Any = get_origin(kind) or kind

    def read(node: Any, made: list[Any]) -> Any:
        _expect(isinstance(node, np.ndarray) and (number is Any or np.issubdtype(node.dtype, number)), number, node)
        return node

    return read


def _record(readers: tuple[Reader, ...]) -> Reader:
    def read(node: Any, made: list[Any]) -> Any:
        _expect(isinstance(node, list) and len(node) == len(readers), f"{len(readers)} values", node)
        return tuple(reader(item, made) for reader, item in zip(readers, node, strict=True))

    return read


def _sequence(collect: Callable[[Any], Any], item: Reader) -> Reader:
    def read(node: Any, made: list[Any]) -> Any:
        _expect(isinstance(node, list), "a list", node)
        return collect(item(value, made) for value in node)

    return read


def _mapping(key: Reader, item: Reader) -> Reader:
    def read(node: Any, made: list[Any]) -> Any:
        _expect(isinstance(node, (dict, list)), "a mapping", node)
        pairs = node.items() if isinstance(node, dict) else node
        try:
            return {key(name, made): item(value, made) for name, value in pairs}
        except TypeError:
            raise ValueError("a mapping's keys are no values") from None

    return read


def _union(members: tuple[Any, ...]) -> Reader:
    """Classes are told apart by their names, all else by being read without a complaint."""
    classes = {(get_origin(member) or member).__name__: member for member in members if _is_class(member)}
    others = [_reader(member) for member in members if not _is_class(member)]

    def read(node: Any, made: list[Any]) -> Any:
        name = node.get(IS) if isinstance(node, dict) else None
        if isinstance(name, str) and name in classes:
            return _reader(classes[name])(node, made)
        if classes and type(node) is int:
            return _again(tuple(get_origin(member) or member for member in classes.values()), node, made)
        for reader in others:
            try:
                return reader(node, made)
            except ValueError:
                continue
        raise ValueError(f"{type(node).__name__} was not expected")

    return read


def _is_class(hint: Any) -> bool:
    return is_dataclass(get_origin(hint) or hint)


def _again(classes: type | tuple[type, ...], number: int, made: list[Any]) -> Any:
    """A dataclass that was met before."""
    _expect(0 <= number < len(made) and isinstance(made[number], classes), "one met before", number)
    return made[number]


def _dataclass(cls: Any, args: tuple[Any, ...]) -> Reader:
    chosen = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    hints = get_type_hints(cls)
    readers = {f.name: _reader(chosen.get(hints[f.name], hints[f.name])) for f in fields(cls)}
    defaults = {f.name: f for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING}

    def read(node: Any, made: list[Any]) -> Any:
        if type(node) is int:
            return _again(cls, node, made)
        _expect(isinstance(node, dict) and node.get(IS) == cls.__name__, cls, node)
        if unknown := node.keys() - readers.keys() - {IS}:
            raise ValueError(f"{cls.__name__} has no {min(map(str, unknown))}")
        # Field by field, as they were packed: an __init__ of its own, such as Histogram's, takes others.
        value = cls.__new__(cls)
        for name, reader in readers.items():
            if name in node:
                object.__setattr__(value, name, reader(node[name], made))
            elif name in defaults:
                of: Any = defaults[name]
                object.__setattr__(value, name, of.default if of.default is not MISSING else of.default_factory())
            else:
                raise ValueError(f"{cls.__name__} lacks {name}")
        _check(value)
        made.append(value)
        return value

    return read


def _check(value: Any) -> None:
    """An InconsistentError where a dataclass's values do not belong together."""
    try:
        for name in ("__post_init__", "check_unpacked"):
            if hasattr(value, name):
                getattr(value, name)()
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise InconsistentError(f"{error}" or type(error).__name__) from error
