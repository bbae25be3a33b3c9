"""Files and directories that appear whole or not at all, and never in the place of what is read.

Datasets, reports and pictures are written under a hidden name beside their target, flushed to the disk and then
renamed: whoever reads the target sees the old content or the new, and a failure leaves nothing behind.  The hidden
name is random, since process ids are the same in two containers that share a disk.
"""

import glob
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path

from rlcorr_cli.errors import OutputError, UsageError
from rlcorr_cli.places import STDIN


def check_target(path: Path, inputs: Iterable[str], *, directory: bool = False, option: str = "-o") -> None:
    """Refuse, before a long scan, a place that cannot be written to, or that is part of the dump.  option: its name."""
    if _is_read(path, inputs):
        raise UsageError(f"{path} is part of the dump.", f"Name another place with {option}.")
    try:
        if path.is_dir() != directory and path.exists():
            raise OutputError(
                f"{path} is {'not a' if directory else 'a'} directory.", f"Name another place with {option}."
            )
        if path.exists() and not (path.is_dir() or path.is_file()):
            raise OutputError(f"{path} is not a regular file.", f"Name another place with {option}.")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no directory {path.parent}.", "Make it first.")
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", f"Name another place with {option}.") from None


def temporary_name(path: Path) -> Path:
    """A hidden name beside the target, another one at each call, no longer than a name may be; nothing has it yet."""
    return path.with_name(f".rlcorr.{secrets.token_hex(8)}.part")


def publish(temporary: Path, path: Path, *, replace: bool = True) -> None:
    """Give a finished file or directory its name.

    replace: whether it may take the place of what has the name; else that is an OutputError, and stays.
    """
    try:
        if replace:
            _replace(temporary, path)
        elif temporary.is_dir():
            os.rename(temporary, path)  # which takes the place of an empty directory at most
        else:
            _name(temporary, path)
    except OSError as error:
        if not replace and os.path.lexists(path):
            raise OutputError(
                f"{path} was written by another run meanwhile.",
                "Add --overwrite to replace it, or name another.",
            ) from error
        raise
    sync(path.parent)


def _replace(temporary: Path, path: Path) -> None:
    # A rename replaces a file, and not a directory that holds something: an old directory steps aside first.
    if not temporary.is_dir() or not path.exists():
        os.replace(temporary, path)
        return
    old = temporary.with_suffix(".old")
    os.rename(path, old)
    try:
        os.rename(temporary, path)
    except OSError:
        os.rename(old, path)
        raise
    shutil.rmtree(old)


def _name(temporary: Path, path: Path) -> None:
    """A file's name, where nothing has it."""
    # A rename would replace what came meanwhile; a second link never does.
    try:
        os.link(temporary, path)
    except OSError:
        if os.path.lexists(path):
            raise
        os.rename(temporary, path)  # some file systems have no links
    else:
        os.unlink(temporary)


def discard(temporary: Path) -> None:
    """Leave nothing behind of what was not published."""
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file or a directory on the disk, not only on its way."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, option: str = "-o") -> None:
    """Write a small file."""
    temporary = temporary_name(path)
    try:
        with temporary.open("xb") as file:
            file.write(content)
        sync(temporary)
        publish(temporary, path)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", f"Name another place with {option}.") from None
    finally:
        discard(temporary)


def make_directory(path: Path) -> None:
    """A directory to write into."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot make the directory {path}: {error.strerror}.", "Name another with -o.") from None


def check_apart(outputs: Sequence[tuple[str, Path | None]]) -> None:
    """Refuse two outputs of one run in the same place.  outputs: options and what they name, if anything."""
    places = [(option, path) for option, path in outputs if path is not None]
    for (option, path), (other, second) in combinations(places, 2):
        if same_place(path, second):
            both = f"{option} and {other}" if option != other else f"{option} twice"
            raise UsageError(f"{second} cannot be both outputs, {both}.", f"Name another {other}.")


def same_place(first: Path, second: Path) -> bool:
    """Whether two names lead to one file or directory, however they are spelled, or to one within the other."""
    one, other = Path(os.path.realpath(first)), Path(os.path.realpath(second))
    if one.is_relative_to(other) or other.is_relative_to(one):
        return True
    with suppress(OSError):
        return one.samefile(other)
    return False


def _is_read(path: Path, inputs: Iterable[str]) -> bool:
    """Whether the path is a file that is read, or a directory that holds one; what is wrong with an input is said where
    it is read."""
    with suppress(OSError):
        target, is_directory, exists = Path(os.path.realpath(path)), path.is_dir(), path.exists()
        for file in _files(inputs):
            if Path(os.path.realpath(file)) == target or (exists and file.exists() and file.samefile(path)):
                return True
            if is_directory and Path(os.path.realpath(file)).is_relative_to(target):
                return True
    return False


def _files(inputs: Iterable[str]) -> Iterator[Path]:
    """Files as they are named, and those of directories and globs."""
    for name in inputs:
        if name == STDIN:
            continue
        for source in map(Path, [name] if os.path.lexists(name) else glob.glob(name)):
            yield from source.iterdir() if source.is_dir() else (source,)
