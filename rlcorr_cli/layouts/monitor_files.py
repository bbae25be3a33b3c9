"""Which files are prime-rl's file monitor's, and which of them belong together: by where they lie, and how they begin.

Loads nothing heavy, because a file is asked for whether it is one before it is read.
"""

import os
import re
from collections.abc import Sequence

from rlcorr_cli.files import filesystem
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.places import Uri, scheme

SEALED = ".zst"
STREAM = re.compile(r"stream(?:\.jsonl|/(?P<chunk>\d{1,9})\.jsonl(?:\.zst)?)")
ANNOTATIONS = re.compile(r"annotations/(?P<kind>trainer|orch)(?:\.jsonl|/(?P<chunk>\d{1,9})\.jsonl(?:\.zst)?)")
STARTS = {"stream": rb'\s*\{"id":', "trainer": rb'\s*\{"version":', "orch": rb'\s*\{"version":'}
"""What the first record of each stream begins with."""
ZSTD = re.escape(b"\x28\xb5\x2f\xfd")


@frozen
class MonitorFile:
    """A file of a monitor.  folder: of its run's traces.  stream: 'stream', 'trainer' or 'orch'."""

    path: str
    folder: str
    stream: str
    chunk: int


def monitor_file(path: str) -> MonitorFile | None:
    """What a file is by its name and folders; None of a file that lies elsewhere."""
    full = path if scheme(path) else os.path.abspath(path)
    parts = re.split(r"[\\/]", full)
    for depth in (1, 2, 3):
        name = "/".join(parts[-depth:])
        match = STREAM.fullmatch(name) or ANNOTATIONS.fullmatch(name)
        if match:
            kind = match.groupdict().get("kind") or "stream"
            folder = "/".join(parts[:-depth])
            if len(re.split(r"[\\/]", path)) > depth:  # as it was named, where that names the folder
                folder = path[: len(path) - len(name) - 1] or "/"
            if isinstance(path, Uri):
                folder = path.beside(folder)
            return MonitorFile(path, folder, kind, int(match["chunk"] or 0))
    return None


def recognise(start: FileStart) -> str | None:
    """By its place, and by how its first record begins; a file that waits for its first record has none."""
    file = monitor_file(start.path)
    if file is None:
        return None
    begins, right = start.first_bytes, ZSTD if start.path.endswith(SEALED) else STARTS[file.stream]
    if begins and not re.match(right, begins):
        return None
    return "its place in the folder of prime-rl's file monitor"


def units(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The streams of each run, in the order of their chunks: of what was sampled, then of what was learnt of it.

    A chunk that is being sealed is there twice; its plain file is the one that may still grow.
    """
    runs: dict[str, dict[tuple[str, int], MonitorFile]] = {}
    for file in filter(None, map(monitor_file, paths)):
        chunks = runs.setdefault(file.folder, {})
        key = file.stream, file.chunk
        if key not in chunks or chunks[key].path.endswith(SEALED):
            chunks[key] = file
    order = ("stream", "orch", "trainer")
    return [
        tuple(chunks[key].path for key in sorted(chunks, key=lambda key: (order.index(key[0]), key[1])))
        for chunks in runs.values()
    ]


def beside(paths: Sequence[str]) -> list[str]:
    """What is read with these files: the annotations of their runs, and their stream where none of it is named."""
    runs: dict[str, set[str]] = {}
    for file in filter(None, map(monitor_file, paths)):
        runs.setdefault(file.folder, set()).add(file.stream)
    others: list[str] = []
    for folder, named in runs.items():
        of_run = (monitor_file(path) for path in filesystem(folder).below(folder))
        others += [file.path for file in of_run if file and (file.stream != "stream" or "stream" not in named)]
    return [path for path in others if path not in set(paths)]
