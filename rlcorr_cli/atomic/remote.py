"""Outputs in object stores: written on the disk first, uploaded whole under a hidden name, then given their own.

So an object appears whole or not at all, and an older one stays until then.  What a store cannot do is to refuse a name
that somebody else has taken a moment before: that is looked at last thing before.
"""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.errors import DataError, OutputError
from rlcorr_cli.places import Uri, UriPath

if TYPE_CHECKING:
    from rlcorr_cli.storage.store import Store


def is_remote(path: Path) -> bool:
    """Whether an output goes to a store."""
    return isinstance(path, UriPath)


def folder_here() -> Path:
    """Where on the disk what is meant for a store is written."""
    return Path(tempfile.gettempdir())


def kind_at(path: Path) -> str:
    """What has this name, in words; empty where nothing has it."""
    with _said():
        store, uri = _store(path)
        store.check_place(uri)
        if store.is_directory(uri):
            return "a directory"
        return "a regular file" if store.is_there(uri) else ""


def upload(local: Path, hidden: Path) -> None:
    """Have a file of the disk in the store, under a name that no search finds."""
    with _said():
        store, uri = _store(hidden)
        store.put(local, uri)


def name(hidden: Path, path: Path) -> None:
    """Give it its own name, in the place of what has it."""
    with _said():
        store, uri = _store(path)
        store.name(str(hidden), uri)


def remove(path: Path) -> None:
    """Take away what has this name."""
    with _said():
        store, uri = _store(path)
        store.delete(uri)


def discard(hidden: Path) -> None:
    """The same of what nobody misses, and nobody can be told."""
    with suppress(OutputError):
        remove(hidden)


def _store(path: Path) -> "tuple[Store, Uri]":
    from rlcorr_cli.storage.store import store

    uri = Uri(str(path))
    return store(uri), uri


@contextmanager
def _said() -> Generator[None]:
    """What a store refuses is an output that could not be written."""
    try:
        yield
    except DataError as error:
        raise OutputError(error.message, error.hint) from error
