"""Rows of a container that holds Arrow's columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.as_numpy import as_lists
from rlcorr_cli.io.plain_values import Losses, base64, plain
from rlcorr_cli.io.taking import take


@dataclass(frozen=True)
class ArrowRows:
    """OriginalRows as a table.  Every column comes through as it was, in order."""

    table: pa.Table

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "ArrowRows":
        """The rows of a record batch, not copied."""
        return cls(pa.Table.from_batches([batch]))

    def __reduce__(self) -> "tuple[Callable[[bytes], ArrowRows], tuple[bytes]]":
        """Sent as a stream of record batches: pickled, a few rows of a table would take along all that it holds.

        Not compressed: log-probs shrink by a third, and who takes the rows of all workers has the least time to spare.
        """
        return _received, (_sent(self.table),)

    def __len__(self) -> int:
        return self.table.num_rows

    def part(self, first: int, last: int) -> "ArrowRows":
        """Rows first..last-1."""
        return ArrowRows(self.table.slice(first, last - first))

    def take(self, indices: NDArray[np.int64]) -> "ArrowRows":
        """Rows by index."""
        return ArrowRows(take(self.table, indices))

    def unreadable(self) -> Mapping[int, str]:
        """None: a reader of columns reads all of a row."""
        return {}

    def read(self) -> "ArrowRows":
        """These."""
        return self

    def values(self, row: int) -> dict[str, Any]:
        """One row."""
        columns = zip(self.table.column_names, self.table.slice(row, 1).columns, strict=True)
        return {name: value for name, column in columns for value in plain(column.combine_chunks())}

    def masked(self, mask: str, keep: NDArray[np.bool_], offsets: NDArray[np.int64], *, before: str) -> "ArrowRows":
        """The mask in its own type, in its place."""
        column, index = self.table.column(mask), self.table.schema.get_field_index(mask)
        changed = self.table.set_column(index, self.table.schema.field(index), as_lists(column.type, offsets, keep))
        return ArrowRows(changed.append_column(before, column))

    def with_columns(self, added: Mapping[str, pa.Array]) -> "ArrowRows":
        """The columns at the table's end."""
        table = self.table
        for name, column in added.items():
            table = table.append_column(name, column)
        return ArrowRows(table)

    def replacing(self, name: str, column: pa.Array) -> "ArrowRows":
        """The column at the table's end, wherever the other was."""
        table = self.table.drop_columns([name]) if name in self.table.column_names else self.table
        return ArrowRows(table.append_column(name, column))

    def as_table(self, schema: pa.Schema | None) -> pa.Table:
        """The table, whose columns are what they are."""
        return self.table

    def as_objects(self, losses: Losses | None = None) -> list[dict[str, Any]]:
        """Rows of plain values, bytes in base 64."""
        names = self.table.column_names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"Two columns are called {twice}; a JSON object holds one.", "Write .parquet, or rename one."
            )
        columns = [plain(column.combine_chunks(), base64, losses) for column in self.table.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _sent(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _received(stream: bytes) -> ArrowRows:
    return ArrowRows(pa.ipc.open_stream(stream).read_all())
