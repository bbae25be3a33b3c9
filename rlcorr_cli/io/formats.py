"""CONTAINERS: how a dump's bytes may be laid out, and by what a file is known to be so.

Loads nothing heavy, because options and messages name these; `readers.READERS` holds how each is read.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Container:
    """suffixes: of file names.  magic: what the first bytes may be, blanks before them left out."""

    name: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...]


CONTAINERS: tuple[Container, ...] = (
    Container("parquet", (".parquet",), (b"PAR1",)),
    Container("jsonl", (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"), (b"{", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")),
)
NAMES = tuple(container.name for container in CONTAINERS)
SUFFIXES = tuple(suffix for container in CONTAINERS for suffix in container.suffixes)


def by_suffix(path: str) -> str | None:
    """The container that a file's name tells."""
    name = path.lower()
    return next((container.name for container in CONTAINERS if name.endswith(container.suffixes)), None)


def by_magic(head: bytes) -> str | None:
    """The container that a file's first bytes tell."""
    start = head.lstrip()
    return next((container.name for container in CONTAINERS if start.startswith(container.magic)), None)
