"""Datasets on their way to their place, each one output of an `Outputs`; `writers` has the forms.

`Output` is a dataset that this process writes: one file, or a directory whose parts have so many rows each.  Where many
workers write a directory, each writes the rows that it reads (`ShardParts`), and the driver gives out the place
(`PartsOutput.place`), adds up what was written there, and says at the end in SEAL what all of it is, last of all.  A
part is called by its shard, so a shard that is read again, because a worker was killed, replaces its own.
"""

import errno
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.files.destinations import Destination, is_remote, store_of
from rlcorr_cli.files.outputs import Outputs, PartFile, write_file
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.formats import TABLES, WRITTEN
from rlcorr_cli.reading.rows_out import MARK, Writer, columns_of, writer
from rlcorr_cli.reading.values import Losses
from rlcorr_cli.reading.whole_rows import OriginalRows

PART = re.compile(r"part-\d{5,}(_\d{5,})?\.(parquet|arrow)")
"""Names of a directory's files."""
SAVED = ".hf"
"""What the name of a directory ends in that `datasets.load_from_disk` is to open."""
STATE, INFO = "state.json", "dataset_info.json"
"""The files of such a directory that are no parts: which parts it has, and what the dataset is."""
SEAL = "_rlcorr.json"
"""The file beside parts that workers wrote, which comes last: a directory that has it is whole.  It holds what the
metadata of the last part holds where one process writes them all, and the parts."""


@frozen
class OutputFile:
    """A file of a directory."""

    name: str
    rows: int
    n_bytes: int


def seal(metadata: str, parts: Sequence[OutputFile]) -> bytes:
    """What SEAL holds.  metadata: a JSON object about all of them."""
    rows_of = [{"name": part.name, "rows": part.rows} for part in parts]
    return f"{json.dumps({**json.loads(metadata), 'parts': rows_of}, indent=1)}\n".encode()


def _state(metadata: str, parts: Sequence[OutputFile]) -> bytes:
    """What STATE holds.  metadata: as of `seal`.  Source: Dataset.save_to_disk of Hugging Face datasets."""
    import hashlib

    digest = hashlib.sha256(seal(metadata, parts)).hexdigest()
    state = {
        "_data_files": [{"filename": part.name} for part in parts],
        "_fingerprint": digest[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
        MARK: json.loads(metadata),
    }
    return f"{json.dumps(state, indent=1)}\n".encode()


def nothing_left(path: Path) -> DataError:
    """The error where a plan rejects every row."""
    return DataError(f"Nothing is left to write to {path}.", "Loosen the plan, or use ⟦rejected keep⟧.")


SHARED = "Put it on shared storage, which every node sees, or into an object store."


class _Parts(ABC):
    """Rows in order, cut over files of at most `rows_per_file` rows, or all in one; a context, at whose end a file that
    is still being written is discarded.

    about: the metadata of files that are full before the end is known.
    """

    def __init__(self, rows_per_file: int | None, about: str) -> None:
        self.written: list[OutputFile] = []
        self._rows_per_file, self._about = rows_per_file, about
        self._part: tuple[Writer, PartFile] | None = None
        self._in_part = 0

    @abstractmethod
    def begun(self, number: int) -> tuple[Writer, PartFile]:
        """The file of a number."""

    @abstractmethod
    def write_error(self, error: OSError) -> OutputError:
        """The error of what the system refused."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._part is not None:
            part, file = self._part
            part.abandon()
            file.discard()

    @property
    def n_bytes(self) -> int:
        """What has been written so far."""
        return sum(part.n_bytes for part in self.written) + (self._part[1].n_bytes if self._part else 0)

    def write(self, rows: OriginalRows) -> None:
        """Some more rows; a file that is full is followed by another."""
        first = 0
        with self._as_output_error():
            while first < len(rows):
                if self._in_part == self._rows_per_file:
                    self._close(self._about)
                self._part = self._part or self.begun(len(self.written))
                room = len(rows) if self._rows_per_file is None else self._rows_per_file - self._in_part
                last = min(len(rows), first + room)
                self._part[0].write(rows.part(first, last))
                self._in_part += last - first
                first = last

    def _close(self, metadata: str) -> None:
        """Have the file that is being written under its name, if there is one."""
        if self._part is not None:
            part, file = self._part
            part.close(metadata)
            self.written.append(OutputFile(file.name, self._in_part, file.commit()))
            self._part, self._in_part = None, 0

    @contextmanager
    def _as_output_error(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise self.write_error(error) from error


class Output(_Parts):
    """A dataset, one file or a directory of parts; a context, at whose end it is finished or abandoned.

    rows, n_bytes: what has been written.  done: the share of the input that it stands for, as its user says.  losses:
    what its form could not hold.
    """

    def __init__(
        self,
        staging: Outputs,
        destination: Destination,
        rows_per_file: int,
        about: str,
        *,
        columns: pa.Schema | None = None,
        untouched: bool = False,
        sealed: bool = False,
    ) -> None:
        """about: the metadata of parts that are full before the end is known.  columns: as of `Dump.table_columns`.
        untouched: whether NaN stays NaN, which not every reader of JSON lines knows.  sealed: whether a directory gets
        a SEAL."""
        super().__init__(rows_per_file if destination.directory else None, about)
        self.destination = destination
        self.rows = 0
        self.done = 0.0
        self.losses = Losses()
        self._columns = columns
        self._first: pa.Schema | None = None
        self._losses = None if untouched else self.losses
        self._staging = staging
        self._temporary: Path | None = None
        self._sealed = sealed and destination.directory

    def write(self, rows: OriginalRows) -> None:
        """Rows in order, cut over parts where the output is a directory."""
        if self.destination.directory and self._first is None and len(rows):  # all parts are one table
            self._first = columns_of(rows, self._columns)
        super().write(rows)
        self.rows += len(rows)

    def finish(self, metadata: str) -> None:
        """Have all of it on the disk, for `Outputs.publish` to give it its name."""
        if not self.rows:
            raise nothing_left(self.destination.path)
        with self._as_output_error():
            self._close(metadata)
            assert self._temporary is not None
            if is_saved(self.destination):
                about = {"description": "", "citation": "", "homepage": "", "license": "", MARK: ""}
                write_file(self._temporary, INFO, f"{json.dumps(about, indent=1)}\n".encode())
                write_file(self._temporary, STATE, _state(metadata, self.written))
            elif self._sealed:
                write_file(self._temporary, SEAL, seal(metadata, self.written))

    def finish_or_remove(self, metadata: str) -> None:
        """As `finish`; where no row came, none is to be there: an older output is not this run's."""
        if self.rows:
            self.finish(metadata)
        else:
            self._staging.remove(self.destination)

    def begun(self, number: int) -> tuple[Writer, PartFile]:
        """The file of a number, under the temporary name of all of it."""
        path = self._temporary = self._temporary or self._staging.add(self.destination)
        if self.destination.directory:
            path.mkdir(exist_ok=number > 0)
            path /= f"part-{number:05d}{suffix(self.destination.path)}"
        file = PartFile(path.parent, path.name, shared=False)
        return writer(suffix(self.destination.path), file.file, self._losses, self._columns, first=self._first), file

    def write_error(self, error: OSError) -> OutputError:
        """Where a disk is full, how much there was to write."""
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            return self.destination.write_error(error)
        written = self.n_bytes / 1e6
        needed = f", of about {written / self.done:,.1f} MB needed" if self.done else ""
        reason = f"{error.strerror} after {written:,.1f} MB{needed}"
        hint = f"Free some space, or name another place with {self.destination.option}."
        return OutputError(f"Cannot write {self.destination.path}: {reason}.", hint)


@frozen(kw_only=True)
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

    def write_error(self, error: OSError) -> OutputError:
        """The error of a part that could not be written."""
        if is_remote(self.directory):
            try:
                with store_of(self.directory):
                    raise error
            except OutputError as refusal:
                return refusal
        if isinstance(error, FileNotFoundError):
            reason = f"{os.uname().nodename}, where a part is written, does not see {self.directory.parent}"
            return OutputError(f"Cannot write {self.path}: {reason}.", SHARED)
        return Destination(path=self.path, option=self.option).write_error(error)


class ShardParts(_Parts):
    """The parts of one shard, in a worker; a context, at whose end what is not finished is discarded."""

    def __init__(self, place: PartsPlace, shard: int) -> None:
        super().__init__(place.rows_per_file, place.about)
        self._place, self._shard = place, shard

    def finish(self) -> tuple[OutputFile, ...]:
        """Have all under their names; none where no row came."""
        with self._as_output_error():
            self._close(self._place.about)
        return tuple(self.written)

    def begun(self, number: int) -> tuple[Writer, PartFile]:
        """The file of a number."""
        place = self._place
        file = PartFile(place.directory, place.name(self._shard, number))
        return writer(".parquet", file.file, None, place.columns, first=place.first), file

    def write_error(self, error: OSError) -> OutputError:
        """As of its place."""
        return self._place.write_error(error)


class PartsOutput:
    """The driver's side of such a directory: what its workers wrote, and its end.

    rows, n_bytes: what has been written.  losses: none, as of any Parquet.  place: for workers.
    """

    def __init__(
        self,
        staging: Outputs,
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
            directory=staging.shared_directory(destination),
            digits=max(5, len(str(n_shards - 1))),
            rows_per_file=rows_per_file,
            about=about,
            columns=columns,
            first=first,
        )
        self._staging = staging
        self._parts: list[OutputFile] = []

    def add(self, parts: Sequence[OutputFile]) -> None:
        """What one shard became."""
        self._parts += parts
        self.rows += sum(part.rows for part in parts)
        self.n_bytes += sum(part.n_bytes for part in parts)

    def finish(self, metadata: str) -> None:
        """Have all of it where `Outputs.publish` gives it its name, and SEAL last."""
        path, directory = self.destination.path, self.place.directory
        if not self.rows:
            raise nothing_left(path)
        try:
            missing = self._staging.complete_directory(self.destination, directory, {part.name for part in self._parts})
            if missing:
                reason = f"{missing[0]} was written, and is not in {directory.parent} of {os.uname().nodename}"
                raise OutputError(f"Cannot write {path}: {reason}.", SHARED)
            self._staging.finish_directory(directory, SEAL, seal(metadata, self._parts))
        except OSError as error:
            raise self.place.write_error(error) from error

    def finish_or_remove(self, metadata: str) -> None:
        """As `finish`; where no row came, none is to be there: an older output is not this run's."""
        if self.rows:
            self.finish(metadata)
        else:
            self._staging.withdraw(self.place.directory)
            self._staging.remove(self.destination)


def dataset(path: Path, option: str, overwrite: bool | None) -> Destination:
    """Where a dataset goes, if the name tells a form."""
    is_file = path.name.endswith(WRITTEN)
    if path.suffix and path.suffix != SAVED and not is_file and not os.path.isdir(path):
        forms = f"Name a {', '.join(WRITTEN)} file, a directory, or a directory {SAVED} for datasets.load_from_disk."
        raise UsageError(f"{path}: unknown form of output.", forms)
    return Destination(path=path, option=option, directory=not is_file, overwrite=overwrite, is_own=_is_own)


def _is_own(name: str, opened: Callable[[], BinaryIO]) -> bool:
    """Whether a run wrote a file of a directory: parts tell in their metadata who did.

    No file beside them does where one process writes them, because there are readers of such directories that take
    every file for data.
    """
    if not (name in (SEAL, STATE, INFO) or PART.fullmatch(name)):
        return False
    try:
        with opened() as file:
            if name in (SEAL, STATE, INFO):
                content = json.loads(file.read())
                keys = {"version", "plan", "parts"} if name == SEAL else {MARK}
                return isinstance(content, dict) and keys <= content.keys()
            if name.endswith(".arrow"):
                return MARK.encode() in (pa.ipc.open_stream(file).schema.metadata or {})
            return MARK.encode() in (pq.read_metadata(file).metadata or {})
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return False


def is_table(destination: Destination) -> bool:
    """Whether its rows all have the same columns."""
    return suffix(destination.path) in TABLES


def suffix(path: Path) -> str:
    """The form that a name asks for: a directory holds Parquet, one that is SAVED Arrow."""
    if path.name.endswith(SAVED):
        return ".arrow"
    return next((written for written in WRITTEN if path.name.endswith(written)), ".parquet")


def is_saved(destination: Destination) -> bool:
    """Whether it is a directory as `Dataset.save_to_disk` makes it."""
    return destination.directory and destination.path.name.endswith(SAVED)
