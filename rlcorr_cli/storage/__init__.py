"""Where files lie: on a disk or in an object store, with the same few questions of both.

`filesystem(path)` gives the file system of a path or URI; containers, sources and searches ask it and never `os`.
"""

from rlcorr_cli.places import Uri, scheme
from rlcorr_cli.storage.disk import DISK
from rlcorr_cli.storage.protocol import FileSystem, Status
from rlcorr_cli.storage.uris import located, output_path

__all__ = ["FileSystem", "Status", "filesystem", "located", "output_path"]


def filesystem(path: str) -> FileSystem:
    """The file system that a path or URI is of; pyarrow's part for stores is loaded with the first URI."""
    if not scheme(path):
        return DISK
    from rlcorr_cli.storage.store import store

    return store(path if isinstance(path, Uri) else Uri(path))
