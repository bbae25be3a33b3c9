"""CONTAINERS: how a dump's bytes may be laid out, by what a file is known to be so, and where its reader is.

A new container is one module, with a Reader, and one row here: sources, options and messages word themselves from the
rows.  Loads nothing heavy, because `--help` names these.
"""

from collections.abc import Collection
from dataclasses import replace

from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.table import NAMES as LAYOUT_NAMES, SUFFIXES as LAYOUT_SUFFIXES

GZIP = (b"\x1f\x8b",)
ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))
"""How compressed files begin; pzstd puts a frame first that readers skip, of sixteen magic numbers."""


TABLES, LINES = (".parquet", ".arrow"), (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""Suffixes of files that are written: those whose rows all have the same columns, and the others."""


@frozen(kw_only=True)
class Container:
    """One format.

    title: as messages name it.  suffixes: of file names.  magic: what the first bytes may be, blanks before them left
    out.  reader: as 'module.NAME' of this package.  written: suffixes of the files that its rows are written to.
    fixed_columns: whether all rows of a file have the same columns, so that one without them cannot hold other rows.
    streams: whether it is what standard input holds; one row says so.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...]
    reader: str
    written: tuple[str, ...]
    fixed_columns: bool = True
    streams: bool = False


CONTAINERS: tuple[Container, ...] = (
    Container(
        name="parquet",
        title="Parquet",
        suffixes=(".parquet", ".pq", ".parq"),
        magic=(b"PAR1",),
        reader="parquet.READER",
        written=TABLES,
    ),
    Container(
        name="jsonl",
        title="JSON lines",
        suffixes=(".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"),
        magic=(b"{", *GZIP, *ZSTD),
        reader="jsonl.READER",
        written=LINES,
        fixed_columns=False,
        streams=True,
    ),
    Container(
        name="arrow",
        title="Arrow IPC",
        suffixes=(".arrow", ".feather", ".ipc"),
        magic=(b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"),
        reader="arrow.READER",
        written=TABLES,
    ),
)
NAMES = (*(container.name for container in CONTAINERS), *LAYOUT_NAMES)
"""What `--format` takes: a container's name, or that of a framework's layout."""
SUFFIXES = tuple(
    dict.fromkeys((*(suffix for container in CONTAINERS for suffix in container.suffixes), *LAYOUT_SUFFIXES))
)
"""Of the files that a directory is searched for; what a framework's suffix stands for, the file's contents tell."""
WRITTEN = tuple(dict.fromkeys(suffix for container in CONTAINERS for suffix in container.written))
(STREAMED,) = (container for container in CONTAINERS if container.streams)


NATIVE = Container(
    name="native",
    title="a framework's own file",
    suffixes=LAYOUT_SUFFIXES,
    magic=(),
    reader="native.READER",
    written=(*TABLES, *LINES),
)
"""Files whose layout says what they hold: their rows are canonical ones, and written as such."""


MEMORY = Container(
    name="table", title="a table in memory", suffixes=(), magic=(), reader="arrow.IN_MEMORY", written=TABLES
)
"""What a function was given in the place of a path."""


def container(name: str) -> Container:
    """The row of that name; of a layout's name NATIVE, as that layout."""
    row = next((row for row in (*CONTAINERS, MEMORY) if row.name == name), None)
    return row or replace(NATIVE, name=name)


def is_searched(path: str) -> bool:
    """Whether a directory is searched for files of that name."""
    return path.lower().endswith(SUFFIXES)


def by_suffix(path: str) -> str | None:
    """The container that a file's name tells."""
    name = path.lower()
    return next((container.name for container in CONTAINERS if name.endswith(container.suffixes)), None)


def by_magic(head: bytes) -> str | None:
    """The container that a file's first bytes tell."""
    start = head.lstrip()
    return next((container.name for container in CONTAINERS if start.startswith(container.magic)), None)


def holding(names: Collection[str]) -> tuple[str, ...]:
    """Suffixes of the files that hold rows of all these containers as they are.

    Rows of fixed columns can be written among rows that may differ, and not the other way round.
    """
    present = [container(name) for name in names]
    return min(present, key=lambda row: row.fixed_columns).written
