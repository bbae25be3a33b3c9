"""Where files lie, on a disk or in an object store, and how a run's outputs get there.

To read: `filesystem(path)` gives the file system of a path or URI (`disk`, `stores`), which containers, sources and
searches ask, and never `os`.  `services` knows the kinds of stores, `buckets` and `hub` ask them.
To write: `destinations` compares all paths of a run before it starts, and finds what killed runs left; `outputs` writes
under temporary names and gives the final ones together.
"""

from typing import TYPE_CHECKING

from rlcorr_cli.files.disk import DISK, Disk, Status
from rlcorr_cli.files.services import located, output_path
from rlcorr_cli.places import Uri, scheme

if TYPE_CHECKING:
    from rlcorr_cli.files.stores import Store

__all__ = ["Status", "filesystem", "located", "output_path"]


def filesystem(path: str) -> "Disk | Store":
    """The file system that a path or URI is of; the part for stores is loaded with the first URI."""
    if not scheme(path):
        return DISK
    from rlcorr_cli.files.stores import store

    return store(path if isinstance(path, Uri) else Uri(path))
