"""A directory's parts, written where their rows are read: by many workers, each the parts of its own shards.

A part is called by its shard, so a shard that is read again, because a worker was killed, replaces its own.  The driver
gives out the place (`PartsOutput.place`), adds up what was written there, and says at the end in SEAL what all of it
is, last of all.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from rlcorr_cli.atomic import Destination, Staging, remote
from rlcorr_cli.atomic.joint import JointFile, put, settle
from rlcorr_cli.errors import OutputError
from rlcorr_cli.io.original_rows import OriginalRows
from rlcorr_cli.io.outputs import SEAL, Part, nothing_left, seal
from rlcorr_cli.io.plain_values import Losses
from rlcorr_cli.io.writers import Writer, writer

SHARED = "Put it on shared storage, which every node sees, or into an object store."


@dataclass(frozen=True, kw_only=True)
class PartsPlace:
    """Where and how workers write parts; a value that is sent to them.

    path: of the output, as messages name it; option: what it was named with.  directory: where parts are put until all
    are there.  digits: of a shard's number in their names.  about: their metadata.  columns: as of
    `Dump.table_columns`.  first: the columns that the dump's first rows fix, where files do not.
    """

    path: Path
    option: str
    directory: Path
    digits: int
    rows_per_file: int
    about: str
    columns: pa.Schema | None = None
    first: pa.Schema | None = None

    def name(self, shard: int, number: int) -> str:
        """A shard's part: part-00003.parquet, or where it has too many rows for one, part-00003_00001.parquet next."""
        further = f"_{number:05d}" if number else ""
        return f"part-{shard:0{self.digits}d}{further}.parquet"

    def failed(self, error: OSError) -> OutputError:
        """The error of a part that could not be written."""
        if remote.is_remote(self.directory):
            refusal = remote.refusal(self.directory, error)
            if refusal is not None:
                return refusal
        elif isinstance(error, FileNotFoundError):
            what = f"{os.uname().nodename}, where a part is written, does not see {self.directory.parent}"
            return OutputError(f"Cannot write {self.path}: {what}.", SHARED)
        return Destination(path=self.path, option=self.option).failed(error)


class ShardParts:
    """The parts of one shard, in a worker; a context, at whose end what is not finished is discarded."""

    def __init__(self, place: PartsPlace, shard: int) -> None:
        self._place = place
        self._shard = shard
        self._part: tuple[Writer, JointFile] | None = None
        self._in_part = 0
        self._written: list[Part] = []

    def __enter__(self) -> "ShardParts":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._part is not None:
            part, file = self._part
            part.abandon()
            file.discard()

    def write(self, rows: OriginalRows) -> None:
        """Rows in order; a part that is full is followed by another."""
        first = 0
        try:
            while first < len(rows):
                if self._in_part == self._place.rows_per_file:
                    self._close()
                last = min(len(rows), first + self._place.rows_per_file - self._in_part)
                self._open().write(rows.part(first, last))
                self._in_part += last - first
                first = last
        except OSError as error:
            raise self._place.failed(error) from error

    def finish(self) -> tuple[Part, ...]:
        """Have all under their names; none where no row came."""
        try:
            self._close()
        except OSError as error:
            raise self._place.failed(error) from error
        return tuple(self._written)

    def _open(self) -> Writer:
        if self._part is None:
            place = self._place
            file = JointFile(place.directory, place.name(self._shard, len(self._written)))
            self._part = writer(".parquet", file.file, None, place.columns, first=place.first), file
        return self._part[0]

    def _close(self) -> None:
        if self._part is not None:
            part, file = self._part
            part.close(self._place.about)
            n_bytes = file.commit()
            self._written.append(Part(self._place.name(self._shard, len(self._written)), self._in_part, n_bytes))
            self._part, self._in_part = None, 0


class PartsOutput:
    """The driver's side of such a directory: what its workers wrote, and its end.

    rows, n_bytes: what has been written.  losses: none, as of any Parquet.  place: for workers.
    """

    def __init__(
        self,
        staging: Staging,
        destination: Destination,
        rows_per_file: int,
        about: str,
        *,
        n_shards: int,
        columns: pa.Schema | None = None,
        first: pa.Schema | None = None,
    ) -> None:
        """As of `PartsPlace`.  n_shards: of the dump."""
        self.destination = destination
        self.rows = self.n_bytes = 0
        self.losses = Losses()
        self.place = PartsPlace(
            path=destination.path,
            option=destination.option,
            directory=staging.share(destination),
            digits=max(5, len(str(n_shards - 1))),
            rows_per_file=rows_per_file,
            about=about,
            columns=columns,
            first=first,
        )
        self._staging = staging
        self._parts: list[Part] = []

    def add(self, parts: Sequence[Part]) -> None:
        """What one shard became."""
        self._parts += parts
        self.rows += sum(part.rows for part in parts)
        self.n_bytes += sum(part.n_bytes for part in parts)

    def finish(self, metadata: str) -> None:
        """Have all of it where `Staging.publish` gives it its name, and SEAL last."""
        path, directory = self.destination.path, self.place.directory
        if not self.rows:
            raise nothing_left(path)
        try:
            missing = settle(directory, {part.name for part in self._parts})
            if missing:
                what = f"{missing[0]} was written, and is not in {directory.parent} of {os.uname().nodename}"
                raise OutputError(f"Cannot write {path}: {what}.", SHARED)
            put(directory, SEAL, seal(metadata, self._parts))
        except OSError as error:
            raise self.place.failed(error) from error

    def finish_or_remove(self, metadata: str) -> None:
        """As `finish`; where no row came, none is to be there: an older output is not this run's."""
        if self.rows:
            self.finish(metadata)
        else:
            self._staging.withdraw(self.place.directory)
            self._staging.remove(self.destination)
