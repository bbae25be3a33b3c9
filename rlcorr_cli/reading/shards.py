"""From a shard to checked batches, whatever container its rows are in."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlcorr_cli.files import filesystem
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows, Rows, checked_batches
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.container import reader
from rlcorr_cli.reading.find import blaming_changes, check_unchanged
from rlcorr_cli.reading.ids import SeenIds
from rlcorr_cli.reading.streams import Stdin


@dataclass
class ReadState:
    """What one reading of a whole dump knows from shard to shard.

    rows: how many more it may take, None for all.  seen: the ids it met, where it looks at them.
    """

    rows: int | None = None
    seen: SeenIds | None = None

    def cut(self, rows: Rows) -> Rows:
        """The first of these rows that may still be taken."""
        if self.rows is None:
            return rows
        n = min(self.rows, rows.data.num_rows)
        self.rows -= n
        return rows.part(0, n)


@dataclass(frozen=True, kw_only=True)
class ShardReader:
    """How the shards of a dump are read: a value that can be sent to where the work is done.

    The same for every shard, and no larger for a dump of many files: what is one file's own is in its shards.
    limit: rows of the whole dump.  stdin: where it is among the sources, and then nothing can be sent.
    """

    roles: Roles
    bad_rows: BadRowPolicy
    limit: int | None = None
    stdin: Stdin | None = None

    @property
    def counts_rows(self) -> bool:
        """Whether which rows are taken depends on how many were taken before."""
        return self.limit is not None

    @property
    def leaves_out_repeated(self) -> bool:
        """Whether which rows are taken depends on the ids of those before."""
        return bool(self.roles.ids) and not self.bad_rows.stops

    def state(self) -> ReadState:
        """The state before the first row of a dump is read."""
        return ReadState(self.limit, SeenIds() if self.roles.ids else None)

    def rows(self, shard: Shard, batch_tokens: int, *, whole: bool = False) -> Iterator[Rows]:
        """The shard's rows as they are, in steps of about batch_tokens tokens; whole: with all columns or lines."""
        with self._unchanged(shard):
            yield from self._rows(shard, batch_tokens, whole)

    def _rows(self, shard: Shard, batch_tokens: int, whole: bool) -> Iterator[Rows]:
        read = reader(shard.format).read
        for rows in read(shard, shard.partition.without(self.roles), self.stdin, batch_tokens, whole=whole):
            yield shard.partition.given_to(rows, self.roles.needed)

    def checked(
        self, shard: Shard, batch_tokens: int, state: ReadState | None = None, *, whole: bool = False
    ) -> Iterator[CheckedRows | BadRows]:
        """The shard's rows in order, checked, in batches of at most batch_tokens tokens, masked ones included, and of
        at most BATCH_ROWS rows.

        A longer row is a batch of its own.  A batch's arrays may be read-only views of what was read.  whole: with all
        columns, or the rows' lines.  Shards may be read at once from several threads, in any order, unless what is
        taken depends on those before.
        """
        state = state or ReadState()
        if state.rows == 0:
            return
        with self._unchanged(shard):
            for rows in self._rows(shard, batch_tokens, whole or self.bad_rows.keeps):
                yield from checked_batches(
                    state.cut(rows), self.roles, batch_tokens, bad_rows=self.bad_rows, seen=state.seen
                )
                if state.rows == 0:
                    break

    @contextmanager
    def _unchanged(self, shard: Shard) -> Generator[None]:
        """An error if the files are not those that were found, before they are read and after that."""
        if not filesystem(shard.path).remote:  # each look costs a request there, and the one at the end tells as much
            check_unchanged(shard.files)
        with blaming_changes(shard.files):
            yield
        check_unchanged(shard.files)
