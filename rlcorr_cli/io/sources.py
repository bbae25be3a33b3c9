"""From what a person typed to the files that are read, each with its format and size."""

import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlcorr_cli.batch import Stamp
from rlcorr_cli.errors import DataError, UsageError, nearest, shortened
from rlcorr_cli.io.formats import CONTAINERS, NAMES, STREAMED, by_magic, by_suffix, container
from rlcorr_cli.io.searching import Hits, matching, within
from rlcorr_cli.places import STDIN


@dataclass(frozen=True)
class Source:
    """One input; path is '-' and n_bytes 0 for standard input.  stamp: which state of the file was found."""

    path: str
    format: str
    n_bytes: int
    stamp: Stamp | None = None


def check_unchanged(path: str, stamp: Stamp | None) -> None:
    """A DataError if the file is not what was found: rows would be lost, or be others, and nobody would know."""
    if stamp is None:
        return
    try:
        now = _stamp(os.stat(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    if now != stamp:
        raise DataError(f"{path} was changed while it was read.", "Wait until it is written, or read a copy of it.")


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def find(paths: Sequence[str], format: str = "auto") -> list[Source]:
    """As `find_noting`, without the notes."""
    return find_noting(paths, format)[0]


def find_noting(paths: Sequence[str], format: str = "auto") -> tuple[list[Source], tuple[str, ...]]:
    """Files in the order named, and notes on files that are not read; directories and globs expand in sorted order.

    format: 'auto' goes by suffix, then by the first bytes; a container's name holds for every file.
    A file reached twice through different arguments would be counted twice, so that is a UsageError.
    """
    if format not in ("auto", *NAMES):
        raise UsageError(f"Unknown format '{format}'.", f"Try one of: auto, {', '.join(NAMES)}.")
    if not paths:
        raise UsageError("No dump is named.", f"Name a file, a directory, a glob, or - for {STREAMED.title} on stdin.")
    sources: dict[str, Source] = {}
    notes: list[str] = []
    for typed in paths:
        hits = _expanded(typed)
        notes += hits.notes
        for path in hits.paths:
            same = path if path == STDIN else os.path.realpath(path)
            if same in sources:
                raise UsageError(f"{path} is named twice.", "Name each file once; a directory includes its files.")
            sources[same] = _source(path, format)
    return list(sources.values()), tuple(notes)


def files(paths: Sequence[str]) -> Iterator[str]:
    """The files that a dump's names stand for, unopened."""
    for typed in paths:
        yield from _expanded(typed).paths


def _expanded(typed: str) -> Hits:
    if "\0" in typed:
        raise UsageError(f"{shortened(typed)} is not a path: it holds a NUL.", "Name a file, a directory or a glob.")
    if not typed:
        raise UsageError("The name of the dump is empty: is a variable unset?", "Name a file, a directory or a glob.")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", typed):
        raise UsageError(f"{typed}: object stores are not read in this version.", "Download it first, then name it.")
    if typed == STDIN:
        return Hits([typed])
    if os.path.isdir(typed):
        return within(typed)
    if not os.path.lexists(typed) and glob.has_magic(typed):
        return matching(typed)
    return Hits([typed])


def _source(path: str, format: str) -> Source:
    if path == STDIN:
        if format not in ("auto", STREAMED.name):
            what = f"Standard input is read as {STREAMED.title}, not as {container(format).title}."
            raise UsageError(what, "Save it to a file first.")
        return Source(STDIN, STREAMED.name, 0)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path} is not a regular file.", f"Pipe {STREAMED.title} to rlcorr and name the dump -.")
        with open(path, "rb") as file:
            head = file.read(4)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if not head:
        raise DataError(f"{path} is empty (0 bytes).", "Delete it, or write it again: it may be half-written.")
    return Source(path, _format(path, head, format), status.st_size, _stamp(status))


def _format(path: str, head: bytes, format: str) -> str:
    if format != "auto":
        return format
    name = by_suffix(path) or by_magic(head)
    if name is None:
        options = " or ".join(f"--format {name}" for name in NAMES)
        titles = " nor ".join(container.title for container in CONTAINERS)
        raise DataError(f"{path} is neither {titles}.", f"Say which with {options}.")
    return name


def _missing(path: str) -> DataError:
    folder = Path(path).parent
    names: list[str] = []
    with suppress(OSError):  # no directory, or one that may not be listed
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    if names:
        return DataError(f"{path}: no such file.", f"Similar names in {folder}: {nearest(Path(path).name, names)}.")
    return DataError(
        f"{path}: no such file.",
        f"No file is to be seen in {folder}." if os.path.isdir(folder) else f"No directory {folder} either.",
    )


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.")
