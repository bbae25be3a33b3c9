"""How records become JSON and come back, and the JSON schema of both: what their fields' types and Keys say, made into
three functions a type when a class is first met."""

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING
from functools import cache, cached_property, partial, reduce
from inspect import get_annotations
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import HIDDEN, Fault, Form, Key, Number, plain

_MOST = 2**62


@frozen
class _Form:
    """How values of a type are written (None: as they are), read, and described."""

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any]
    schema: Callable[["_Definitions"], dict[str, Any]]


_Definitions = dict[str, Any]


@frozen(kw_only=True)
class Member:
    """A key of a record: the attribute that has its value, how that is written, and its class where it is one."""

    name: str
    attribute: str
    key: Key
    default: Any
    form: _Form
    record: type | None


@cache
def members(cls: type) -> tuple[Member, ...]:
    """The keys of a record, in the order in which they are written."""
    placed: list[Member] = []
    for field in dataclasses.fields(cls):
        # A hidden field may be of a class that is not loaded.
        if HIDDEN not in getattr(field.type, "__metadata__", ()):
            home = next(each for each in cls.__mro__ if field.name in get_annotations(each))
            default = field.default if field.default_factory is MISSING else None
            placed.append(_member(field.name, _resolved(field.type, home), default))
    for home in reversed(cls.__mro__):
        for name, value in home.__dict__.items():
            function = value.fget if isinstance(value, property) else getattr(value, "func", None)
            if isinstance(value, (property, cached_property)) and (key := vars(function).get("json_key")):
                hint = _resolved(function.__annotations__["return"], home) if key.type is None else key.type()
                placed.append(_member(name, Annotated[hint, key], None))
    return _ordered(placed)


def _resolved(hint: Any, home: type) -> Any:
    """A type without references by name, as it stands in a class."""
    holder = type("_", (), {"__annotations__": {"_": hint}})
    return get_type_hints(holder, globalns=vars(sys.modules[home.__module__]), include_extras=True)["_"]


def _member(attribute: str, hint: Any, default: Any) -> Member:
    metadata = getattr(hint, "__metadata__", ())
    bare = get_args(hint)[0] if metadata else hint
    key = next((each for each in metadata if isinstance(each, Key)), Key())
    if key.omit and NoneType in get_args(bare):  # what is None is left out
        bare = reduce(or_, (each for each in get_args(bare) if each is not NoneType))
        hint = Annotated[bare, *metadata]
    record = bare if isinstance(bare, type) else None
    return Member(
        name=key.name or attribute, attribute=attribute, key=key, default=default, form=form_of(hint), record=record
    )


def _ordered(placed: list[Member]) -> tuple[Member, ...]:
    """Fields in their order, and what follows another key behind that."""
    ordered = [member for member in placed if member.key.after is None]
    waiting = [member for member in placed if member.key.after is not None]
    known = {"", *(name for member in placed for name in (member.name, member.attribute))}
    assert all(member.key.after in known for member in waiting), "a key follows one that is not there"
    while waiting:
        member = waiting.pop(0)
        after = member.key.after
        place = next((i for i, each in enumerate(ordered, 1) if after in (each.name, each.attribute)), 0)
        if after and not place:
            waiting.append(member)  # until that has its own place
        else:
            ordered.insert(place, member)
    return tuple(ordered)


def write_keys(record: Any, without: str) -> dict[str, Any]:
    """The JSON form of a record; without: as of `Record.to_dict`."""
    data: dict[str, Any] = {}
    for member in members(type(record)):
        value = () if member.name == without else getattr(record, member.attribute)
        is_empty = value is None or value == member.default or (not value and isinstance(value, (Mapping, tuple)))
        if member.key.omit and is_empty:
            continue
        written = value if member.form.write is None else member.form.write(value)
        if member.key.inline:
            data.update(written)
        else:
            data[member.name] = written
    return data


def read_keys(cls: type, data: Any) -> dict[str, Any]:
    """What JSON has of a record, by attribute."""
    if not isinstance(data, Mapping):
        raise Fault("input should be a valid dictionary")
    values: dict[str, Any] = {}
    for member in members(cls):
        if member.key.inline:
            values[member.attribute] = member.form.read(data)
            continue
        if member.name not in data:
            if member.key.omit or member.key.optional:
                continue
            raise Fault("field required", member.name)
        values[member.attribute] = _read_at(member.name, member.form.read, data[member.name])
    return values


def _read_at(place: Any, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except Fault as fault:
        fault.at.append(place)
        raise


def form_of(hint: Any) -> _Form:
    """How values of a type are written, read, and described."""
    metadata = getattr(hint, "__metadata__", ())
    bare = get_args(hint)[0] if metadata else hint
    origin, args = get_origin(bare), get_args(bare)
    if bare in _SIMPLE:
        form = _SIMPLE[bare]
    elif origin in (Union, UnionType):
        form = _union(args)
    elif origin is Literal:
        form = _literal(args)
    elif origin is tuple and args[-1] is not Ellipsis:
        form = _fixed(tuple(map(form_of, args)))
    elif origin in (tuple, list, Sequence):
        form = _list(form_of(args[0]))
    elif origin in (dict, Mapping):
        form = _mapping(*args)
    else:
        assert hasattr(bare, "from_dict"), bare
        form = _Form(bare.to_dict, bare.from_dict, partial(described, bare))
    for asked in metadata:
        if isinstance(asked, Form):
            form = _asked(form, asked)
    return form


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    _number(value)
    return value


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
    with suppress(OverflowError):  # of a whole number beyond any float
        if math.isfinite(value):
            return float(value)
    raise Fault("input should be a finite number")


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


def _asked(form: _Form, asked: Form) -> _Form:
    """The same of values of which more is asked."""

    def read(value: Any) -> Any:
        if asked.keys:
            if not isinstance(value, Mapping):
                raise Fault("input should be a valid dictionary")
            if lacking := [name for name in asked.keys if name not in value]:
                raise Fault("field required", lacking[0])
            value = {name: each for name, each in value.items() if name in (*asked.keys, *asked.optional)}
        value = (asked.read or (_cell if asked.types else form.read))(value)
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


def described(cls: Any, definitions: _Definitions, name: str = "") -> dict[str, Any]:
    """A reference to the definition of a record, which is added where it is not there yet.

    name: of the definition; without one it is the record's DEFINITION, else its class's name in lower case.
    """
    name = name or getattr(cls, "DEFINITION", "") or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    if name not in definitions:
        definitions[name] = {}  # which keeps its place before those that it needs
        about = " ".join((cls.__doc__ or "").split())
        definitions[name] |= {"description": about, **_object(cls, definitions), "additionalProperties": False}
        definitions[name]["of"] = cls
    assert definitions[name]["of"] is cls, f"two records are called {name}"
    return {"$ref": f"#/$defs/{name}"}


def _object(cls: Any, definitions: _Definitions) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for member in members(cls):
        if member.key.inline and member.record is not None:
            one = _object(member.record, definitions)
        else:
            one = member.form.schema(definitions)
        if member.key.inline:
            properties.update(one["properties"])
            required += [name for name in one["required"] if name not in required]
            continue
        properties[member.name] = {**({"description": member.key.about} if member.key.about else {}), **one}
        required += [member.name] * (not member.key.omit and member.name not in required)
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
