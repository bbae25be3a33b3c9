"""Dataclasses as bytes and back: what is shared stays shared, and nothing but an error comes of other bytes."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from rlcorr_cli.totals.packed import MalformedError, pack, unpack


@dataclass(frozen=True)
class Point:
    x: float
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Column:
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    ends: tuple[Point, Point]
    columns: tuple[Column, ...] = ()
    keyed: Mapping[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])
    marks: frozenset[str] = frozenset()
    either: Point | Column | None = None


COLUMN = Column(np.array([0.0, -np.inf, np.nan, 5e-324]))
DAYS = (None, 1.5, float("inf"), date(2026, 1, 2)), (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), True, 2, "2")
LINE = Line(
    (Point(0.1), Point(0.1)),
    (COLUMN, COLUMN),
    {key: number for number, key in enumerate(DAYS)},
    frozenset("abc"),
    COLUMN,
)


def test_every_kind_of_value_comes_back() -> None:
    back = unpack(Line, pack(LINE))
    assert (back.ends, back.marks, list(back.keyed)) == (LINE.ends, LINE.marks, list(DAYS))
    assert [[type(value) for value in key] for key in back.keyed] == [[type(value) for value in key] for key in DAYS]
    assert back.columns[0].values.tobytes() == COLUMN.values.tobytes()
    assert back.columns[0].values.flags.writeable


def test_what_is_shared_is_written_once_and_stays_shared() -> None:
    back = unpack(Line, pack(LINE))
    assert back.columns[0] is back.columns[1] is back.either
    assert back.ends[0] is back.ends[1]
    many = Line(LINE.ends, (COLUMN,) * 1000)
    assert len(pack(many)) < len(pack(LINE)) + 3000


def test_a_field_that_is_lacking_takes_its_default_and_an_unknown_one_is_refused() -> None:
    assert unpack(Point, msgspec.msgpack.encode({"is": "Point", "x": 2})) == Point(2.0)
    with pytest.raises(MalformedError, match="Point lacks x"):
        unpack(Point, msgspec.msgpack.encode({"is": "Point"}))
    with pytest.raises(MalformedError, match="Point has no colour"):
        unpack(Point, msgspec.msgpack.encode({"is": "Point", "x": 1.0, "colour": "red"}))


WRONG = (
    {"is": "Line"},
    {"is": "Point", "x": "1"},
    {"is": "Point", "x": True},
    {"is": "Point", "x": 1.0, "name": 3},
    7,
    -1,
    None,
    [],
    msgspec.msgpack.Ext(1, b"\x93\xa2|O\x91\x01\xc4\x01\x00"),
    msgspec.msgpack.Ext(9, b""),
)


@pytest.mark.parametrize("node", WRONG, ids=range(len(WRONG)))
def test_what_is_no_point_is_refused(node: Any) -> None:
    with pytest.raises(MalformedError):
        unpack(Point, msgspec.msgpack.encode(node))
    line = {"is": "Line", "ends": [{"is": "Point", "x": 1.0}, node]}
    with pytest.raises(MalformedError):
        unpack(Line, msgspec.msgpack.encode(line))


def test_an_array_of_another_type_is_refused() -> None:
    with pytest.raises(MalformedError, match="float64 was expected"):
        unpack(Column, pack(Column(np.zeros(3, np.int64))))


Number = TypeVar("Number", bound=np.generic)
Numbers = TypeAliasType("Numbers", np.ndarray[tuple[Any, ...], np.dtype[Number]], type_params=(Number,))
Names = TypeAliasType("Names", tuple[str, ...])


@dataclass(frozen=True, eq=False)
class Aliased:
    values: Numbers[np.float64]  # as NumPy writes NDArray from 2.5 on
    names: Names = ()


def test_types_named_by_a_type_statement_are_what_they_stand_for() -> None:
    back = unpack(Aliased, pack(Aliased(COLUMN.values, ("a", "b"))))
    assert back.values.tobytes() == COLUMN.values.tobytes()
    assert back.names == ("a", "b")
    with pytest.raises(MalformedError, match="float64 was expected"):
        unpack(Aliased, pack(Aliased(np.zeros(3, np.int64))))


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


def test_a_value_nested_too_deep_is_refused() -> None:
    with pytest.raises(MalformedError):
        unpack(Point, b"\x91" * 100_000 + b"\xc0")
