"""Rows of a container that holds an object for each: JSON lines."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.containers.lines import row_of
from rlcorr_cli.io.original_rows import LINES
from rlcorr_cli.io.plain_values import Losses, plain

LINE, BYTES = "rlcorr_line", "rlcorr_line_base64"
"""Keys of the object that stands for a line that is none: the line, or its bytes where it is no UTF-8."""
DEEPEST = 40
"""Levels of nesting that Parquet readers still open."""
TOO_DEEP = "These JSON lines are nested too deeply for Parquet readers."


@dataclass(frozen=True)
class ObjectRows:
    """OriginalRows as Python's objects, each with keys of its own.

    added: types of the columns that were added to them, which a table's first rows need not tell.
    """

    objects: list[dict[str, Any]]
    added: Mapping[str, pa.DataType] = field(default_factory=dict[str, pa.DataType])

    def __len__(self) -> int:
        return len(self.objects)

    def part(self, first: int, last: int) -> "ObjectRows":
        """Rows first..last-1."""
        return replace(self, objects=self.objects[first:last])

    def take(self, indices: NDArray[np.int64]) -> "ObjectRows":
        """Rows by index; those of one index are one object."""
        return replace(self, objects=[self.objects[i] for i in indices.tolist()])

    def unreadable(self) -> Mapping[int, str]:
        """None: they have been read."""
        return {}

    def read(self) -> "ObjectRows":
        """These."""
        return self

    def values(self, row: int) -> dict[str, Any]:
        """One row."""
        return self.objects[row]

    def masked(self, mask: str, keep: NDArray[np.bool_], offsets: NDArray[np.int64], *, before: str) -> "ObjectRows":
        """The mask in each value's own class: 1, 1.0 and True become 0, 0.0 and False."""

        def kept(row: dict[str, Any], flags: list[bool]) -> list[Any]:
            return [value if stays else value.__class__(0) for value, stays in zip(row[mask], flags, strict=True)]

        pairs = zip(self.objects, _split(keep.tolist(), offsets.tolist()), strict=True)
        return replace(self, objects=[{**row, mask: kept(row, flags), before: row[mask]} for row, flags in pairs])

    def with_columns(self, added: Mapping[str, pa.Array]) -> "ObjectRows":
        """The columns' values at each object's end."""
        if not added:
            return self
        values = zip(*map(plain, added.values()), strict=True)
        pairs = zip(self.objects, values, strict=True)
        objects = [{**row, **dict(zip(added, more, strict=True))} for row, more in pairs]
        return ObjectRows(objects, {**self.added, **{name: column.type for name, column in added.items()}})

    def replacing(self, name: str, column: pa.Array) -> "ObjectRows":
        """The values where the key was, else at each object's end."""
        return self.with_columns({name: column})

    def as_table(self, schema: pa.Schema | None) -> pa.Table:
        """The objects as a table; the first ones fix the columns."""
        try:
            table = pa.Table.from_pylist(self.objects, schema=schema)
            if schema is None:
                table = self._with_added_types(table)
        except RecursionError as error:
            raise DataError(TOO_DEEP, LINES) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
            raise DataError(f"These JSON lines do not fit one table: {error}.", LINES) from error
        if any(_is_deeper(field.type, DEEPEST) for field in table.schema):
            raise DataError(TOO_DEEP, LINES)
        names = set(table.column_names)
        strange = next((name for row in self.objects for name in row if name not in names), None)
        if strange is not None:
            raise DataError(
                f"The key {strange} is not in the first rows, which fix the columns of a Parquet file.", LINES
            )
        return table

    def _with_added_types(self, table: pa.Table) -> pa.Table:
        """Where no row was rejected, a list of what rejects is empty, and of no type."""
        names = [name for name in self.added if name in table.column_names]
        for name in names:
            index = table.schema.get_field_index(name)
            table = table.set_column(index, name, table.column(index).cast(self.added[name]))
        return table

    def as_objects(self, losses: Losses | None = None) -> list[dict[str, Any]]:
        """The objects."""
        return self.objects


@dataclass(frozen=True)
class LineRows:
    """OriginalRows as lines of JSON, parsed once, when something asks for what is in them."""

    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, first: int, last: int) -> "LineRows":
        """Rows first..last-1."""
        return LineRows(self.lines[first:last])

    def take(self, indices: NDArray[np.int64]) -> "LineRows":
        """Rows by index."""
        return LineRows([self.lines[i] for i in indices.tolist()])

    @cached_property
    def _parsed(self) -> list[dict[str, Any] | str]:
        """Objects, or what is wrong with each line."""
        return [row_of(line) for line in self.lines]

    def unreadable(self) -> Mapping[int, str]:
        """Lines that are no objects."""
        return {i: row for i, row in enumerate(self._parsed) if isinstance(row, str)}

    def read(self) -> ObjectRows:
        """The lines' objects; a line that is none stands whole in LINE or BYTES."""
        pairs = zip(self._parsed, self.lines, strict=True)
        return ObjectRows([_stand_in(line) if isinstance(row, str) else row for row, line in pairs])

    def values(self, row: int) -> dict[str, Any]:
        """One line's object, or the line."""
        line = self.lines[row]
        parsed = row_of(line)
        return parsed if isinstance(parsed, dict) else {"line": line.decode("utf-8", "backslashreplace")}

    def masked(self, mask: str, keep: NDArray[np.bool_], offsets: NDArray[np.int64], *, before: str) -> ObjectRows:
        """As of the objects."""
        return self.read().masked(mask, keep, offsets, before=before)

    def with_columns(self, added: Mapping[str, pa.Array]) -> ObjectRows:
        """As of the objects."""
        return self.read().with_columns(added)

    def replacing(self, name: str, column: pa.Array) -> ObjectRows:
        """As of the objects."""
        return self.read().replacing(name, column)

    def as_table(self, schema: pa.Schema | None) -> pa.Table:
        """As of the objects."""
        return self.read().as_table(schema)

    def as_objects(self, losses: Losses | None = None) -> list[dict[str, Any]]:
        """The objects."""
        return self.read().as_objects(losses)


def _stand_in(line: bytes) -> dict[str, Any]:
    try:
        return {LINE: line.decode("utf-8")}
    except UnicodeDecodeError:
        return {BYTES: b64encode(line).decode()}


def _split(values: list[Any], offsets: Sequence[int]) -> list[list[Any]]:
    return [values[first:last] for first, last in pairwise(offsets)]


def _is_deeper(type: pa.DataType, levels: int) -> bool:
    """Whether it is nested deeper than so many levels."""
    return levels < 0 or any(_is_deeper(type.field(i).type, levels - 1) for i in range(type.num_fields))
