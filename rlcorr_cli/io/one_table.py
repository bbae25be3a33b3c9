"""Whether the files of a dump have columns that one Parquet file can hold, and which."""

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.arrow_types import is_list

WHAT = "The files have different columns, which one Parquet file cannot hold"
HINT = "Filter them one by one, or write .jsonl instead."


def joined(schemas: Mapping[str, pa.Schema]) -> pa.Schema | None:
    """The columns of all files, in the first one's order, null allowed where any file allows it; None where all have
    the same.

    schemas: by path.  A DataError where a file has other columns, or columns of other types.
    """
    (first, schema), *others = schemas.items()
    others = [(path, theirs) for path, theirs in others if theirs != schema]
    if not others:
        return None
    for path, theirs in ((first, schema), *others):
        twice = next((name for name in theirs.names if theirs.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{WHAT}: {path} has two columns called {twice}.", HINT)
    for path, theirs in others:
        for name in sorted({*schema.names} ^ {*theirs.names}):
            has, lacks = (first, path) if name in schema.names else (path, first)
            raise DataError(f"{WHAT}: {has} has {name}, {lacks} has not.", HINT)
        for field in schema:
            other = theirs.field(field.name)
            if _joined(field, other) is None:
                raise DataError(f"{WHAT}: {field.name} is {field.type} in {first}, {other.type} in {path}.", HINT)
    # Pairs fit the first one, and so each other: all that can differ is where null is allowed.
    return pa.schema(
        [reduce(_fitting, (theirs.field(field.name) for _, theirs in others), field) for field in schema],
        metadata=schema.metadata,
    )


def different(later: pa.Schema, first: pa.Schema) -> DataError:
    """The error for rows whose columns no footer told before."""
    pairs = (
        (name, *(s.field(name).type if name in s.names else "missing" for s in (first, later)))
        for name in dict.fromkeys([*first.names, *later.names])
    )
    name, had, has = next((pair for pair in pairs if pair[1] != pair[2]), ("the order", "one", "another"))
    return DataError(f"{WHAT}: {name} is {had} in the first rows, {has} in later ones.", HINT)


def conformed(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """A file's rows with its columns as all files have them, those that were added after them."""
    if not {*columns.names} <= {*table.column_names}:
        return table
    added = [field for field in table.schema if field.name not in columns.names]
    schema = pa.schema([*columns, *added], metadata=table.schema.metadata)
    if table.schema == schema:
        return table
    return pa.table([table.column(field.name).cast(field.type) for field in schema], schema=schema)


def _fitting(field: pa.Field, other: pa.Field) -> pa.Field:
    both = _joined(field, other)
    assert both is not None, "the columns have been compared"
    return both


def _joined(field: pa.Field, other: pa.Field) -> pa.Field | None:
    """The field with null allowed where either allows it; None where the types differ in more."""
    nullable, type, theirs = field.nullable or other.nullable, field.type, other.type
    if type == theirs:
        return field.with_nullable(nullable)
    if type.id != theirs.id or type.num_fields != theirs.num_fields:
        return None
    parts = [_joined(type.field(i), theirs.field(i)) for i in range(type.num_fields)]
    if not parts or any(part is None for part in parts):
        return None
    whole = _with_parts(type, parts)
    same = whole is not None and _with_parts(theirs, parts) == whole
    return field.with_type(whole).with_nullable(nullable) if same else None


def _with_parts(type: pa.DataType, parts: list[pa.Field]) -> pa.DataType | None:
    if pa.types.is_struct(type):
        return pa.struct(parts) if [part.name for part in parts] == type.names else None
    if pa.types.is_fixed_size_list(type):
        return pa.list_(parts[0], type.list_size)
    makers = {pa.types.is_large_list: pa.large_list, pa.types.is_list_view: pa.list_view}
    makers |= {pa.types.is_large_list_view: pa.large_list_view, pa.types.is_list: pa.list_}
    return next((make(parts[0]) for fits, make in makers.items() if is_list(type) and fits(type)), None)
