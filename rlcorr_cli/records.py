"""Records: dataclasses whose JSON, the way back from it, and its JSON schema follow from their own fields.

A key of a JSON output is declared once: as a field of a Record, or as a property marked `computed`, which is written
and, as it follows from the fields, only checked when it is read.  What JSON has of a key beside its name and its type
stands in Annotated[..., Key(...)]; what is asked of a value, in Annotated[..., Form(...)].  The description of a record
for readers of the schema is its docstring, that of a key `Key.about`.

Dataclasses, not classes of a library: no command pays for them before it writes JSON, fields may be views of arrays of
100,000 groups, and a fault is told with its whole place (groups.3.metrics.kl).
"""

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache, cached_property, reduce
from inspect import get_annotations
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from rlcorr_cli import __version__

SCHEMA = 1
"""Of every JSON output; it changes when a key changes meaning."""
_MOST = 2**62
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Key:
    """What JSON has of a field beside its name and its type.

    about: for readers of the schema.  name: the key, where it is not the field's name.  after: the key that it follows,
    where that is not the field before; empty for the first of all.  omit: whether it is left out where it is the
    field's default, or empty.  optional: whether a document that is read may lack it.  inline: whether the keys of its
    value stand in its place.  hidden: whether JSON has nothing of it.
    """

    about: str = ""
    name: str = ""
    after: str | None = None
    omit: bool = False
    optional: bool = False
    inline: bool = False
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is asked of a value beside its type.

    name, about: of its definition in the schema.  least: items or keys.  keys: what a mapping has and, optional, may
    have.  above: what a number must exceed.  pattern: of a text.  check: raises a ValueError of a value that has the
    type, and may not be.  read: what makes the value of JSON's.  plain: whether a value that JSON has no type for is
    written as text, as is infinity.  types: those that JSON has of it, where the type does not say.
    """

    name: str = ""
    about: str = ""
    least: int = 0
    keys: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    above: float | None = None
    pattern: str = ""
    check: Callable[[Any], None] | None = None
    read: Callable[[Any], Any] | None = None
    plain: bool = False
    types: tuple[str, ...] = ()


HIDDEN = Key(hidden=True)
Plain = Annotated[Any, Form(plain=True)]
"""A value of a row, whatever it is: what JSON has no form for is written as text."""
Number = float | None
Interval = tuple[float, float]


def computed(about: str = "", *, after: str, **more: Any) -> Callable[[F], F]:
    """Mark a property's function as a key of its record's JSON.  more: as of a Key."""

    def marked(function: F) -> F:
        function.__dict__["json_key"] = Key(about=about, after=after, **more)
        return function

    return marked


class Fault(ValueError):
    """A value in JSON that is not as its record has it; at: the keys and places that lead to it, the last one first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.at: list[Any] = []

    def __str__(self) -> str:
        return ": ".join(filter(None, (".".join(map(str, reversed(self.at))), self.args[0])))


class Record:
    """A dataclass with a JSON form."""

    __slots__ = ()

    def to_dict(self, *, without: str = "") -> dict[str, Any]:
        """The JSON form.  without: a key of a list that is left empty, because it may be long: its records have their
        own forms."""
        data: dict[str, Any] = {}
        for member in members(type(self)):
            value = () if member.key == without else getattr(self, member.attribute)
            if member.omit and _is_left_out(value, member.default):
                continue
            written = value if member.form.write is None else member.form.write(value)
            if member.inline:
                data.update(written)
            else:
                data[member.key] = written
        return data

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` wrote; a Fault names what is wrong, keys of a later release are ignored."""
        return cls.of_keys(read_keys(cls, data))

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """The record of what JSON has, by attribute, each of the right type."""
        names = {field.name for field in dataclasses.fields(cls)}  # pyrefly: ignore
        return cls(**{name: value for name, value in values.items() if name in names})


@dataclass(frozen=True)
class Head(Record):
    """The release that wrote it; schema changes when a key changes meaning."""

    DEFINITION = "rlcorr"
    version: str = __version__
    schema: Literal[1] = SCHEMA


class Output(Record):
    """A whole JSON document."""

    __slots__ = ()

    @property
    @computed(after="")
    def rlcorr(self) -> Head:
        """Which release wrote it."""
        return Head()


@dataclass(frozen=True)
class _Form:
    """How values of a type are written (None: as they are), read, and described."""

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any]
    schema: Callable[["_Definitions"], dict[str, Any]]


_Definitions = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Member:
    """A key of a record: the attribute that has its value, and how it is written."""

    key: str
    attribute: str
    about: str
    omit: bool
    optional: bool
    inline: bool
    default: Any
    form: _Form
    hint: Any


@cache
def members(cls: type) -> tuple[Member, ...]:
    """The keys of a record, in the order in which they are written."""
    placed: list[tuple[Member, str | None]] = []
    space = vars(sys.modules[cls.__module__])
    for field in dataclasses.fields(cls):
        # A hidden field may be of a class that is not loaded.
        hint = field.type
        if get_origin(hint) is Annotated and HIDDEN in hint.__metadata__:  # type: ignore[union-attr]
            continue
        home = next(each for each in cls.__mro__ if field.name in get_annotations(each))
        hint = _resolved(hint, vars(sys.modules[home.__module__]))
        key = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Key)), Key())
        default = field.default if field.default_factory is MISSING else None
        placed.append((_member(field.name, key, hint, default), key.after))
    for home in reversed(cls.__mro__):
        for name, value in home.__dict__.items():
            function = value.fget if isinstance(value, property) else getattr(value, "func", None)
            if isinstance(value, (property, cached_property)) and (key := vars(function).get("json_key")):
                hint = _resolved(function.__annotations__["return"], {**vars(sys.modules[home.__module__]), **space})
                placed.append((_member(name, key, hint, None), key.after))
    return _ordered(placed)


def _resolved(hint: Any, space: Mapping[str, Any]) -> Any:
    """A type without references by name."""
    holder = type("_", (), {"__annotations__": {"_": hint}})
    return get_type_hints(holder, globalns=dict(space), include_extras=True)["_"]


def _is_left_out(value: Any, default: Any) -> bool:
    """Whether a value says nothing that its absence does not."""
    return value is None or value == default or (not value and isinstance(value, (Mapping, tuple)))


def _member(attribute: str, key: Key, hint: Any, default: Any) -> Member:
    if key.omit and NoneType in get_args(_bare(hint)):  # what is None is left out
        present = reduce(or_, (each for each in get_args(_bare(hint)) if each is not NoneType))
        hint = Annotated[present, key, *getattr(hint, "__metadata__", ())]
    return Member(
        key=key.name or attribute,
        attribute=attribute,
        about=key.about,
        omit=key.omit,
        optional=key.optional,
        inline=key.inline,
        default=default,
        form=form_of(hint),
        hint=hint,
    )


def _ordered(placed: list[tuple[Member, str | None]]) -> tuple[Member, ...]:
    """Fields in their order, and what follows another key behind that."""
    ordered = [member for member, after in placed if after is None]
    waiting = [(member, after) for member, after in placed if after is not None]
    while waiting:
        left: list[tuple[Member, str]] = []
        for member, after in waiting:
            place = next((i for i, each in enumerate(ordered, 1) if after in (each.key, each.attribute)), None)
            if after and place is None:
                left.append((member, after))
            else:
                ordered.insert(place or 0, member)
        assert len(left) < len(waiting), f"no key {left[0][1]}"
        waiting = left
    return tuple(ordered)


def read_keys(cls: type, data: Any) -> dict[str, Any]:
    """What JSON has of a record, by attribute."""
    if not isinstance(data, Mapping):
        raise Fault("input should be a valid dictionary")
    values: dict[str, Any] = {}
    for member in members(cls):
        if member.inline:
            values[member.attribute] = member.form.read(data)
            continue
        if member.key not in data:
            if member.omit or member.optional:
                continue
            _read_at(member.key, _absent, None)
        values[member.attribute] = _read_at(member.key, member.form.read, data[member.key])
    return values


def _read_at(place: Any, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except Fault as fault:
        fault.at.append(place)
        raise


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def form_of(hint: Any) -> _Form:
    """How values of a type are written, read, and described."""
    asked = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Form)]
    form = _form_of_type(_bare(hint))
    for each in asked:
        form = _asked(form, each)
    return form


def _form_of_type(hint: Any) -> _Form:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (Union, UnionType):
        return _union(args)
    if origin is Literal:
        return _literal(args)
    if origin is tuple and args[-1] is not Ellipsis:
        return _fixed(tuple(map(form_of, args)))
    if origin in (tuple, list, Sequence):
        return _list(form_of(args[0]))
    if origin in (dict, Mapping):
        return _mapping(*args)
    assert issubclass(hint, Record), hint
    return _record(hint)


def plain(value: Any) -> Any:
    """A cell's value as JSON has it: dates and what is not finite as text."""
    has_form = value is None or isinstance(value, (str, int, list, dict))
    return value if has_form or (isinstance(value, float) and math.isfinite(value)) else str(value)


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    _number(value)
    return value


Scalar = Annotated[Any, Form(plain=True, read=_cell, types=("string", "number", "boolean", "null"))]
"""A value that rows are grouped by: a date is written as text, and so is what is not finite."""


def _text(value: Any) -> str:
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            value.encode()
            return value
        except UnicodeEncodeError:  # half of a surrogate pair
            pass
    raise Fault("input should be a valid string")


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Fault("input should be a valid boolean")


def _count(value: Any) -> int:
    if type(value) is not int:
        raise Fault("input should be a valid integer")
    if not 0 <= value <= _MOST:
        raise Fault(f"input should be {'greater than or equal to 0' if value < 0 else 'a smaller number'}")
    return value


def _number(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Fault("input should be a valid number")
    try:
        return float(value) if math.isfinite(value) else _number("")
    except (OverflowError, Fault):
        raise Fault("input should be a finite number") from None


def _nothing(value: Any) -> None:
    if value is not None:
        raise Fault("input should be null")


_SIMPLE: Mapping[Any, _Form] = {
    str: _Form(None, _text, lambda _: {"type": "string"}),
    bool: _Form(None, _truth, lambda _: {"type": "boolean"}),
    int: _Form(None, _count, lambda _: {"type": "integer", "minimum": 0}),
    float: _Form(None, _number, lambda _: {"type": "number"}),
    Path: _Form(str, _text, lambda _: {"type": "string"}),
    NoneType: _Form(None, _nothing, lambda _: {"type": "null"}),
    Any: _Form(None, lambda value: value, lambda _: {}),
}


def _union(hints: Iterable[Any]) -> _Form:
    """A value of one of several types; None last, so that faults are told of the others."""
    forms = [form_of(each) for each in hints if each is not NoneType]
    has_none = NoneType in hints
    writes = next((form.write for form in forms if form.write is not None), None)

    def write(value: Any) -> Any:
        return None if value is None or writes is None else writes(value)

    def read(value: Any) -> Any:
        if value is None and has_none:
            return None
        for form in forms[:-1]:
            try:
                return form.read(value)
            except Fault:
                pass
        return forms[-1].read(value)

    def schema(definitions: _Definitions) -> dict[str, Any]:
        parts = [form.schema(definitions) for form in forms] + [{"type": "null"}] * has_none
        if all(isinstance(part.get("type"), str) and len(part) == 1 for part in parts[1:]) and "type" in parts[0]:
            types = [part["type"] for part in parts]
            return {**parts[0], "type": types} if len(parts[0]) == 1 or len(parts) == 2 else {"anyOf": parts}
        return {"anyOf": parts}

    return _Form(None if writes is None else write, read, schema)


def _literal(allowed: tuple[Any, ...]) -> _Form:
    words = ", ".join(map(repr, allowed[:-1])) + " or " * (len(allowed) > 1) + repr(allowed[-1])

    def read(value: Any) -> Any:
        if not any(type(value) is type(each) and value == each for each in allowed):
            raise Fault(f"input should be {words}")
        return value

    described = {"const": allowed[0]} if len(allowed) == 1 else {"enum": list(allowed)}
    return _Form(None, read, lambda _: dict(described))


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Fault("input should be a valid list")
    return value


def _list(item: _Form) -> _Form:
    def read(value: Any) -> tuple[Any, ...]:
        return tuple(_read_at(place, item.read, each) for place, each in enumerate(_items(value)))

    def schema(definitions: _Definitions) -> dict[str, Any]:
        return {"type": "array", "items": item.schema(definitions)}

    write = item.write
    return _Form(list if write is None else lambda value: [write(each) for each in value], read, schema)


def _fixed(items: tuple[_Form, ...]) -> _Form:
    def write(value: Any) -> list[Any]:
        return [each if item.write is None else item.write(each) for item, each in zip(items, value, strict=True)]

    def read(value: Any) -> tuple[Any, ...]:
        if len(_items(value)) != len(items):
            raise Fault(f"list should have {len(items)} items, not {len(value)}")
        return tuple(_read_at(i, item.read, each) for i, (item, each) in enumerate(zip(items, value, strict=True)))

    def schema(definitions: _Definitions) -> dict[str, Any]:
        parts = [item.schema(definitions) for item in items]
        of_items = {"items": parts[0]} if all(part == parts[0] for part in parts) else {"prefixItems": parts}
        return {"type": "array", **of_items, "minItems": len(items), "maxItems": len(items)}

    return _Form(write, read, schema)


def _mapping(names: Any, items: Any) -> _Form:
    key, item = form_of(names), form_of(items)
    holds_numbers = names is str and items == Number

    def write(value: Any) -> dict[str, Any]:
        return dict(value.items()) if item.write is None else {name: item.write(each) for name, each in value.items()}

    def read(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise Fault("input should be a valid dictionary")
        if holds_numbers:  # there may be millions
            numbers = [each for each in value.values() if each is not None]
            are_finite = {float}.issuperset(map(type, numbers)) and all(map(math.isfinite, numbers))
            if are_finite and all(map(str.isascii, value)):
                return value
        return {_read_at(name, key.read, name): _read_at(name, item.read, each) for name, each in value.items()}

    def schema(definitions: _Definitions) -> dict[str, Any]:
        allowed, described = key.schema(definitions), item.schema(definitions)
        named = {} if allowed == {"type": "string"} else {"propertyNames": allowed}
        return {"type": "object", **named, **({"additionalProperties": described} if described else {})}

    return _Form(write, read, schema)


def _record(cls: type[Record]) -> _Form:
    def schema(definitions: _Definitions) -> dict[str, Any]:
        return described(cls, definitions)

    return _Form(cls.to_dict, cls.from_dict, schema)


def _asked(form: _Form, asked: Form) -> _Form:
    """The same of values of which more is asked."""

    def read(value: Any) -> Any:
        if asked.keys:
            if not isinstance(value, Mapping):
                raise Fault("input should be a valid dictionary")
            if lacking := [name for name in asked.keys if name not in value]:
                return _read_at(lacking[0], _absent, None)
            value = {name: each for name, each in value.items() if name in (*asked.keys, *asked.optional)}
        value = form.read(value) if asked.read is None else asked.read(value)
        if len(value) < asked.least if asked.least else False:
            raise Fault(f"input should have at least {asked.least} item")
        if asked.pattern and not re.fullmatch(asked.pattern, value):
            raise Fault(f"input should match {asked.pattern}")
        if asked.check is not None:
            asked.check(value)
        return value

    def schema(definitions: _Definitions) -> dict[str, Any]:
        if asked.name in definitions:
            return {"$ref": f"#/$defs/{asked.name}"}
        one: dict[str, Any] = {"type": list(asked.types)} if asked.types else form.schema(definitions)
        if asked.keys:
            names = dict.fromkeys((*asked.keys, *asked.optional), one["additionalProperties"])
            one = {"type": "object", "properties": names, "required": list(asked.keys), "additionalProperties": False}
        if asked.least:
            one[{"array": "minItems", "object": "minProperties"}[one["type"]]] = asked.least
        if asked.above is not None:
            one["exclusiveMinimum"] = asked.above
        if asked.pattern:
            one["pattern"] = asked.pattern
        if not asked.name:
            return one
        definitions[asked.name] = {**({"description": asked.about} if asked.about else {}), **one}
        return {"$ref": f"#/$defs/{asked.name}"}

    return _Form(plain if asked.plain else form.write, read, schema)


def _absent(_: Any) -> Any:
    raise Fault("field required")


def definition_name(cls: type) -> str:
    """The name of a record in the schema: its DEFINITION, else its class's in lower case."""
    return getattr(cls, "DEFINITION", "") or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


def described(cls: type[Record], definitions: _Definitions, name: str = "") -> dict[str, Any]:
    """A reference to the definition of a record, which is added where it is not there yet."""
    name = name or definition_name(cls)
    if name not in definitions:
        definitions[name] = {}  # which keeps its place before those that it needs
        about = " ".join((cls.__doc__ or "").split())
        definitions[name] |= {"description": about, **_object(cls, definitions), "additionalProperties": False}
        definitions[name]["of"] = cls
    assert definitions[name]["of"] is cls, f"two records are called {name}"
    return {"$ref": f"#/$defs/{name}"}


def _object(cls: type[Record], definitions: _Definitions) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for member in members(cls):
        bare = _bare(member.hint)
        if member.inline and isinstance(bare, type):
            one = _object(bare, definitions)
        else:
            one = member.form.schema(definitions)
        if member.inline:
            properties.update(one["properties"])
            required += [name for name in one["required"] if name not in required]
            continue
        properties[member.key] = {**({"description": member.about} if member.about else {}), **one}
        required += [member.key] * (not member.omit and member.key not in required)
    return {"type": "object", "properties": properties, "required": required}


def schema(title: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of documents by name: records, or lists of them."""
    definitions: _Definitions = {}
    for name, hint in outputs.items():
        if isinstance(hint, type):
            described(hint, definitions, name)
        else:
            definitions[name] = form_of(hint).schema(definitions)
    for definition in definitions.values():
        definition.pop("of", None)
    any_of = [{"$ref": f"#/$defs/{name}"} for name in outputs]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": title, "anyOf": any_of, "$defs": definitions}
