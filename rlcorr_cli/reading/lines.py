"""Lines one at a time with the standard library: the first rows, and blocks that pyarrow refuses.

Either a line is read (mixed booleans and numbers, keys of mixed numeric type) or its row says what is wrong with it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.places import shown
from rlcorr_cli.reading.names import KEPT_SETS

LARGEST = 2**1023
DEEPEST = 20
"""Lists within lists whose type is told; deeper ones are no column that is read."""
NOT_FINITE = ("NaN", "nan", "Infinity", "-Infinity", "inf", "-inf")
"""Text in a list of numbers that stands for one that is not finite: ART and others write it so."""
KINDS: dict[type, str] = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def numbered(data: bytes, before: int) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their number from 1, `before` lines coming first."""
    start = 0
    while start < len(data):
        before += 1
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end]
        if line and not line.isspace():
            yield before, line
        start = end + 1


def row_of(line: bytes) -> dict[str, Any] | str:
    """One line's object, or what is wrong with the line."""
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"is not JSON: {error.msg} at column {error.colno}"
    except RecursionError:
        return "is nested too deeply"
    except _TwiceError as error:
        return f"has the key {error} twice"
    except ValueError as error:  # more digits than Python reads
        return f"is not JSON that can be read: {error}"
    return row if isinstance(row, dict) else f"is {_kind(row)}, not an object"


class _TwiceError(Exception):
    """An object with two values of one key; the text is the key."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return row


def inferred(rows: Iterable[dict[str, Any]]) -> pa.Schema:
    """Every key seen, typed by its first value that says something: not null, not []."""
    types: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            if not _is_text(name):
                continue  # no column can be called so; the key stays in its line
            if types.get(name, pa.null()) in (pa.null(), pa.list_(pa.null())):
                type = _type(value)
                if name in KEPT_SETS and isinstance(value, dict):  # an object whose fields are read
                    type = pa.struct([(key, _type(part)) for key, part in value.items() if _is_text(key)])
                types[name] = types.get(name, type) if type == pa.null() else type
    empty = pa.list_(pa.null())
    return pa.schema([(name, pa.list_(pa.float64()) if type == empty else type) for name, type in types.items()])


def parsed(
    lines: Iterable[bytes],
    schema: pa.Schema,
    path: str,
    *,
    ids: Sequence[str] = (),
    mask: str | None = None,
    lenient: str | None = None,
) -> tuple[pa.Table, dict[int, str]]:
    """The schema's columns of all lines, and what is wrong with those that cannot be read: their rows are null.

    A mask, whose lists may hold booleans, becomes float64, a key column of mixed numbers too, an id text.  lenient: the
    column of which a value that does not fit is null, and nothing is wrong with its line.
    """
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    unread: dict[int, str] = {}
    for i, line in enumerate(lines):
        row = _fitted(line, schema, ids=ids, mask=mask, lenient=lenient)
        if isinstance(row, str):
            unread[i], row = row, {}
        for name, values in columns.items():
            values.append(row.get(name))
    types = {field.name: pa.string() if field.name in ids else field.type for field in schema}
    return pa.table({name: _array(columns[name], type, name, path) for name, type in types.items()}), unread


def _fitted(
    line: bytes, schema: pa.Schema, *, ids: Sequence[str], mask: str | None, lenient: str | None
) -> dict[str, Any] | str:
    """A line's values as `_array` takes them, or what is wrong."""
    row = row_of(line)
    if isinstance(row, str):
        return row
    fitted: dict[str, Any] = {}
    for field in schema:
        try:
            value = row.get(field.name)
            if field.name in ids and value is not None:
                fitted[field.name] = _text(value if isinstance(value, str) else json.dumps(value))
            else:
                fitted[field.name] = _value(value, field.type, field.name == mask)
        except _UnfitError as error:
            if field.name == lenient:
                continue
            return f"has {error} in {field.name}, which holds {field.type}"
    return fitted


def _text(value: str) -> str:
    if not _is_text(value):
        raise _UnfitError("half a surrogate pair, which is not text,")
    return value


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: JSON can escape half a surrogate pair."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


class _UnfitError(Exception):
    """A value of a kind that its column cannot hold; the text is the kind."""


def _value(value: Any, type: pa.DataType, is_mask: bool) -> Any:
    """The value as `_array` takes it.  Only a mask may hold booleans in its lists."""
    if value is None:
        return None
    if pa.types.is_list(type):
        if not isinstance(value, list):
            raise _UnfitError(_kind(value))
        if pa.types.is_list(type.value_type):
            return [_value(item, type.value_type, is_mask) for item in value]
        return [_number(item, booleans=is_mask) for item in value]
    if pa.types.is_struct(type) and type.num_fields:
        if not isinstance(value, dict):
            raise _UnfitError(_kind(value))
        return {field.name: _value(value.get(field.name), field.type, is_mask) for field in type}
    if isinstance(value, str) and (pa.types.is_string(type) or pa.types.is_null(type)):
        return _text(value)
    if pa.types.is_string(type):
        raise _UnfitError(_kind(value))
    number = _number(value, booleans=True)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise _UnfitError("an integer beyond 64 bits")
    return number


def _number(value: Any, booleans: bool) -> Any:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _UnfitError("an integer that no float holds")
    if value is None or (isinstance(value, int | float) and (booleans or not isinstance(value, bool))):
        return value
    raise _UnfitError(_kind(value))


def _array(values: list[Any], type: pa.DataType, name: str, path: str) -> pa.Array:
    if pa.types.is_list(type) and not pa.types.is_nested(type.value_type):
        floats = [None if row is None else [_float(value) for value in row] for row in values]
        return pa.array(floats, pa.list_(pa.float64()))
    if pa.types.is_nested(type):
        return pa.array([_with_floats(value) for value in values], type)
    kinds = {value.__class__ for value in values if value is not None}
    if str in kinds and len(kinds) > 1:
        raise DataError(
            f"{shown(path)}: {name} mixes strings and numbers.", "Write one kind, or group by another column."
        )
    if len(kinds) > 1 or pa.types.is_floating(type):
        return pa.array([_float(value) for value in values], pa.float64())
    return pa.array(values)


def _with_floats(value: Any) -> Any:
    """A value of any depth with floats for its numbers."""
    match value:
        case list():
            return [_with_floats(item) for item in value]
        case dict():
            return {name: _with_floats(item) for name, item in value.items()}
        case int():
            return float(value)
        case _:
            return value


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _type(value: Any, depth: int = 0) -> pa.DataType:
    """As pyarrow would say it, but all numbers in lists are doubles and an object is one without fields."""
    if depth > DEEPEST:
        return pa.null()
    if value is None or isinstance(value, dict):
        return pa.null() if value is None else pa.struct([])
    if isinstance(value, list):
        told = [item for item in value if item is not None]
        inner = _type(next((item for item in told if item not in NOT_FINITE), 0.0 if told else None), depth + 1)
        return pa.list_(pa.float64() if inner == pa.int64() else inner)
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}[value.__class__]


def _kind(value: Any) -> str:
    return KINDS.get(value.__class__, "a number")
