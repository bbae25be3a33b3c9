"""Files of a report or a picture: whole or not at all, and never in the place of what was read."""

import glob
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rlcorr_cli.errors import OutputError, UsageError


def check_target(path: Path, dumps: Iterable[str], directory: bool = False, option: str = "-o") -> None:
    """Refuse, before a long scan, a place that cannot be written to, or that is part of the dump.  option: its name."""
    try:
        if path.is_dir() != directory and path.exists():
            raise OutputError(
                f"{path} is {'no' if directory else 'a'} directory.", f"Name another place with {option}."
            )
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no directory {path.parent}.", "Make it first.")
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", f"Name another place with {option}.") from None
    if any(_holds(dump, path) for dump in dumps if dump != "-"):
        raise UsageError(f"{path} is part of the dump.", f"Name another place with {option}.")


def _holds(dump: str, path: Path) -> bool:
    """Whether a file, directory or glob is, or has, this file; what is wrong with a dump is said where it is read."""
    with suppress(OSError):
        for source in map(Path, (dump, *glob.glob(dump))):
            inside = source.iterdir() if source.is_dir() else (source,)
            if path.exists() and any(one.exists() and path.samefile(one) for one in inside):
                return True
    return False


def replace_file(path: Path, content: bytes, option: str = "-o") -> None:
    """Write a file under a temporary name, then give it its own."""
    temporary = path.with_name(f".rlcorr.{os.getpid()}.{abs(hash(path.name)):x}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", f"Name another place with {option}.") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """A directory to write into."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot make the directory {path}: {error.strerror}.", "Name another with -o.") from None
