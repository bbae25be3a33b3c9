"""What a frozen class of ours does is what a frozen dataclass does."""

import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any

import pytest

from rlcorr_cli.frozen import frozen


@frozen
class Bounds:
    """With all that a field can be."""

    low: float
    high: float = 2.0
    names: tuple[str, ...] = field(default_factory=tuple, kw_only=True)
    note: str = field(default="", compare=False, repr=False, kw_only=True)

    @cached_property
    def width(self) -> float:
        """Kept beside the fields."""
        return self.high - self.low


@dataclass(frozen=True)
class Standard:
    """The same as `dataclass` makes it."""

    low: float
    high: float = 2.0
    names: tuple[str, ...] = field(default_factory=tuple, kw_only=True)
    note: str = field(default="", compare=False, repr=False, kw_only=True)


@frozen(kw_only=True)
class Wider(Bounds):
    """One more field."""

    step: int


@frozen(eq=False)
class Known:
    """Equal to itself alone."""

    value: Any


@frozen
class Nothing:
    """Without a field."""


GIVEN = [{"low": 1.0}, {"low": 1.0, "high": 3.0}, {"low": 1.0, "names": ("a",)}, {"low": 1.0, "note": "other"}]


@pytest.mark.parametrize("first", GIVEN)
@pytest.mark.parametrize("second", GIVEN)
def test_values_compare_hash_and_show_as_a_dataclass_does(first: dict[str, Any], second: dict[str, Any]) -> None:
    ours, standard = (Bounds(**first), Bounds(**second)), (Standard(**first), Standard(**second))
    assert (ours[0] == ours[1]) is (standard[0] == standard[1])
    assert (hash(ours[0]) == hash(ours[1])) is (hash(standard[0]) == hash(standard[1]))
    assert repr(ours[0]) == repr(standard[0]).replace("Standard", "Bounds")
    assert ours[0] != standard[0]


def test_a_field_is_set_once() -> None:
    value = Bounds(1.0)
    for change in (lambda: setattr(value, "low", 2.0), lambda: setattr(value, "new", 1), lambda: delattr(value, "low")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert (value.low, value.width, value.width) == (1.0, 1.0, 1.0)


def test_it_is_a_dataclass() -> None:
    value = Wider(low=1.0, step=3)
    assert is_dataclass(value)
    assert [each.name for each in fields(value)] == ["low", "high", "names", "note", "step"]
    assert asdict(replace(value, step=4)) == {"low": 1.0, "high": 2.0, "names": (), "note": "", "step": 4}
    assert pickle.loads(pickle.dumps(value)) == value
    assert value != Bounds(1.0)
    assert (Known([1]) == Known([1]), Nothing() == Nothing(), hash(Nothing()) == hash(Nothing())) == (False, True, True)
    shown, standard = (signature(of).parameters for of in (Bounds, Standard))
    assert {**shown, "names": None} == {**standard, "names": None}
    assert (shown["names"].default, shown["names"].kind) == ((), standard["names"].kind)


@pytest.mark.parametrize(
    ("args", "values"),
    [((), {}), ((1.0, 2.0, ()), {}), ((1.0,), {"low": 1.0}), ((1.0,), {"other": 2.0}), ((), {"high": 3.0})],
    ids=["lacking", "too many", "twice", "unknown", "without the first"],
)
def test_it_takes_each_field_once_and_nothing_else(args: tuple[Any, ...], values: dict[str, Any]) -> None:
    for made in (Bounds, Standard):
        with pytest.raises(TypeError):
            made(*args, **values)
    with pytest.raises(TypeError, match="Bounds takes each of these once: low, high, names, note"):
        Bounds(*args, **values)
    with pytest.raises(TypeError):
        Wider(1.0, 2.0, 3)  # pyrefly: ignore
