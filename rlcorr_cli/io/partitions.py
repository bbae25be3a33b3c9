"""Columns that stand in the names of folders: `step=3/worker=a/part.parquet`, as Spark, Hive and polars write them.

A name is a column where every file of the dump is below a folder of that name; a file's own column goes first.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import pyarrow as pa

from rlcorr_cli.io.batches import Rows
from rlcorr_cli.io.columns import Roles

NULL = "__HIVE_DEFAULT_PARTITION__"
Value = int | str | None


@dataclass(frozen=True)
class Partition:
    """The columns that one file's folders name, each with the value of all its rows."""

    values: tuple[tuple[str, Value], ...] = ()
    whole: tuple[str, ...] = ()

    def fields(self) -> list[pa.Field]:
        """The columns with their types: whole numbers where all files' values are, else text."""
        return [pa.field(name, pa.int64() if name in self.whole else pa.string()) for name, _ in self.values]

    def beside(self, schema: pa.Schema) -> "Partition":
        """Those of the columns that a file does not have itself."""
        values = tuple((name, value) for name, value in self.values if name not in schema.names)
        return Partition(values, self.whole)

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """A file's columns and these."""
        return pa.schema([*schema, *self.fields()], metadata=schema.metadata)

    def without(self, roles: Roles) -> Roles:
        """The roles of the columns that are in the file."""
        if not self.values:
            return roles
        names = {name for name, _ in self.values}
        return replace(
            roles,
            batch=None if roles.batch in names else roles.batch,
            group_keys=tuple(name for name in roles.group_keys if name not in names),
            ids=tuple(name for name in roles.ids if name not in names),
            drawn_by=tuple(name for name in roles.drawn_by if name not in names),
            cluster=None if roles.cluster in names else roles.cluster,
            rollouts=tuple(name for name in roles.rollouts if name not in names),
        )

    def given_to(self, rows: Rows, needed: Sequence[str]) -> Rows:
        """Rows of the file with these columns, those of `needed` and all of a row that is whole."""
        if not self.values:
            return rows
        n = rows.data.num_rows
        columns = {
            field.name: pa.array([value] * n, field.type)
            for field, (_, value) in zip(self.fields(), self.values, strict=True)
        }
        data = rows.data
        for name in needed:
            if name in columns:
                data = data.append_column(name, columns[name])
        original = None if rows.original is None else rows.original.with_columns(columns)
        return replace(
            rows, data=data.select([name for name in needed if name in data.schema.names]), original=original
        )


NONE = Partition()


def partitions(paths: Sequence[str]) -> dict[str, Partition]:
    """What the folders of each file name, of a dump's files; nothing of a name that not all have."""
    named = {path: _named(path) for path in paths}
    shared = set[str]().union(*named.values()).intersection(*named.values())
    columns = [name for name in next(iter(named.values())) if name in shared]
    texts = {name: [values[name] for values in named.values()] for name in columns}
    whole = tuple(name for name, values in texts.items() if all(_is_whole(value) for value in values if value != NULL))
    return {
        path: Partition(tuple((name, _value(values[name], name in whole)) for name in columns), whole)
        for path, values in named.items()
    }


def _named(path: str) -> dict[str, str]:
    folders = os.path.dirname(path).split(os.sep)
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return {unquote(name): unquote(value) for name, _, value in pairs if name}


def _is_whole(text: str) -> bool:
    return text.isascii() and text.lstrip("-").isdigit() and len(text) <= 18


def _value(text: str, whole: bool) -> Value:
    return None if text == NULL else int(text) if whole else text
