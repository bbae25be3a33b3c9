"""How records become JSON: the keys of each, and their values."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import HIDDEN, Key, as_json

_PLAIN = frozenset({str, int, float, bool, NoneType})


@frozen(kw_only=True)
class Member:
    """A key of a record: its name, the attribute that has its value and that one's default, its type, the same without
    what is said of it, and the types that it is made of.  is_flat: whether a mapping of it is of plain values."""

    name: str
    attribute: str
    key: Key
    default: Any
    hint: Any
    bare: Any
    leaves: frozenset[Any]
    is_flat: bool


@cache
def members(cls: type) -> tuple[Member, ...]:
    """The keys of a record, in the order in which they are written."""
    fields = [_member(each.name, each.type, each.default) for each in dataclasses.fields(cls)]
    placed = [member for member in fields if member.key is not HIDDEN]
    for home in reversed(cls.__mro__):
        for name, value in home.__dict__.items():
            function = value.fget if isinstance(value, property) else getattr(value, "func", None)
            if isinstance(value, (property, cached_property)) and (key := vars(function).get("json_key")):
                hint = function.__annotations__["return"] if key.type is None else key.type()
                placed.append(_member(name, Annotated[hint, key], None))
    ordered = (*_following(placed, ""), *_following(placed, None))
    assert len(ordered) == len(placed), "a key follows one that is not there"
    return ordered


def _member(attribute: str, hint: Any, default: Any) -> Member:
    bare, metadata = parts_of(hint)
    key = next((each for each in metadata if isinstance(each, Key)), Key())
    if key.omit and NoneType in get_args(bare):  # what is None is left out
        bare = reduce(or_, (each for each in get_args(bare) if each is not NoneType))
        hint = Annotated[bare, *metadata]
    leaves, item = _leaves(bare), get_origin((get_args(bare) or (bare,))[-1])
    return Member(
        name=key.name or attribute,
        attribute=attribute,
        key=key,
        default=default,
        hint=hint,
        bare=bare,
        leaves=leaves,
        is_flat=leaves <= _PLAIN and item in (None, Union, UnionType),
    )


def parts_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without what is said of it, and that."""
    metadata = getattr(hint, "__metadata__", ())
    return (get_args(hint)[0], metadata) if metadata else (hint, ())


def _leaves(hint: Any) -> frozenset[Any]:
    """The types that a type is made of, which are made of no others."""
    bare, _ = parts_of(hint)
    inner = () if get_origin(bare) is Literal else get_args(bare)
    return frozenset().union(*map(_leaves, inner)) if inner else frozenset({bare})


def _following(placed: Sequence[Member], *names: str | None) -> Iterator[Member]:
    """The keys that follow one of these names, and behind each those that follow it."""
    for member in placed:
        if member.key.after in names:
            yield member
            yield from _following(placed, member.name, member.attribute)


def write_keys(record: Any, without: str) -> dict[str, Any]:
    """The JSON form of a record; without: as of `Record.to_dict`."""
    data: dict[str, Any] = {}
    for member in members(type(record)):
        value = () if member.name == without else getattr(record, member.attribute)
        is_empty = value is None or value == member.default or (not value and isinstance(value, (Mapping, tuple)))
        if not (member.key.omit and is_empty):
            written = _written(value, Any in member.leaves, member.is_flat)
            data.update(written if member.key.inline else {member.name: written})
    return data


def _written(value: Any, is_any: bool, is_flat: bool) -> Any:
    """The JSON form of a value.  is_any: whether one that JSON has no form for is written as text, as is infinity.
    is_flat: whether items of a mapping are written as they are: there may be millions."""
    if isinstance(value, Mapping):
        return (
            dict(value.items()) if is_flat else {name: _written(each, is_any, is_flat) for name, each in value.items()}
        )
    if isinstance(value, (tuple, list)):
        return [_written(each, is_any, is_flat) for each in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return as_json(value) if is_any or isinstance(value, Path) else value
