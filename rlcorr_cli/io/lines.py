"""Lines one at a time with the standard library: the first rows, and blocks that pyarrow refuses.

Either a line is read (mixed booleans and numbers, keys of mixed numeric type) or its number is in the error.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.sources import shown

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


def row_of(line: bytes, path: str, number: int) -> dict[str, Any]:
    """One line's object."""
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _bad(path, number, f"is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise _bad(path, number, f"is not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise _bad(path, number, "is nested too deeply") from error
    if not isinstance(row, dict):
        raise _bad(path, number, f"is {_kind(row)}, not an object")
    return row


def inferred(rows: Iterable[dict[str, Any]]) -> pa.Schema:
    """Every key seen, typed by its first value that says something: not null, not []."""
    types: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            if types.get(name, pa.null()) in (pa.null(), pa.list_(pa.null())):
                found = _type(value)
                types[name] = types.get(name, found) if found == pa.null() else found
    empty = pa.list_(pa.null())
    return pa.schema([(name, pa.list_(pa.float64()) if type == empty else type) for name, type in types.items()])


def parsed(lines: Iterable[tuple[int, bytes]], schema: pa.Schema, path: str) -> pa.Table:
    """The schema's columns; a boolean mask becomes float32, a key column of mixed numbers float64."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for number, line in lines:
        row = row_of(line, path, number)
        for field in schema:
            try:
                columns[field.name].append(_value(row.get(field.name), field.type))
            except _UnfitError as error:
                raise _bad(path, number, f"has {error} in {field.name}, which holds {field.type}") from None
    return pa.table({field.name: _array(columns[field.name], field.type, field.name, path) for field in schema})


class _UnfitError(Exception):
    """A value of a kind that its column cannot hold; the text is the kind."""


def _value(value: Any, type: pa.DataType) -> Any:
    """The value as `_array` takes it.  Only a mask, declared other than float64, may hold booleans in its lists."""
    if value is None:
        return None
    if pa.types.is_list(type):
        if not isinstance(value, list):
            raise _UnfitError(_kind(value))
        return [_number(item, booleans=type.value_type != pa.float64()) for item in value]
    if isinstance(value, str) and (pa.types.is_string(type) or pa.types.is_null(type)):
        return value
    if pa.types.is_string(type):
        raise _UnfitError(_kind(value))
    number = _number(value, booleans=True)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise _UnfitError("an integer beyond 64 bits")
    return number


def _number(value: Any, booleans: bool) -> Any:
    if value is None or (isinstance(value, int | float) and (booleans or not isinstance(value, bool))):
        return value
    raise _UnfitError(_kind(value))


def _array(values: list[Any], type: pa.DataType, name: str, path: str) -> pa.Array:
    if pa.types.is_list(type):
        item = pa.float64() if type.value_type == pa.float64() else pa.float32()
        return pa.array([None if row is None else [_float(value) for value in row] for row in values], pa.list_(item))
    kinds = {value.__class__ for value in values if value is not None}
    if str in kinds and len(kinds) > 1:
        raise DataError(
            f"{shown(path)}: {name} mixes strings and numbers.", "Write one kind, or group by another column."
        )
    if len(kinds) > 1 or pa.types.is_floating(type):
        return pa.array([_float(value) for value in values], pa.float64())
    return pa.array(values)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _type(value: Any) -> pa.DataType:
    """As pyarrow would say it, but all numbers in lists are doubles and an object is one without fields."""
    if value is None or isinstance(value, dict):
        return pa.null() if value is None else pa.struct([])
    if isinstance(value, list):
        inner = next((_type(item) for item in value if item is not None), pa.null())
        return pa.list_(pa.float64() if inner == pa.int64() else inner)
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}[value.__class__]


def _kind(value: Any) -> str:
    return KINDS.get(value.__class__, "a number")


def _bad(path: str, number: int, what: str) -> DataError:
    return DataError(f"{shown(path)}, line {number} {what}.", "Repair or delete the line; a cut last line can go.")
