"""Files and directories that appear whole or not at all, and never in the place of what is read.

Datasets, reports and pictures are written under a hidden name beside their target, flushed to the disk and then
renamed: whoever reads the target sees the old content or the new, and a failure leaves nothing behind.
"""

import glob
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

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
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no directory {path.parent}.", "Make it first.")
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", f"Name another place with {option}.") from None


def temporary_name(path: Path) -> Path:
    """A hidden name beside the target, no longer than a name may be; two targets of one process have two."""
    return path.with_name(f".rlcorr.{os.getpid()}.{crc32(os.fsencode(path.name)):08x}.part")


def publish(temporary: Path, path: Path) -> None:
    """Give a finished file or directory its name, in the place of what had it."""
    # A rename replaces a file, and not a directory that holds something: an old directory steps aside first.
    if temporary.is_dir() and path.exists():
        old = temporary.with_suffix(".old")
        os.replace(path, old)
        os.replace(temporary, path)
        shutil.rmtree(old)
    else:
        os.replace(temporary, path)
    sync(path.parent)


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
        temporary.write_bytes(content)
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
