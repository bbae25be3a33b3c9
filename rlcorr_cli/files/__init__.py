"""Where files lie: on a disk or in an object store, with the same few questions of both.

`filesystem(path)` gives the file system of a path or URI; containers, sources and searches ask it and never `os`.
"""

from rlcorr_cli.files.disk import DISK, FileSystem, Status
from rlcorr_cli.files.services import located, output_path
from rlcorr_cli.places import Uri, scheme

__all__ = ["FileSystem", "Status", "filesystem", "located", "output_path"]


def filesystem(path: str) -> FileSystem:
    """The file system that a path or URI is of; pyarrow's part for stores is loaded with the first URI."""
    if not scheme(path):
        return DISK
    from rlcorr_cli.files.stores import store

    return store(path if isinstance(path, Uri) else Uri(path))
