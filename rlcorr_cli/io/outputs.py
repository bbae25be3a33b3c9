"""Datasets on their way to disk: whole or not at all.

`atomic` says how; a failure or an interrupt removes what was written.
"""

import errno
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from rlcorr_cli.atomic import check_target, discard, publish, sync, temporary_name
from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.io.corrected import Rows
from rlcorr_cli.io.formats import WRITTEN
from rlcorr_cli.io.writers import Writer, writer
from rlcorr_cli.places import STDIN

PART = re.compile(rf"part-\d{{5,}}({'|'.join(map(re.escape, WRITTEN))})")
"""Names of a directory's files."""


class Output:
    """A dataset at `path`: a file by its suffix, else a directory of parts.

    rows, n_bytes: what has been written.  done: the share of the input that it stands for, as its user says.
    """

    def __init__(self, path: Path, temporary: Path, rows_per_file: int, about: str, overwrite: bool) -> None:
        """Use `create`."""
        self._about = about
        self._overwrite = overwrite
        self.path = path
        self.rows = 0
        self.done = 0.0
        self._temporary = temporary
        self._rows_per_file = None if is_file(path) else rows_per_file
        self._suffix = next((s for s in WRITTEN if path.name.endswith(s)), ".parquet")
        self._part: tuple[Writer, BinaryIO] | None = None
        self._parts: list[Path] = []
        self._in_part = 0
        self._closed_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes on the disk so far."""
        return self._closed_bytes + (self._parts[-1].stat().st_size if self._part else 0)

    def write(self, rows: Rows) -> None:
        """Rows in order, cut over parts where the output is a directory."""
        first = 0
        while first < len(rows):
            room = len(rows) - first
            if self._rows_per_file is not None:
                if self._in_part == self._rows_per_file:
                    self._close(self._about)
                room = min(room, self._rows_per_file - self._in_part)
            self._open().write(rows[first : first + room] if isinstance(rows, list) else rows.slice(first, room))
            self._in_part += room
            self.rows += room
            first += room

    def finish(self, metadata: str) -> None:
        """Flush to the disk and give the output its name."""
        if self._part is None and not self._parts:
            raise DataError(f"Nothing is left to write to {self.path}.", "Loosen the plan, or use --rejected keep.")
        self._close(metadata)
        if self.path.is_dir():
            _check_own(self.path)  # again: what came while this ran would go with the old parts
        publish(self._temporary, self.path, replace=self._overwrite)

    def finish_or_remove(self, metadata: str) -> None:
        """As `finish`; where no row came, an output of the same name that may be replaced goes, which is not ours."""
        if self.rows:
            self.finish(metadata)
        elif self._overwrite and self.path.is_dir():
            _check_own(self.path)
            discard(self.path)
        elif self._overwrite:
            discard(self.path)

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._part is not None:
            part, file = self._part
            part.abandon()
            with suppress(OSError):
                file.close()
        discard(self._temporary)

    def _open(self) -> Writer:
        if self._part is None:
            name = self._temporary
            if self._rows_per_file is not None:
                if not self._parts:
                    self._temporary.mkdir()
                name = self._temporary / f"part-{len(self._parts):05d}{self._suffix}"
            file = name.open("xb")
            self._parts.append(name)
            self._part = writer(self._suffix, file), file
            self._in_part = 0
        return self._part[0]

    def _close(self, metadata: str) -> None:
        if self._part is not None:
            part, file = self._part
            part.close(metadata)
            file.close()
            sync(self._parts[-1])
            self._closed_bytes += self._parts[-1].stat().st_size
            self._part = None


@contextmanager
def create(path: Path, rows_per_file: int, about: str, *, overwrite: bool = False) -> Generator[Output]:
    """An Output that is discarded unless `finish` was reached; failures to write are OutputErrors.

    about: the metadata of parts that are full before the end is known.  overwrite: whether it may replace another.
    """
    path = Path(os.path.realpath(path)) if path.is_dir() else path  # a link to a directory stays one
    output = Output(path, temporary_name(path), rows_per_file, about, overwrite)
    try:
        yield output
    except OSError as error:
        if isinstance(error, pa.ArrowException) and error.errno is None:
            raise
        raise _unwritten(output, error) from error
    finally:
        output.discard()


def check_dataset(path: Path, inputs: list[str], overwrite: bool) -> None:
    """Refuse what must not be written, before the long scan."""
    if str(path) == STDIN:
        raise UsageError("A dataset is not written to standard output.", "Name a file, or a directory.")
    if path.suffix and not is_file(path) and not path.is_dir():
        raise UsageError(f"{path}: unknown form of output.", f"Name a {', '.join(WRITTEN)} file, or a directory.")
    check_target(path, inputs, directory=not is_file(path))
    if not os.path.lexists(path):
        return
    if path.is_dir():
        _check_own(path)
        if not any(path.iterdir()):
            return
    if not overwrite:
        raise OutputError(f"{path} exists.", "Add --overwrite to replace it, or name another output.")


def _check_own(directory: Path) -> None:
    """Refuse a directory that holds anything but parts as `Output` writes them: all of it would be replaced."""
    for path in directory.iterdir():
        if not PART.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            raise OutputError(f"{directory} holds other files ({path.name}).", "Name a new or empty directory.")


def is_file(path: Path) -> bool:
    """Whether the name asks for one file."""
    return path.name.endswith(WRITTEN)


def _unwritten(output: Output, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        written = output.n_bytes / 1e6
        needed = f", of about {written / output.done:,.1f} MB needed" if output.done else ""
        return OutputError(
            f"Cannot write {output.path}: {reason} after {written:,.1f} MB{needed}.",
            "Free some space, or name another output with -o.",
        )
    return OutputError(f"Cannot write {output.path}: {reason}.", "Name another output with -o.")
