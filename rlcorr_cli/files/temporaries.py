"""Names of what is still being written, and what is left of runs that were killed.

A temporary's name tells its maker: the host and the process.  So a later run can tell litter, whose process is gone,
from what another run is writing now.
"""

import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

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
