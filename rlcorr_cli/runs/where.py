"""A condition on rows: an expression of SQL over a dump's columns, `step = 4 and worker = 'w3'`.

The only place where looking at a dump takes polars, which is loaded where there is a condition: it starts threads.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import UsageError, nearest, shortened
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.whole_rows import ArrowRows, OriginalRows

if TYPE_CHECKING:
    import polars as pl

_LITERAL = re.compile(r"""(?<![\w&])'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_ODD_QUOTE = re.compile(r"""['"`$\\]""")
_QUERY = re.compile(r"\bSELECT\b|\(\s*(?:FROM|TABLE|VALUES|WITH)\b|--|/\*")
"""How a query begins within an expression; and comments, which could stand in between."""
EXAMPLE = "Write ⟦where \"step = 4 and worker = 'w3'\"⟧."


@frozen
class Condition:
    """An expression that holds for a row, or does not."""

    sql: str

    def __post_init__(self) -> None:
        _refuse_query(self.sql)
        _ = self._expression

    def __getstate__(self) -> dict[str, str]:
        return {"sql": self.sql}

    @cached_property
    def _expression(self) -> "pl.Expr":
        import polars as pl

        try:
            return pl.sql_expr(self.sql)
        except BaseException as error:  # of some texts the parser panics, which is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise UsageError(f"Cannot read ⟦where {shortened(self.sql)}⟧: {_why(error)}.", EXAMPLE) from error

    def holds(self, rows: OriginalRows, names: Mapping[str, str]) -> NDArray[np.bool_]:
        """For which of some rows it holds, bool[B]; null is no.  names: canonical name -> the dump's column."""
        import polars as pl

        try:
            wanted = self._expression.meta.root_names()
            table = _table(rows, dict.fromkeys(wanted), names)
            found = table.select(self._expression.alias("held")).get_column("held")
        except UsageError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise UsageError(f"⟦where {shortened(self.sql)}⟧ cannot be computed: {_why(error)}.", EXAMPLE) from error
        if found.dtype != pl.Boolean or len(found) not in (1, len(rows)):
            raise UsageError(f"⟦where {shortened(self.sql)}⟧ is no condition: it gives {found.dtype}.", EXAMPLE)
        held = found.fill_null(False).to_numpy()
        return np.broadcast_to(held, (len(rows),)).copy() if len(held) == 1 else held.astype(np.bool_)


def _refuse_query(sql: str) -> None:
    """Refuse a query within an expression before polars reads it, which opens what that names: tables are files, too.

    What literals hold is no query, but where dialects quote in other ways, none is certain.  In capitals, as the parser
    compares words, `ı` is the I of WITH.
    """
    bare = _LITERAL.sub(" ", sql)
    found = _QUERY.search((sql if _ODD_QUOTE.search(bare) or "\\" in sql else bare).upper())
    if found is not None:
        what = f"⟦where {shortened(sql)}⟧ holds a query or a comment ({found[0].lstrip('(').strip()})"
        raise UsageError(f"{what}, and only columns of the dump are read.", EXAMPLE)


def _table(rows: OriginalRows, wanted: Mapping[str, Any], names: Mapping[str, str]) -> "pl.DataFrame":
    """The columns that are asked for."""
    import polars as pl

    columns = {}
    if isinstance(rows, ArrowRows):
        has = rows.table.column_names
        for name in wanted:
            column = _column(name, has, names)
            columns[name] = pl.Series(name, pl.from_arrow(rows.table.column(column)))
    else:
        objects = rows.as_objects()
        has = list(dict.fromkeys(key for row in objects for key in row))
        for name in wanted:
            column = _column(name, has, names)
            columns[name] = pl.Series(name, [row.get(column) for row in objects], strict=False)
    return pl.DataFrame(columns) if columns else pl.DataFrame({"row": range(len(rows))})


def _column(name: str, has: list[str], names: Mapping[str, str]) -> str:
    column = name if name in has else names.get(name, name)
    if column not in has:
        raise UsageError(f"⟦where⟧ names {name}, and there is no such column.", f"Similar: {nearest(name, has)}.")
    return column


def _why(error: BaseException) -> str:
    return shortened(str(error).partition("\n")[0].removeprefix("sql parser error: ").rstrip("."), 120, quotes=False)
