"""What one opening of a file tells of it: enough to settle its columns and to cut the work without opening it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from rlcorr_cli.io.partitions import NONE, Partition

NeededColumns = Callable[[pa.Schema], list[str]]
"""From a file's schema the columns that may be read, which are checked while it is open."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """schema: all columns of the file itself.  partition: further ones, that the names of its folders tell.
    in_one: whether the file can only be read from end to end, as one shard.
    made: whether rows are made in its schema's columns, so that files of one dump can all have the columns of any.
    notes: what its reader should know, in sentences.

    group_rows: rows of each row group.  group_bytes: needed column -> its bytes in each row group, as compressed.
    """

    schema: pa.Schema
    notes: tuple[str, ...] = ()
    partition: Partition = NONE
    in_one: bool = False
    made: bool = False
    group_rows: tuple[int, ...] = ()
    group_bytes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def all_columns(self) -> pa.Schema:
        """The file's own columns, and its folders'."""
        return self.partition.added_to(self.schema)
