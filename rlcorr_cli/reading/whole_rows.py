"""Whole rows as they stood in the dump, and all that is done with them.

A container of columns gives ArrowRows, one of lines JsonRows.  Nothing but a container asks which it is: who filters
or writes rows knows what both have, as OriginalRows.  Each method gives new rows, and leaves these as they are.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_lists, take
from rlcorr_cli.reading.values import Losses, base64, plain_values

LINES = "Write .jsonl instead, where every row may differ."
"""What to do with rows that fit no one table."""


@frozen
class ArrowRows:
    """OriginalRows as a table.  Every column comes through as it was, in order."""

    table: pa.Table

    def __reduce__(self) -> "tuple[Callable[[bytes], ArrowRows], tuple[bytes]]":
        """Sent as a stream of record batches: pickled, a few rows of a table would take along all that it holds.

        Not compressed: log-probs shrink by a third, and who takes the rows of all workers has the least time to spare.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return _received, (sink.getvalue().to_pybytes(),)

    def __len__(self) -> int:
        return self.table.num_rows

    def part(self, first: int, last: int) -> "ArrowRows":
        """Rows first..last-1; their values are not copied."""
        return ArrowRows(self.table.slice(first, last - first))

    def take(self, indices: NDArray[np.int64]) -> "ArrowRows":
        """Rows by index, in that order; an index may come again."""
        return ArrowRows(take(self.table, indices))

    def unreadable(self) -> Mapping[int, str]:
        """Rows that cannot be had whole, whatever the reader of single columns made of them, and why: none here, where
        a reader of columns reads all of a row."""
        return {}

    def read(self) -> "ArrowRows":
        """The rows without the bytes they were read from, which are as large again: these."""
        return self

    def values(self, row: int) -> dict[str, Any]:
        """One row, or what can be shown of it, as Python has it."""
        columns = zip(self.table.column_names, self.table.slice(row, 1).columns, strict=True)
        return {name: value for name, column in columns for value in plain_values(column.combine_chunks())}

    def masked(self, mask: str, keep: NDArray[np.bool_], offsets: NDArray[np.int64], *, before: str) -> "ArrowRows":
        """The rows with 0 in column `mask` where a token is not kept, in the column's own kind of numbers.

        keep: bool[T] over flat tokens, of which offsets i64[B+1] tell the rows.  before: the column, added last, that
        has the mask as it was.
        """
        column, index = self.table.column(mask), self.table.schema.get_field_index(mask)
        changed = self.table.set_column(index, self.table.schema.field(index), as_lists(column.type, offsets, keep))
        return ArrowRows(changed.append_column(before, column))

    def with_columns(self, added: Mapping[str, pa.Array]) -> "ArrowRows":
        """The rows with these columns after their own, and instead of those that have their names."""
        table = self.table
        for name, column in added.items():
            table = table.drop_columns([name]) if name in table.column_names else table
            table = table.append_column(name, column)
        return ArrowRows(table)

    def as_table(self, schema: pa.Schema | None) -> pa.Table:
        """The rows for a table of these columns; None where they are the first, and fix the columns."""
        return self.table

    def as_objects(self, losses: Losses | None = None) -> list[dict[str, Any]]:
        """Each row as its object of JSON lines, bytes in base 64.  losses: where to count what could not be had as it
        was."""
        names = self.table.column_names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"Two columns are called {twice}; a JSON object holds one.", "Write .parquet, or rename one."
            )
        columns = [plain_values(column.combine_chunks(), base64, losses) for column in self.table.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _received(stream: bytes) -> ArrowRows:
    return ArrowRows(pa.ipc.open_stream(stream).read_all())


LINE, BYTES = "rlcorr_line", "rlcorr_line_base64"
"""Keys of the object that stands for a line that is none: the line, or its bytes where it is no UTF-8."""
DEEPEST = 40
"""Levels of nesting that Parquet readers still open."""
TOO_DEEP = "These JSON lines are nested too deeply for Parquet readers."
KINDS: dict[type, str] = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def row_of(line: bytes) -> dict[str, Any] | str:
    """One line's object, or what is wrong with the line."""
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_object_of_pairs)
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
    return row if isinstance(row, dict) else f"is {json_kind(row)}, not an object"


class _TwiceError(Exception):
    """An object with two values of one key; the text is the key."""


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return row


def json_kind(value: Any) -> str:
    """What JSON calls such a value."""
    return KINDS.get(value.__class__, "a number")


@frozen
class JsonRows:
    """OriginalRows as lines of JSON, or as the objects of such lines, each with keys of its own.

    lines: as they were read, or None where only their objects are held; they are parsed once, when something asks for
    what is in them.  held: the objects, where there are no lines.  added: types of the columns that were added to them,
    which a table's first rows need not tell.
    """

    lines: list[bytes] | None = None
    held: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    added: Mapping[str, pa.DataType] = field(default_factory=dict[str, pa.DataType])

    def __len__(self) -> int:
        return len(self.held if self.lines is None else self.lines)

    def part(self, first: int, last: int) -> "JsonRows":
        """Rows first..last-1."""
        lines = None if self.lines is None else self.lines[first:last]
        return replace(self, lines=lines, held=self.held[first:last])

    def take(self, indices: NDArray[np.int64]) -> "JsonRows":
        """Rows by index; those of one index are one object."""
        if self.lines is None:
            return replace(self, held=[self.held[i] for i in indices.tolist()])
        return replace(self, lines=[self.lines[i] for i in indices.tolist()])

    @cached_property
    def _parsed(self) -> list[dict[str, Any] | str]:
        """The object of each line, or what is wrong with it."""
        return [row_of(line) for line in self.lines or ()]

    def unreadable(self) -> Mapping[int, str]:
        """Lines that are no objects."""
        return {i: row for i, row in enumerate(self._parsed) if isinstance(row, str)}

    def read(self) -> "JsonRows":
        """The lines' objects; a line that is none stands whole in LINE or BYTES."""
        if self.lines is None:
            return self
        pairs = zip(self._parsed, self.lines, strict=True)
        return JsonRows(held=[_stand_in(line) if isinstance(row, str) else row for row, line in pairs])

    def values(self, row: int) -> dict[str, Any]:
        """One row's object, or the line that is none."""
        if self.lines is None:
            return self.held[row]
        line = self.lines[row]
        parsed = row_of(line)
        return parsed if isinstance(parsed, dict) else {"line": line.decode("utf-8", "backslashreplace")}

    def masked(self, mask: str, keep: NDArray[np.bool_], offsets: NDArray[np.int64], *, before: str) -> "JsonRows":
        """The mask in each value's own class: 1, 1.0 and True become 0, 0.0 and False."""

        def kept(row: dict[str, Any], flags: list[bool]) -> list[Any]:
            return [value if stays else value.__class__(0) for value, stays in zip(row[mask], flags, strict=True)]

        rows = self.read()
        flags_of = [keep[first:last].tolist() for first, last in pairwise(offsets.tolist())]
        pairs = zip(rows.held, flags_of, strict=True)
        return replace(rows, held=[{**row, mask: kept(row, flags), before: row[mask]} for row, flags in pairs])

    def with_columns(self, added: Mapping[str, pa.Array]) -> "JsonRows":
        """The columns' values where their keys were, else at each object's end."""
        if not added:
            return self
        rows = self.read()
        values = zip(*map(plain_values, added.values()), strict=True)
        pairs = zip(rows.held, values, strict=True)
        held = [{**row, **dict(zip(added, more, strict=True))} for row, more in pairs]
        return JsonRows(held=held, added={**rows.added, **{name: column.type for name, column in added.items()}})

    def as_table(self, schema: pa.Schema | None) -> pa.Table:
        """The objects as a table; the first ones fix the columns."""
        objects = self.as_objects()
        try:
            table = pa.Table.from_pylist(objects, schema=schema)
            # Where no row was rejected, a list of what rejects is empty, and of no type.
            for name in [name for name in self.added if schema is None and name in table.column_names]:
                index = table.schema.get_field_index(name)
                table = table.set_column(index, name, table.column(index).cast(self.added[name]))
        except RecursionError as error:
            raise DataError(TOO_DEEP, LINES) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
            raise DataError(f"These JSON lines do not fit one table: {error}.", LINES) from error
        if any(_is_deeper(field.type, DEEPEST) for field in table.schema):
            raise DataError(TOO_DEEP, LINES)
        names = set(table.column_names)
        strange = next((name for row in objects for name in row if name not in names), None)
        if strange is not None:
            raise DataError(
                f"The key {strange} is not in the first rows, which fix the columns of a Parquet file.", LINES
            )
        return table

    def as_objects(self, losses: Losses | None = None) -> list[dict[str, Any]]:
        """The objects."""
        return self.read().held


def _stand_in(line: bytes) -> dict[str, Any]:
    try:
        return {LINE: line.decode("utf-8")}
    except UnicodeDecodeError:
        return {BYTES: base64(line)}


def _is_deeper(type: pa.DataType, levels: int) -> bool:
    """Whether it is nested deeper than so many levels."""
    return levels < 0 or any(_is_deeper(type.field(i).type, levels - 1) for i in range(type.num_fields))


OriginalRows = ArrowRows | JsonRows
"""Rows in order, with what both kinds can do."""
