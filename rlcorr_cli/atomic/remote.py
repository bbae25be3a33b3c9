"""Outputs in object stores: written on the disk first, uploaded whole under a hidden name, then given their own.

So an object appears whole or not at all, and an older one stays until then.  What a store cannot do is to refuse a name
that somebody else has taken a moment before: that is looked at last thing before.  Nor can it name several objects at
once: those of a directory come one by one, when all are uploaded, and the last of them says that it is whole.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rlcorr_cli.errors import DataError, OutputError
from rlcorr_cli.places import Uri, UriPath

if TYPE_CHECKING:
    from rlcorr_cli.files.stores import Store

AT_ONCE = 16
"""Objects that are named at a time."""


def is_remote(path: Path) -> bool:
    """Whether an output goes to a store."""
    return isinstance(path, UriPath)


def folder_here() -> Path:
    """Where on the disk what is meant for a store is written."""
    import tempfile

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


def name_all(hidden: Path, directory: Path) -> None:
    """The same of a directory's files; an older directory's go.

    Only the last file of a directory tells of its end.  So an older one's last goes first, and the new one's comes
    last: what was killed in between has none.  A failure takes what was named of a new directory away again.
    """
    with _said():
        store, uri = _store(directory)
        older, names = _seal_last(store.names(uri)), _seal_last(store.names(str(hidden)))
        try:
            store.delete_each(uri, older[-1:])
            _each(lambda name: store.copy(f"{hidden}/{name}", f"{uri}/{name}"), names[:-1])
            store.delete_each(uri, [name for name in older[:-1] if name not in names[:-1]])
            store.copy(f"{hidden}/{names[-1]}", f"{uri}/{names[-1]}")
        except BaseException:
            if not older:
                with suppress(DataError):
                    store.delete_each(uri, names)
            raise
        store.delete_directory(str(hidden))


def _seal_last(names: Iterable[str]) -> list[str]:
    """Names in order, what is no data at the end: it tells of the others."""
    return sorted(names, key=lambda name: (name.startswith("_"), name))


def _each(act: Callable[[str], None], names: Iterable[str]) -> None:
    """Do it with each, several at a time, as nearly all of it is waiting; whatever fails, none is under way after."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rlcorr-name") as pool:
        try:
            for done in [pool.submit(act, name) for name in names]:
                done.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def names_in(directory: Path) -> list[str]:
    """All names in a directory, sorted; a folder's ends in a /."""
    with _said():
        store, uri = _store(directory)
        return store.names(uri)


def size_and_time(path: Path) -> tuple[int, float]:
    """Bytes of an object, or of all in a directory, and when the newest was written."""
    with _said():
        store, uri = _store(path)
        return store.size_and_time(uri)


def opened(path: Path) -> BinaryIO:
    """An object's content."""
    with _said():
        store, uri = _store(path)
        return store.open(uri)


def created(path: Path) -> BinaryIO:
    """A new object, in the place of what has its name, which appears when it is closed."""
    with _said():
        store, uri = _store(path)
        return store.create(uri)


def refusal(path: Path, error: OSError) -> OutputError | None:
    """What is wrong with the store, where an error came from it."""
    store, uri = _store(path)
    explained = store.explained(uri, error)
    return None if explained is None else OutputError(explained.message, explained.hint)


def remove(path: Path, directory: bool = False) -> None:
    """Take away what has this name."""
    with _said():
        store, uri = _store(path)
        if directory:
            store.delete_directory(uri)
        else:
            store.delete(uri)


def discard(hidden: Path, directory: bool = False) -> None:
    """The same of what nobody misses, and nobody can be told."""
    with suppress(OutputError):
        remove(hidden, directory)


def _store(path: Path) -> "tuple[Store, Uri]":
    from rlcorr_cli.files.stores import store

    uri = Uri(str(path))
    return store(uri), uri


@contextmanager
def _said() -> Generator[None]:
    """What a store refuses is an output that could not be written."""
    try:
        yield
    except DataError as error:
        raise OutputError(error.message, error.hint) from error
