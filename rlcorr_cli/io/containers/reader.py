"""What a container's module offers: four functions under one name, READER."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlcorr_cli.batch import Shard
from rlcorr_cli.io.batches import Rows
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.containers.index import Index, NeededColumns
from rlcorr_cli.io.containers.streams import Stdin
from rlcorr_cli.io.sources import Source

Piece = tuple[tuple[int, int] | None, int]
"""What Shard calls part and n_bytes."""


class Read(Protocol):
    """How the rows of one part are read.

    batch_tokens: how many tokens a batch will hold; what is yielded may be more or less.  whole: whether the rows come
    with all columns, or their own lines.
    """

    def __call__(
        self, shard: Shard, roles: Roles, stdin: Stdin | None, batch_tokens: int, *, whole: bool
    ) -> Iterator[Rows]: ...


@dataclass(frozen=True)
class Reader:
    """One container: index opens a file once, parts cuts it by what that told, read yields one part's needed columns,
    peek the first rows of a file's first part."""

    index: Callable[[Source, NeededColumns, Stdin | None], Index]
    parts: Callable[[Source, Index, Roles], Sequence[Piece]]
    read: Read
    peek: Callable[[Shard, Roles, Stdin | None], Rows | None]
