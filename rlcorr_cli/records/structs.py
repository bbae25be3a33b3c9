"""How records come back from JSON and are described: each has a msgspec Struct of the same keys, made when its class is
first met.  msgspec reads and checks into it, and has the JSON schema of it."""

from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from pathlib import Path
from re import sub
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rlcorr_cli.records.fields import Form
from rlcorr_cli.records.forms import members, parts_of


def read_json(cls: Any, text: str | bytes) -> Any:
    """The record that a JSON document is of; a msgspec.DecodeError says what is wrong, and where."""
    return _revived(cls, msgspec.json.decode(text, type=struct_of(cls)))


def _revived(cls: Any, node: Any) -> Any:
    """The record of a class from its Struct, or from that in which its keys stand inline."""
    values = {}
    for member in members(cls):
        if member.key.inline:
            values[member.attribute] = _revived(member.bare, node)
        elif (value := getattr(node, member.name)) is not UNSET:
            holds_records = any(hasattr(leaf, "from_json") for leaf in member.leaves)
            values[member.attribute] = _with_records(value) if holds_records else value
    return cls.of_keys(values)


def _with_records(value: Any) -> Any:
    if record := getattr(value, "record", None):
        return _revived(record, value)
    if isinstance(value, dict):
        return {name: _with_records(each) for name, each in value.items()}
    return tuple(map(_with_records, value)) if isinstance(value, tuple) else value


@cache
def struct_of(cls: Any) -> Any:
    """The Struct of a record, called what its definition in the schema is: its OUTPUT or DEFINITION, else its class's
    name in lower case."""
    name = getattr(cls, "OUTPUT", "") or getattr(cls, "DEFINITION", "")
    name = name or sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    space = {"record": cls, "__doc__": " ".join((cls.__doc__ or "").split())}
    return msgspec.defstruct(name, _fields(cls), kw_only=True, namespace=space)


def _fields(cls: Any) -> list[Any]:
    fields = []
    for member in members(cls):
        hint = _of_msgspec(member.hint)
        if member.key.about:
            hint = Annotated[hint, Meta(extra_json_schema={"$about": member.key.about})]
        if member.key.inline and hasattr(member.bare, "from_json"):
            fields += _fields(member.bare)
        elif member.key.inline:
            fields += get_type_hints(parts_of(hint)[0], include_extras=True).items()
        elif member.key.omit:
            fields.append((member.name, hint | UnsetType, UNSET))
        else:
            fields.append((member.name, hint))
    return fields


def _of_msgspec(hint: Any) -> Any:
    """The type that msgspec takes for a type: a record's Struct, and counts from 0."""
    bare, metadata = parts_of(hint)
    origin, inner = get_origin(bare), get_args(bare)
    form = next((each for each in metadata if isinstance(each, Form)), None)
    made: Any = bare
    if hasattr(bare, "from_json"):
        made = struct_of(bare)
    elif bare is int and form is None:
        made = Annotated[int, Meta(ge=0)]
    elif bare is Path:
        made = str
    elif bare is Any and form is not None:
        made = str | int | float | bool | None
    elif origin is Literal:  # of which the schema keeps the order
        made = Annotated[bare, Meta(extra_json_schema={"$enum": list(inner)})]
    elif origin in (Union, UnionType):
        made = reduce(or_, map(_of_msgspec, inner))
    elif origin is not None:
        made = origin[tuple(map(_of_msgspec, inner))]
    if form is None:
        return made
    if form.keys:
        return _table(form, _of_msgspec(inner[1]))
    named = {"$name": form.name} if form.name else None
    asked: dict[str, Any] = {"min_length": form.least, "gt": form.above, "pattern": form.pattern}
    return Annotated[made, Meta(**asked, description=form.about, extra_json_schema=named)]


@cache
def _table(form: Form, of: Any) -> Any:
    """A mapping whose keys are known.  of: what their values are."""
    maybe: Any = NotRequired
    keys = {**dict.fromkeys(form.keys, of), **dict.fromkeys(form.optional, maybe[of])}
    made: Any = TypedDict(form.name, keys)  # pyrefly: ignore[not-callable]
    made.__doc__ = form.about
    return made


def schema(title: str, outputs: Sequence[Any]) -> dict[str, Any]:
    """The JSON Schema of documents: records, or named lists of them."""
    types = [_of_msgspec(hint) for hint in outputs]
    refs, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        del definition["title"]
        definition["additionalProperties"] = False
    named: dict[str, Any] = {}
    any_of, definitions = _referred(list(refs), named), _referred(definitions, named)
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": title, "anyOf": any_of, "$defs": {**definitions, **named}}


def _referred(node: Any, definitions: dict[str, Any]) -> Any:
    """A part of a schema in which what has a name is referred to, and types alone are a list; definitions gets it."""
    if isinstance(node, list):
        return [_referred(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    node = {key: _referred(value, definitions) for key, value in node.items()}
    if all(part.keys() == {"type"} for part in node.get("anyOf", [{}])):
        node["type"] = [part["type"] for part in node.pop("anyOf")]
    if "enum" in node:
        node["enum"] = node.pop("$enum")
    about = {"description": node.pop("$about")} if "$about" in node else {}
    if name := node.pop("$name", ""):
        definitions[name] = node
        node = {"$ref": f"#/$defs/{name}"}
    return {**about, **node, **about}
