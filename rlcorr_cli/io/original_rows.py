"""Whole rows as they stood in the dump, and all that is done with them: so much a new container has to know of them.

An implementation is whatever its container reads: Arrow tables, lines, objects.  Nothing else asks which it is.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.io.plain_values import Losses

LINES = "Write .jsonl instead, where every row may differ."
"""What to do with rows that fit no one table."""


class OriginalRows(Protocol):
    """Rows in order.  Each method gives new rows, and leaves these as they are."""

    def __len__(self) -> int: ...

    def part(self, first: int, last: int) -> "OriginalRows":
        """Rows first..last-1; their values are not copied."""
        ...

    def take(self, indices: NDArray[np.int64]) -> "OriginalRows":
        """Rows by index, in that order; an index may come again."""
        ...

    def unreadable(self) -> Mapping[int, str]:
        """Rows that cannot be had whole, whatever the reader of single columns made of them, and why."""
        ...

    def read(self) -> "OriginalRows":
        """The same rows without the bytes they were read from, which are as large again."""
        ...

    def values(self, row: int) -> dict[str, Any]:
        """One row, or what can be shown of it, as Python has it."""
        ...

    def masked(self, mask: str, keep: NDArray[np.bool_], offsets: NDArray[np.int64], *, before: str) -> "OriginalRows":
        """The rows with 0 in column `mask` where a token is not kept, in the column's own kind of numbers.

        keep: bool[T] over flat tokens, of which offsets i64[B+1] tell the rows.  before: the column, added last, that
        has the mask as it was.
        """
        ...

    def with_columns(self, added: Mapping[str, pa.Array]) -> "OriginalRows":
        """The rows with these columns, which they do not have, after their own."""
        ...

    def replacing(self, name: str, column: pa.Array) -> "OriginalRows":
        """The rows with this column instead of one that has its name, if any has."""
        ...

    def as_table(self, schema: pa.Schema | None) -> pa.Table:
        """The rows for a table of these columns; None where they are the first, and fix the columns."""
        ...

    def as_objects(self, losses: Losses | None = None) -> list[dict[str, Any]]:
        """Each row as its object of JSON lines.  losses: where to count what could not be had as it was."""
        ...
