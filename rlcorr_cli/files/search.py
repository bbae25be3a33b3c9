"""Globs over a listing, folder by folder, so that no more is listed than can match; `**` lists all below.

And over a disk, whose folders may be links to each other.
"""

import glob
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

Listed = Callable[[str, bool], tuple[list[str], list[str]]]
"""The files and the folders in a folder; the second argument says whether those further below count."""


def literal_start(path: str) -> tuple[str, list[str]]:
    """The folder before the first part with a wildcard, and the parts from there."""
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first]), parts[first:]


def matches(folder: str, parts: Sequence[str], listed: Listed) -> tuple[set[str], set[str]]:
    """Files and folders below a folder that a glob's parts hit."""
    first, *rest = parts
    if first == "**":
        files, folders = listed(folder, True)
        return _fitting(files, folder, parts), _fitting(folders, folder, parts)
    files, folders = (_fitting(paths, folder, [first]) for paths in listed(folder, False))
    if not rest:
        return files, folders
    below = [matches(hit, rest, listed) for hit in sorted(folders)]
    return set[str]().union(*(files for files, _ in below)), set[str]().union(*(folders for _, folders in below))


def _fitting(paths: Iterable[str], folder: str, parts: Sequence[str]) -> set[str]:
    return {path for path in paths if _fits(path[len(folder) + 1 :].split("/"), parts)}


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """As `glob` has it: `**` is any number of folders, and a wildcard is not the dot of a hidden name."""
    if not parts:
        return not names
    first, *rest = parts
    if first == "**":
        n_visible = next((i for i, name in enumerate(names) if name.startswith(".")), len(names))
        return any(_fits(names[i:], rest or ["*"]) for i in range(n_visible + 1))
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatchcase(names[0], first) and _fits(names[1:], rest)


def on_disk(pattern: str) -> Iterator[str]:
    """Files and folders of this machine that a glob hits, as `glob` has it, links followed.

    A folder is looked into once for each part of the pattern, whatever its names: a link to a folder above it would
    else lead on and on.  Links come last, so that what lies in a folder is named by that folder's own name.
    """
    root = "/" if pattern.startswith("/") else ""
    pending, seen = deque([(root, pattern[len(root) :].split("/"))]), set[tuple[int, int, int]]()
    while pending:
        folder, parts = pending.popleft()
        first, *rest = parts
        try:
            status = os.stat(folder or ".")
            names = os.listdir(folder or ".") if glob.has_magic(first) else [first]
        except OSError:  # not there, no folder, or not to be listed
            continue
        state = status.st_dev, status.st_ino, len(parts)
        if state in seen:
            continue
        seen.add(state)
        recursive = first == "**"
        if recursive and rest:  # of no folder
            pending.appendleft((folder, rest))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name != first and not _fits([name], ["*" if recursive else first]):
                continue
            if not rest and os.path.lexists(path):
                yield path
            if (rest or recursive) and os.path.isdir(path):
                place = pending.append if os.path.islink(path) else pending.appendleft
                place((path, parts if recursive else rest))
