"""Datasets on their way to disk, each the one output of a Staging; `writers` has the forms."""

import errno
import json
import os
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.atomic.joint import put
from rlcorr_cli.atomic.staging import sync
from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.io.formats import WRITTEN
from rlcorr_cli.io.original_rows import OriginalRows
from rlcorr_cli.io.plain_values import Losses
from rlcorr_cli.io.writers import MARK, Writer, columns_of, writer

PART = re.compile(r"part-\d{5,}(_\d{5,})?\.parquet")
"""Names of a directory's files."""
SEAL = "_rlcorr.json"
"""The file beside parts that workers wrote, which comes last: a directory that has it is whole.  It holds what the
metadata of the last part holds where one process writes them all, and the parts."""


@dataclass(frozen=True)
class Part:
    """A file of a directory."""

    name: str
    rows: int
    n_bytes: int


def seal(metadata: str, parts: Sequence[Part]) -> bytes:
    """What SEAL holds.  metadata: a JSON object about all of them."""
    listed = [{"name": part.name, "rows": part.rows} for part in parts]
    return f"{json.dumps({**json.loads(metadata), 'parts': listed}, indent=1)}\n".encode()


def nothing_left(path: Path) -> DataError:
    """The error where a plan rejects every row."""
    return DataError(f"Nothing is left to write to {path}.", "Loosen the plan, or use --rejected keep.")


class Output:
    """A dataset, one file or a directory of parts; a context, at whose end it is finished or abandoned.

    rows, n_bytes: what has been written.  done: the share of the input that it stands for, as its user says.  losses:
    what its form could not hold.
    """

    def __init__(
        self,
        staging: Staging,
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
        self.destination = destination
        self.rows = 0
        self.done = 0.0
        self.losses = Losses()
        self._columns = columns
        self._first: pa.Schema | None = None
        self._losses = None if untouched else self.losses
        self._staging = staging
        self._about = about
        self._rows_per_file = rows_per_file if destination.directory else None
        self._temporary: Path | None = None
        self._part: tuple[Writer, BinaryIO] | None = None
        self._sealed = sealed and destination.directory
        self._parts: list[Path] = []
        self._closed: list[Part] = []
        self._in_part = 0

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._part is not None:
            part, file = self._part
            part.abandon()
            with suppress(OSError):
                file.close()

    @property
    def n_bytes(self) -> int:
        """Bytes on the disk so far."""
        return sum(part.n_bytes for part in self._closed) + (self._parts[-1].stat().st_size if self._part else 0)

    def write(self, rows: OriginalRows) -> None:
        """Rows in order, cut over parts where the output is a directory."""
        with self._saying_how_much():
            self._write(rows)

    def finish(self, metadata: str) -> None:
        """Have all of it on the disk, for `Staging.publish` to give it its name."""
        if not self.rows:
            raise nothing_left(self.destination.path)
        with self._saying_how_much():
            self._close(metadata)
            if self._sealed:
                assert self._temporary is not None
                put(self._temporary, SEAL, seal(metadata, self._closed))

    def finish_or_remove(self, metadata: str) -> None:
        """As `finish`; where no row came, none is to be there: an older output is not this run's."""
        if self.rows:
            self.finish(metadata)
        else:
            self._staging.remove(self.destination)

    def _write(self, rows: OriginalRows) -> None:
        if self._rows_per_file is not None and self._first is None and len(rows):  # all parts are one table
            self._first = columns_of(rows, self._columns)
        first = 0
        while first < len(rows):
            room = len(rows) - first
            if self._rows_per_file is not None:
                if self._in_part == self._rows_per_file:
                    self._close(self._about)
                room = min(room, self._rows_per_file - self._in_part)
            self._open().write(rows.part(first, first + room))
            self._in_part += room
            self.rows += room
            first += room

    def _open(self) -> Writer:
        if self._part is None:
            name = self._new_part()
            file = name.open("xb")
            self._parts.append(name)
            part = writer(suffix(self.destination.path), file, self._losses, self._columns, first=self._first)
            self._part = part, file
        return self._part[0]

    def _new_part(self) -> Path:
        if self._temporary is None:
            self._temporary = self._staging.add(self.destination)
            if self.destination.directory:
                self._temporary.mkdir()
        return (
            self._temporary / f"part-{len(self._parts):05d}.parquet" if self.destination.directory else self._temporary
        )

    def _close(self, metadata: str) -> None:
        if self._part is not None:
            part, file = self._part
            part.close(metadata)
            file.close()
            sync(self._parts[-1])
            path = self._parts[-1]
            self._closed.append(Part(path.name, self._in_part, path.stat().st_size))
            self._part = None
            self._in_part = 0

    @contextmanager
    def _saying_how_much(self) -> Generator[None]:
        """Where a disk is full, the error says how much there was to write."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise self.destination.failed(error) from error
            written = self.n_bytes / 1e6
            needed = f", of about {written / self.done:,.1f} MB needed" if self.done else ""
            what = f"{error.strerror} after {written:,.1f} MB{needed}"
            hint = f"Free some space, or name another place with {self.destination.option}."
            raise OutputError(f"Cannot write {self.destination.path}: {what}.", hint) from error


def dataset(path: Path, option: str, overwrite: bool | None) -> Destination:
    """Where a dataset goes, if the name tells a form."""
    if path.suffix and not is_file(path) and not os.path.isdir(path):
        raise UsageError(f"{path}: unknown form of output.", f"Name a {', '.join(WRITTEN)} file, or a directory.")
    return Destination(path=path, option=option, directory=not is_file(path), overwrite=overwrite, is_own=_is_own)


def _is_own(name: str, opened: Callable[[], BinaryIO]) -> bool:
    """Whether a run wrote a file of a directory: parts tell in their metadata who did.

    No file beside them does where one process writes them, because there are readers of such directories that take
    every file for data.
    """
    if not (name == SEAL or PART.fullmatch(name)):
        return False
    try:
        with opened() as file:
            if name == SEAL:
                return _is_seal(file.read())
            return MARK.encode() in (pq.read_metadata(file).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _is_seal(content: bytes) -> bool:
    try:
        seal = json.loads(content)
    except ValueError:
        return False
    return isinstance(seal, dict) and {"version", "plan", "parts"} <= seal.keys()


def is_table(destination: Destination) -> bool:
    """Whether it is Parquet, whose rows all have the same columns."""
    return suffix(destination.path) == ".parquet"


def suffix(path: Path) -> str:
    """The form that a name asks for: a directory holds Parquet."""
    return next((written for written in WRITTEN if path.name.endswith(written)), ".parquet")


def is_file(path: Path) -> bool:
    """Whether the name asks for one file."""
    return path.name.endswith(WRITTEN)
