"""What a container's module offers: four functions under one name, READER."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlcorr_cli.batch import Shard
from rlcorr_cli.io.batches import Rows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.containers.index import Index, NeededColumns
from rlcorr_cli.io.containers.streams import Stdin
from rlcorr_cli.io.sources import Source

Piece = tuple[tuple[int, int] | None, int]
"""What Shard calls part and n_bytes."""


@dataclass(frozen=True)
class Reader:
    """One container: index opens a file once, parts cuts it by what that told, read yields one part's needed columns,
    peek the first rows of a file's first part.

    The last arguments of read: how many tokens a batch will hold (what it yields may be more or less), and whether
    the rows are to come whole, with all columns or their own lines.
    """

    index: Callable[[Source, NeededColumns, Stdin | None], Index]
    parts: Callable[[Source, Index, Roles], Sequence[Piece]]
    read: Callable[[Shard, Roles, Stdin | None, int, bool], Iterator[Rows]]
    peek: Callable[[Shard, Roles, Stdin | None], Rows | None]
