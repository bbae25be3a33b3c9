"""How a finished file or directory gets its name: where nothing has it, or in exchange with what has it.

Linux has renameat2, which gives a name only where there is none (RENAME_NOREPLACE) or exchanges two (RENAME_EXCHANGE),
each in one step.  Not every file system knows it: NFS answers EINVAL.  There link() names a file, since it never
replaces one, and an older directory steps aside for the moment between two renames.
"""

import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

NOREPLACE, EXCHANGE = 1, 2
AT_FDCWD = -100
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What a file system, a kernel or a sandbox without renameat2 answers; of another cause, the other way fails, too."""

PART, ASIDE = ".part", ".old"
"""Suffixes of a temporary, and of an older directory that stepped aside."""


def name_new(temporary: Path, path: Path) -> None:
    """Give a name that nothing has; FileExistsError where something has it."""
    try:
        if temporary.is_dir():
            # rename() puts a directory in the place of nothing or of an empty directory, never of anything else.
            os.rename(temporary, path)
        elif not _renameat2(temporary, path, NOREPLACE):
            _link(temporary, path)
    except OSError as error:
        if error.errno in TAKEN and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        raise


def exchange(temporary: Path, path: Path) -> None:
    """Give the name of an older file or directory, which gets the temporary's or, a file without renameat2, is gone."""
    if _renameat2(temporary, path, EXCHANGE):
        return
    if not temporary.is_dir():
        os.replace(temporary, path)
        return
    aside = temporary.with_suffix(ASIDE)
    os.rename(path, aside)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(aside, path)
        raise
    os.rename(aside, temporary)


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.rename(temporary, path)  # some file systems have no links: what comes in this very moment is replaced
    else:
        os.unlink(temporary)


def _renameat2(old: Path, new: Path, flag: int) -> bool:
    """Whether it was done; False where there is no such call."""
    call = _call()
    if call is None:
        return False
    if call(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flag) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(new))


@cache
def _call() -> Callable[..., int] | None:
    """libc's renameat2, where it has one."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call
