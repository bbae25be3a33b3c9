"""Thrift's compact protocol as a tree: enough to take a Parquet footer apart, change it and put it together again.

A struct is a list of fields, a field [id, type, value]; a list is (type of its items, items); numbers are ints, doubles
their eight bytes, strings bytes.  Source: github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
MAGIC = b"PAR1"

Field = list[Any]
Struct = list[Field]


@dataclass
class Bytes:
    """Bytes being read, from the front."""

    data: bytes
    at: int = 0

    def take(self, n: int) -> bytes:
        if n < 0 or self.at + n > len(self.data):
            raise ValueError("past the end")
        self.at += n
        return self.data[self.at - n : self.at]


def _number(source: Bytes) -> int:
    value = shift = 0
    while True:
        byte = source.take(1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value
        if shift > 70:
            raise ValueError("no number is that long")


def _signed(source: Bytes) -> int:
    value = _number(source)
    return (value >> 1) ^ -(value & 1)


def _list(source: Bytes) -> tuple[int, list[Any]]:
    first = source.take(1)[0]
    n = first >> 4 if first >> 4 != 15 else _number(source)
    if n > len(source.data):
        raise ValueError("more items than bytes")
    kind = first & 0xF
    return kind, [_value(source, kind) for _ in range(n)]


def _struct(source: Bytes) -> Struct:
    fields: Struct = []
    last = 0
    while first := source.take(1)[0]:
        last = last + (first >> 4) if first >> 4 else _signed(source)
        kind = first & 0xF
        fields.append([last, kind, kind == TRUE if kind in (TRUE, FALSE) else _value(source, kind)])
    return fields


_READ: dict[int, Callable[[Bytes], Any]] = {
    TRUE: lambda source: source.take(1)[0] == 1,
    FALSE: lambda source: source.take(1)[0] == 1,
    BYTE: lambda source: source.take(1)[0],
    I16: _signed,
    I32: _signed,
    I64: _signed,
    DOUBLE: lambda source: source.take(8),
    BINARY: lambda source: source.take(_number(source)),
    LIST: _list,
    SET: _list,
    STRUCT: _struct,
}


def _value(source: Bytes, kind: int) -> Any:
    if kind not in _READ:
        raise ValueError(f"type {kind}")
    return _READ[kind](source)


def decoded(data: bytes) -> tuple[Struct, int]:
    """A struct, and how many bytes it takes; ValueError where it is none."""
    source = Bytes(data)
    try:
        return _struct(source), source.at
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _put_number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _put_signed(value: int) -> bytes:
    return _put_number((value << 1 ^ value >> 63) & (1 << 64) - 1)


def head(kind: int, n: int) -> bytes:
    """What comes before the n items of a list."""
    return bytes([n << 4 | kind]) if n < 15 else bytes([0xF0 | kind]) + _put_number(n)


def _put_list(value: tuple[int, list[Any]]) -> bytes:
    kind, items = value
    return head(kind, len(items)) + b"".join(_put(item, kind) for item in items)


def _put(value: Any, kind: int) -> bytes:
    if kind in (TRUE, FALSE):
        return b"\1" if value else b"\2"
    if kind == BYTE:
        return bytes([value & 0xFF])
    if kind in (I16, I32, I64):
        return _put_signed(value)
    if kind == DOUBLE:
        return value
    if kind == BINARY:
        return _put_number(len(value)) + value
    return encoded(value) if kind == STRUCT else _put_list(value)


def encoded(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    last = 0
    for number, kind, value in struct:
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _put_signed(number)
        if kind not in (TRUE, FALSE):
            out += _put(value, kind)
        last = number
    return bytes(out) + b"\0"


def split(file: bytes) -> tuple[bytes, Struct]:
    """A Parquet file as what comes before its footer, and the footer."""
    size = int.from_bytes(file[-8:-4], "little")
    if len(file) < 12 or file[-4:] != MAGIC or size > len(file) - 12:
        raise ValueError("no footer")
    start = len(file) - 8 - size
    return file[:start], decoded(file[start:-8])[0]


def joined(pages: bytes, footer: Struct) -> bytes:
    """The file again, with the footer's length put right."""
    tail = encoded(footer)
    return pages + tail + len(tail).to_bytes(4, "little") + MAGIC


def field(struct: Struct, number: int) -> Field:
    """The field of that id."""
    return next(one for one in struct if one[0] == number)
