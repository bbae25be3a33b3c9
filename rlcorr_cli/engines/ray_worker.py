"""What runs on a node of a Ray cluster: one task, which does the work of one shard.

A node need not have rlcorr: the driver sends this package along.  What the package itself needs must be there, and is
imported only within the task, so that a node that lacks it can say so.
"""

import os
import pickle
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlcorr_cli.frozen import frozen

if TYPE_CHECKING:
    from rlcorr_cli.places import Stamp
    from rlcorr_cli.reading.batch import Shard


@frozen(kw_only=True)
class Reading:
    """What all tasks of one reading of a dump share, and what is sent once.

    work: packed.  needed: the packages that it imports.  directory: the driver's, which relative paths start from.
    variables: what the driver's stores go by; None for those to be unset.
    """

    work: bytes
    needed: tuple[str, ...]
    directory: str
    variables: Mapping[str, str | None]


@frozen(kw_only=True)
class NodeView:
    """What a node tells beside the outcomes of a shard.

    node: its name.  lacks: packages that are not there, and then there are no outcomes.  unseen: files of the shard
    that are not there, unlike: that are there as another state than the driver found.
    """

    node: str
    lacks: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()


def packed_shard(shard: "Shard") -> bytes:
    """A shard as a task takes it: to unpack it takes packages that a node may lack."""
    return pickle.dumps(shard, protocol=pickle.HIGHEST_PROTOCOL)


def run_shard(reading: Reading, packed: bytes) -> tuple[NodeView, list[bytes]]:
    """How the node sees a shard, and the shard's outcomes, as `remote.outcomes` makes them."""
    lacks = tuple(name for name in reading.needed if find_spec(name) is None)
    if lacks:
        return NodeView(node=_node(), lacks=lacks), []
    from rlcorr_cli.engines.processes import outcomes

    with _as_driver(reading):
        shard, view = _as_seen_here(pickle.loads(packed))
        return view, list(outcomes(reading.work, shard))


@contextmanager
def _as_driver(reading: Reading) -> Generator[None]:
    """In the driver's directory, where the node has it, and with its variables.  A process runs one task at a time."""
    directory, variables = os.getcwd(), os.environ.copy()
    for name, value in reading.variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        if os.path.isdir(reading.directory):
            os.chdir(reading.directory)
        yield
    finally:
        os.chdir(directory)
        for name in reading.variables:
            os.environ.pop(name, None)
        os.environ.update(variables)


def _as_seen_here(shard: "Shard") -> tuple["Shard", NodeView]:
    """The shard with the stamps that its files have on this node, as far as they are the files that the driver found.

    Size and time of writing tell that: a shared file system has a number of its own on every machine, and some of them
    other inodes, too.
    """
    from rlcorr_cli.errors import DataError
    from rlcorr_cli.files.disk import DISK
    from rlcorr_cli.places import scheme

    unseen: list[str] = []
    unlike: list[str] = []

    def stamp_here(path: str, stamp: "Stamp | None") -> "Stamp | None":
        if stamp is None or scheme(path):
            return stamp
        try:
            here = DISK.stamp(path)
        except DataError:
            unseen.append(path)
            return stamp
        if here[2:] == stamp[2:]:
            return here
        unlike.append(path)
        return stamp

    companions = tuple((path, stamp_here(path, stamp)) for path, stamp in shard.companions)
    shard = replace(shard, stamp=stamp_here(shard.path, shard.stamp), companions=companions)
    return shard, NodeView(node=_node(), unseen=tuple(unseen), unlike=tuple(unlike))


def _node() -> str:
    import ray

    return f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
