"""Where a run writes, compared before it starts with all that it reads and with each other.

`check_run` refuses an output in the place of what is read, of another output, or of what another tool wrote.

Paths are compared by what they lead to, not as they are spelled: device and inode, and of what is not there yet those
of its directory and its name.

What is still being written has a temporary's name, which tells its maker: the host and the process.  So a later run can
tell litter of runs that were killed, whose process is gone, from what another run is writing now (`sweep`).
"""

import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import STDIN, Uri, UriPath, scheme

if TYPE_CHECKING:
    from rlcorr_cli.files.stores import Store

DUMP = "DUMP"
"""What a dump's files are named by, as options name other files."""
LINKED_DIRECTORY = "a link to a directory"

Identity = tuple[int | str, ...]
"""Device and inode, then the names below them that are not there yet; of a URI itself."""

KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISREG, "a regular file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
STREAMS = ((1, "Standard output"), (2, "Standard error"))


def is_remote(path: Path) -> bool:
    """Whether an output goes to a store."""
    return isinstance(path, UriPath)


@contextmanager
def store_of(path: Path) -> "Generator[tuple[Store, Uri]]":
    """The store of an output, and its URI there; what the store refuses is an output that could not be written."""
    from rlcorr_cli.files.stores import store

    uri = Uri(str(path))
    try:
        place = store(uri)
        try:
            yield place, uri
        except FileExistsError:
            raise
        except OSError as error:
            raise place.explained(uri, error) or error from error
    except DataError as error:
        raise OutputError(error.what, error.do) from error


def folder_here() -> Path:
    """Where on the disk what is meant for a store is written."""
    import tempfile

    return Path(tempfile.gettempdir())


def names_in(directory: Path) -> list[str]:
    """All names in a directory, sorted; in a store a folder's ends in a /."""
    if not is_remote(directory):
        return sorted(os.listdir(directory))
    with store_of(directory) as (store, uri):
        return store.names(uri)


@frozen(kw_only=True)
class Destination:
    """A file or directory to write.

    option: what it was named with.  overwrite: whether what an earlier run wrote there may be replaced; None where the
    command has no option for that, and it may not.  makes_parents: whether missing directories above it are made.
    is_own: of a file in a directory to be replaced, by its name and content, whether a run wrote it.
    """

    path: Path
    option: str = "⟦output⟧"
    directory: bool = False
    overwrite: bool | None = False
    makes_parents: bool = False
    is_own: Callable[[str, Callable[[], BinaryIO]], bool] = lambda name, opened: False

    @property
    def place(self) -> Path:
        """The path with its links followed: what a link to a file leads to is written, and the link stays."""
        return self.path if is_remote(self.path) else Path(os.path.realpath(self.path))

    @property
    def elsewhere(self) -> str:
        """The hint where nothing else helps."""
        return f"Name another place with {self.option}."

    def write_error(self, error: OSError) -> OutputError:
        """The error of something that the system refused."""
        return OutputError(f"Cannot write {self.path}: {error.strerror or error}.", self.elsewhere)

    def exists_error(self, reason: str) -> OutputError:
        """The error where there is an older output that must stay."""
        if self.overwrite is None:
            return OutputError(f"{self.path} {reason}.", f"Move it away, or name another file with {self.option}.")
        return OutputError(f"{self.path} {reason}.", "Add ⟦overwrite True⟧ to replace it, or name another output.")

    def refuse(self, place: Path) -> bool:
        """Refuse what is at `place` if it is not what this may replace.  Returns whether there is anything."""
        kind = kind_at(place)
        if not kind:
            return False
        wanted = "a directory" if self.directory else "a regular file"
        if kind == LINKED_DIRECTORY and self.directory:
            hint = f"Name the directory itself: {os.path.realpath(place)}."
            raise OutputError(f"{self.path} is a link to a directory, and a link is not replaced.", hint)
        if kind != wanted:
            raise OutputError(f"{self.path} is {kind}, not {wanted}.", self.elsewhere)
        if not self.directory:
            return True
        names = names_in(place)
        foreign = next((name for name in names if not self.holds_own(place, name)), None)
        if foreign is not None:
            raise self.foreign_error(foreign)
        return bool(names)

    def foreign_error(self, name: str) -> OutputError:
        """The error where a directory holds what no run wrote."""
        return OutputError(f"{self.path} holds other files ({name}).", "Name a new or empty directory.")

    def holds_own(self, directory: Path, name: str) -> bool:
        """Whether a run wrote the file of this name in a directory."""
        path = directory / name
        if is_remote(path):
            with store_of(path) as (store, uri):
                return self.is_own(name, lambda: store.open(uri))
        return path.is_file() and not path.is_symlink() and self.is_own(name, lambda: path.open("rb"))


def check_run(
    destinations: Sequence[Destination], reads: Iterable[tuple[str, str | os.PathLike[str]]] = ()
) -> tuple[str, ...]:
    """Refuse, before a long scan, a place that must not or cannot be written to.

    reads: options and the files that they name, DUMP for those of the dump.  What is wrong with them is said where they
    are read.  Returns notes on what killed runs had left beside the destinations, which is removed.
    """
    located: list[_Located] = []
    for each in destinations:
        try:
            located.append(_Located(each, _identity(each.path), _above(str(each.place))))
        except OSError as error:
            raise each.write_error(error) from None
    _refuse_one_place(located)
    _refuse_what_is_read(located, reads)
    in_stores = [note for destination in destinations for note in _swept_store(destination)]
    for destination in destinations:
        _refuse_place(destination)
    return (*sweep(_directory_there(destination.place) for destination in destinations), *in_stores)


@frozen
class _Located:
    """above: the identities of the destination and of all directories above it."""

    destination: Destination
    identity: Identity
    above: frozenset[Identity]


def _refuse_one_place(located: Sequence[_Located]) -> None:
    """Refuse two destinations in one place, or one within the other, or where a stream of this process goes."""
    for first, second in combinations(located, 2):
        if first.identity in second.above or second.identity in first.above:
            options = (first.destination.option, second.destination.option)
            both = f"{options[0]} twice" if options[0] == options[1] else " and ".join(options)
            path = second.destination.path
            raise UsageError(f"{path} cannot be both outputs, {both}.", f"Name another {options[1]}.")
    for number, stream in STREAMS:
        open_file = _open_file(number)
        for output in located:
            if output.identity == open_file:
                raise UsageError(f"{stream} goes to {output.destination.path}, too.", output.destination.elsewhere)


def _refuse_what_is_read(located: Sequence[_Located], reads: Iterable[tuple[str, str | os.PathLike[str]]]) -> None:
    """Refuse a destination that is a file that is read, or a directory that holds one."""
    by_identity = {output.identity: output.destination for output in located}
    directories = {
        identity
        for identity, destination in by_identity.items()
        if (destination.directory if is_remote(destination.place) else os.path.isdir(destination.place))
    }
    above: dict[str, frozenset[Identity]] = {}
    for option, path in reads if located else ():
        try:
            identity = _open_file(0) if (option, path) == (DUMP, STDIN) else _identity(path)
            folder = os.path.dirname(path)
            if directories and folder not in above:
                above[folder] = _above(folder if scheme(folder) else os.path.realpath(folder))
        except OSError:
            continue
        holding = directories & above.get(folder, frozenset())
        destination = by_identity.get(identity) or next((by_identity[hit] for hit in holding), None)
        if destination is not None:
            both = f"{destination.option} and {option} name the same file, {destination.path}."
            what = f"{destination.path} is part of the dump." if option == DUMP else both
            raise UsageError(what, destination.elsewhere)


def _refuse_place(destination: Destination) -> None:
    """Refuse where a directory is missing or closed, or where something is that must stay."""
    path, place = destination.path, destination.place
    if is_remote(path):
        if destination.refuse(path) and not destination.overwrite:
            raise destination.exists_error("exists")
        return
    try:
        above = _directory_there(place) if destination.makes_parents else place.parent
        kind = kind_at(above)
        if not kind:
            hint = f"Make it first, or name another place with {destination.option}."
            raise OutputError(f"{path}: there is no directory {path.parent}.", hint)
        if kind != "a directory":
            raise OutputError(f"{path}: {above} is {kind}, not a directory.", destination.elsewhere)
        if not os.access(above, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise OutputError(f"Cannot write {path}: {above} takes no new files.", destination.elsewhere)
        if destination.directory and _holds_current_directory(place):
            raise OutputError(f"{path} is the current directory, or holds it.", destination.elsewhere)
        if destination.refuse(path) and not destination.overwrite:
            raise destination.exists_error("exists")
    except OSError as error:
        raise destination.write_error(error) from None


def _swept_store(destination: Destination) -> Iterator[str]:
    """Remove what a killed run left in a store; a sentence on it.

    A folder that holds the marker of a process that is gone, and no file that says it is whole, goes with the marker.
    Beside a file nothing is left.
    """
    folder = destination.place
    if not is_remote(folder) or not destination.directory:
        return
    with store_of(folder) as (store, _):
        names = names_in(folder)

        def newest() -> float:
            return store.size_and_time(str(folder))[1]

        makers = {name: maker for name in names if (maker := NAME.fullmatch(name))}
        left = [name for name, maker in makers.items() if is_gone(maker["host"], int(maker["pid"]), newest)]
        own = [name for name in names if destination.holds_own(folder, name)] if left else []
        is_whole = any(name.startswith("_") for name in own)
        removed = left if is_whole else [*left, *own]
        n_bytes = sum(store.size_and_time(str(folder / name))[0] for name in removed)
        for name in removed:
            store.delete(str(folder / name))
        if removed and not is_whole:
            yield removed_note([folder / name for name in left], n_bytes)


def _directory_there(place: Path) -> Path:
    """The nearest directory above that is there, in which what is written has its temporary name."""
    if is_remote(place):
        return folder_here()
    return next(above for above in place.parents if os.path.lexists(above) or above == above.parent)


def _holds_current_directory(place: Path) -> bool:
    with suppress(OSError):  # it may be gone
        return _identity(place) in _above(os.path.realpath(os.getcwd()))
    return False


def kind_at(path: Path) -> str:
    """What has this name, in words; links to files count as what they lead to.  Empty where nothing has it."""
    if is_remote(path):
        with store_of(path) as (store, uri):
            is_folder = store.is_folder(uri)  # of a bucket that is not there, an object's own request says nothing
            return "a regular file" if store.is_file(uri) else "a directory" if is_folder else ""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            mode = os.stat(path).st_mode if os.path.exists(path) else 0
            if not mode or stat.S_ISDIR(mode):
                return LINKED_DIRECTORY if mode else "a link that leads nowhere"
    except FileNotFoundError:
        return ""
    return next((kind for is_kind, kind in KINDS if is_kind(mode)), "no regular file")


def _identity(path: str | os.PathLike[str]) -> Identity:
    """What a path leads to."""
    if scheme(str(path)):
        return (str(path),)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        real = os.path.realpath(path)
        return (*_identity(os.path.dirname(real)), os.path.basename(real))
    return status.st_dev, status.st_ino


def _above(real: str) -> frozenset[Identity]:
    """The identities of a path without links in it and of all directories above it."""
    found = [_identity(real)]
    while os.path.dirname(real) != real and not os.path.dirname(real).endswith(":/"):
        real = os.path.dirname(real)
        found.append(_identity(real))
    return frozenset(found)


def _open_file(number: int) -> Identity:
    """The regular file that a stream of this process is; nothing's identity where it is none."""
    try:
        status = os.fstat(number)
    except OSError:
        return ()
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else ()


PART, ASIDE = ".part", ".old"
"""Suffixes of a temporary, and of an older directory that stepped aside."""
LISTED = 3
OLD_SECONDS = 24 * 3600
"""How old what another host's process wrote must be to count as left behind: whether that runs cannot be asked here."""

NAME = re.compile(rf"\.rlcorr-(?P<host>[0-9a-f]{{8}})-(?P<pid>[1-9]\d{{0,9}})-[0-9a-f]{{16}}({PART}|{ASIDE})")
"""Of a temporary: who made it."""


def temporary_name(path: Path) -> Path:
    """A hidden name beside the target that nothing has, short whatever the target is called."""
    return path.with_name(f".rlcorr-{_host()}-{os.getpid()}-{os.urandom(8).hex()}{PART}")


def discard(temporary: Path) -> None:
    """Leave nothing behind of what has no other name."""
    if temporary.is_dir() and not temporary.is_symlink():
        import shutil

        shutil.rmtree(temporary, ignore_errors=True)
    else:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sweep(directories: Iterable[Path]) -> tuple[str, ...]:
    """Remove what killed runs left in the directories; sentences on it, none where there was nothing.

    An older output that had stepped aside is named and stays: it may be the only one.
    """
    litter = sorted(path for directory in set(directories) for path in _litter(directory))
    removed = [path for path in litter if path.suffix == PART]
    entries = (entry for path in removed for entry in (path, *path.rglob("*")))
    n_bytes = sum(entry.lstat().st_size for entry in entries if not entry.is_dir())
    for path in removed:
        discard(path)
    removed = [path for path in removed if not os.path.lexists(path)]
    aside = (
        f"{path} is an older output that a killed run had moved away; give it its name again, or delete it."
        for path in litter
        if path.suffix == ASIDE
    )
    return (*([removed_note(removed, n_bytes)] if removed else []), *aside)


def removed_note(removed: Sequence[Path], n_bytes: int) -> str:
    """A sentence on what killed runs had left."""
    names = ", ".join(path.name for path in removed[:LISTED]) + (", …" if len(removed) > LISTED else "")
    count = "1 unfinished output" if len(removed) == 1 else f"{len(removed):,} unfinished outputs"
    return f"Removed {count} that killed runs had left beside this one's ({n_bytes:,} bytes): {names}."


def _litter(directory: Path) -> Iterator[Path]:
    with suppress(OSError):  # a directory that cannot be listed can still be written to
        for name in os.listdir(directory):
            path = directory / name
            maker = NAME.fullmatch(name)
            with suppress(OSError):  # gone meanwhile
                if maker is not None and _is_left(path, maker["host"], int(maker["pid"])):
                    yield path


def _is_left(path: Path, host: str, pid: int) -> bool:
    """Whether whoever was writing this is gone."""
    mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return False
    # In a directory the newest part tells when it was last written to.
    return is_gone(host, pid, lambda: max(entry.lstat().st_mtime for entry in (path, *path.rglob("*"))))


def is_gone(host: str, pid: int, newest: Callable[[], float]) -> bool:
    """newest: asks when there was last written to what the process made."""
    return not _is_alive(pid) if host == _host() else time.time() - newest() > OLD_SECONDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    with suppress(OSError, IndexError):
        # One that was killed has a number until its parent asks for its status, which in a container may be never.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return True


@cache
def _host() -> str:
    """A few letters for where process numbers mean the same: a booted system, and a container within it.

    Hosts may share a name and containers a number, so it is the boot and the namespace of process numbers that count.
    """
    place = os.uname().nodename
    with suppress(OSError):
        place = f"{Path('/proc/sys/kernel/random/boot_id').read_text()} {os.stat('/proc/self/ns/pid').st_ino}"
    return f"{zlib.crc32(place.encode()):08x}"
