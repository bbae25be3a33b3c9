"""Dataclasses as bytes and back: nothing but an error comes of other bytes."""

import random
import sys
import tracemalloc
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from importlib import import_module
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from rlcorr_cli.places import Uri
from rlcorr_cli.totals.packed import MalformedError, pack, unpack


@dataclass(frozen=True)
class Point:
    x: float
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Column:
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Anything:
    any: Any


@dataclass(frozen=True)
class Line:
    ends: tuple[Point, Point]
    columns: tuple[Column, ...] = ()
    keyed: Mapping[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])
    marks: frozenset[str] = frozenset()


COLUMN = Column(np.array([0.0, -np.inf, np.nan, 5e-324]))
KEYS = (None, 1.5, float("inf")), (True, 2, "2")
LINE = Line(
    (Point(0.1), Point(0.1)),
    (COLUMN, COLUMN),
    {key: number for number, key in enumerate(KEYS)},
    frozenset("abc"),
)


@contextmanager
def tracing() -> Generator[Callable[[], int]]:
    """What tells the most bytes that were held at a time."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_every_kind_of_value_comes_back() -> None:
    back = unpack(Line, pack(LINE))
    assert (back.ends, back.marks, list(back.keyed)) == (LINE.ends, LINE.marks, list(KEYS))
    assert [[type(value) for value in key] for key in back.keyed] == [[type(value) for value in key] for key in KEYS]
    assert back.columns[0].values.tobytes() == COLUMN.values.tobytes()
    assert back.columns[0].values.flags.writeable


def test_text_and_numbers_of_a_class_of_their_own_are_what_they_say() -> None:
    path = Uri("s3://bucket/\udcff.parquet", "region=eu-west-1")
    assert unpack(Point, pack(Point(np.float64(0.5), path))) == Point(0.5, "s3://bucket/\\udcff.parquet")


def test_a_field_that_is_lacking_takes_its_default() -> None:
    assert unpack(Point, msgspec.msgpack.encode({"x": 2})) == Point(2.0)
    with pytest.raises(MalformedError, match="missing required field `x`"):
        unpack(Point, msgspec.msgpack.encode({"name": "a"}))


WRONG = (
    {},
    {"x": "1"},
    {"x": True},
    {"x": 1.0, "name": 3},
    7,
    -1,
    None,
    [],
    msgspec.msgpack.Ext(9, b""),
)


@pytest.mark.parametrize("node", WRONG, ids=range(len(WRONG)))
def test_what_is_no_point_is_refused(node: Any) -> None:
    with pytest.raises(MalformedError):
        unpack(Point, msgspec.msgpack.encode(node))
    line = {"ends": [{"x": 1.0}, node]}
    with pytest.raises(MalformedError):
        unpack(Line, msgspec.msgpack.encode(line))


ARRAYS: tuple[Any, ...] = (
    ["|O", [1], bytes(8)],
    ["<f2", [4], bytes(8)],
    ["f8,f8", [1], bytes(16)],
    ["V999999999999", [0], b""],
    ["<f8", [2], bytes(8)],
    ["<f8", [-2], bytes(8)],
    ["<f8", [1], bytes(7)],
    ["<f8", [1 << 62, 1 << 62], b""],
    ["<f8", [1.0], bytes(8)],
    ["<f8", 1, bytes(8)],
    ["<f8", [1], "00000000"],
    ["<f8", [1], [0] * 8],
    ["<f8", [1]],
    [0.0],
    0.0,
    None,
    {},
    msgspec.msgpack.Ext(1, b""),
)


@pytest.mark.parametrize("node", ARRAYS, ids=range(len(ARRAYS)))
def test_what_is_no_array_of_numbers_is_refused(node: Any) -> None:
    with pytest.raises(MalformedError):
        unpack(Column, msgspec.msgpack.encode({"values": node}))


def test_an_array_of_another_type_is_refused() -> None:
    with pytest.raises(MalformedError, match="float64 was expected"):
        unpack(Column, pack(Column(np.zeros(3, np.int64))))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has no `type` statement")
def test_types_named_by_a_type_statement_are_what_they_stand_for() -> None:
    """As NumPy writes NDArray from 2.5 on."""
    named: Any = import_module("typing").TypeAliasType
    number = TypeVar("number", bound=np.generic)
    numbers = named("numbers", np.ndarray[tuple[Any, ...], np.dtype[number]], type_params=(number,))
    texts = named("texts", tuple[str, ...])
    aliased: Any = make_dataclass("Aliased", [("values", numbers[np.float64]), ("names", texts)], frozen=True)
    back = unpack(aliased, pack(aliased(COLUMN.values, ("a", "b"))))
    assert back.values.tobytes() == COLUMN.values.tobytes()
    assert back.names == ("a", "b")
    with pytest.raises(MalformedError, match="float64 was expected"):
        unpack(aliased, pack(aliased(np.zeros(3, np.int64), ())))


def test_bytes_changed_anywhere_give_a_value_or_an_error() -> None:
    packed, chance = pack(LINE), random.Random(0)
    refused = 0
    for _ in range(3000):
        data = bytearray(packed)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            unpack(Line, bytes(data[: chance.choice([None, chance.randrange(len(data))])]))
        except MalformedError:
            refused += 1
    assert 1500 < refused < 3000


@pytest.mark.parametrize("start", [b"\x91", b"\x81\xa1a", b"\x81"])
def test_a_value_nested_too_deep_is_refused(start: bytes) -> None:
    for cls, name in ((Point, b"x"), (Anything, b"any"), (Line, b"ends")):
        with pytest.raises(MalformedError):
            unpack(cls, b"\x81" + msgspec.msgpack.encode(name.decode()) + start * 100_000 + b"\xc0")


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\x81\xdd"])
def test_what_says_that_it_is_long_takes_no_memory(head: bytes) -> None:
    for cls, name in ((Line, "ends"), (Line, "columns"), (Line, "keyed"), (Column, "values"), (Anything, "any")):
        with tracing() as peak, pytest.raises(MalformedError):
            unpack(cls, b"\x81" + msgspec.msgpack.encode(name) + head + b"\xff\xff\xff\xf0" + bytes(1000))
        assert peak() < 1 << 20
