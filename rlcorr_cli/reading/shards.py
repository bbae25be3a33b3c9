"""From a shard to checked batches, whatever container its rows are in."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rlcorr_cli.files import filesystem
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.table import TRAINED_LATER
from rlcorr_cli.reading.arrow_values import as_numpy
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

    rows_left: how many rows may still be taken, None for no limit.  seen: ids seen so far, None if ids are not checked.
    """

    rows_left: int | None = None
    seen: SeenIds | None = None

    def cut(self, rows: Rows) -> Rows:
        """As many of these rows as may still be taken; counts them off."""
        if self.rows_left is None:
            return rows
        n = min(self.rows_left, rows.data.num_rows)
        self.rows_left -= n
        return rows.part(0, n)


@frozen(kw_only=True)
class ShardReader:
    """How to read any shard of a dump.

    It can be pickled to workers, and does not grow with the number of files: what is one file's own is in its shards.
    limit: most rows of the whole dump; whether a row is taken then depends on how many were before.  stdin: set if
    standard input is a source; it then cannot be pickled.
    """

    roles: Roles
    bad_rows: BadRowPolicy
    limit: int | None = None
    stdin: Stdin | None = None

    @property
    def leaves_out_repeated(self) -> bool:
        """Whether a row whose id came before is left out, rather than ending the run."""
        return bool(self.roles.ids) and not self.bad_rows.stops

    def state(self) -> ReadState:
        """The state before the first row of a dump is read."""
        return ReadState(self.limit, SeenIds() if self.roles.ids else None)

    def rows(self, shard: Shard, batch_tokens: int, *, whole: bool = False) -> Iterator[Rows]:
        """The shard's rows unchecked, about batch_tokens tokens at a time, whatever the limit.

        whole: with all columns, or their lines.
        """
        with self._unchanged(shard):
            yield from self._rows(shard, batch_tokens, whole)

    def _rows(self, shard: Shard, batch_tokens: int, whole: bool) -> Iterator[Rows]:
        read = reader(shard.format).read
        roles = self.roles.without(shard.partition.names)
        for rows in read(shard, roles, self.stdin, batch_tokens, whole=whole):
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
        state = state or self.state()
        if state.rows_left == 0:
            return
        with self._unchanged(shard):
            for rows in self._rows(shard, batch_tokens, whole or self.bad_rows.keeps):
                read = _trained(rows, self.roles) if shard.format in TRAINED_LATER else rows
                yield from checked_batches(
                    state.cut(read), self.roles, batch_tokens, bad_rows=self.bad_rows, seen=state.seen
                )
                if state.rows_left == 0:
                    break

    @contextmanager
    def _unchanged(self, shard: Shard) -> Generator[None]:
        """Raise a DataError if the files changed since they were found: looked at before (on a disk) and after."""
        if not filesystem(shard.path).remote:  # each look costs a request there, and the one at the end tells as much
            check_unchanged(shard.files, shard.format)
        with blaming_changes(shard.files, shard.format):
            yield
        check_unchanged(shard.files, shard.format)


def _trained(rows: Rows, roles: Roles) -> Rows:
    """Without rows that have no log-probs of a trained policy: their sequences are not trained on, or not yet."""
    if roles.trained is None:
        return rows
    known = as_numpy(rows.data.column(roles.trained).is_valid())
    return rows if known.all() else rows.take(np.flatnonzero(known))
