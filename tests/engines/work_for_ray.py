"""Work that tests send to Ray's workers, which import this module."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlcorr_cli.reading.batch import Shard


def node_of(shard: Shard) -> str:
    """Where it runs."""
    import ray

    return ray.get_runtime_context().get_node_id()


@dataclass(frozen=True)
class OnTwoNodes:
    """Work that gives the node it runs on; the first two shards wait, up to two minutes, until each of two nodes has
    begun one, or a node that is warm would do all of it."""

    folder: Path

    def __call__(self, shard: Shard) -> str:
        node = node_of(shard)
        (self.folder / node).touch()
        deadline = time.monotonic() + 120
        while shard.index < 2 and len(list(self.folder.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        return node


@dataclass(frozen=True)
class Killed:
    """Work that gives two results a shard, and whose process is killed between them, `times` times in all."""

    folder: Path
    shard: int
    times: int

    def __call__(self, shard: Shard) -> Iterator[str]:
        yield f"{shard.index} first"
        if shard.index == self.shard and (n := len(list(self.folder.iterdir()))) < self.times:
            (self.folder / str(n)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield f"{shard.index} second"


@dataclass(frozen=True)
class StaysOn:
    """Work that never ends on one node, where it leaves a file for each shard that was begun; elsewhere it waits for
    that, up to two minutes, or nodes that are warm would do all of it."""

    node: str
    folder: Path

    def __call__(self, shard: Shard) -> int:
        if node_of(shard) == self.node:
            (self.folder / str(shard.index)).touch()
            while True:
                time.sleep(1)
        deadline = time.monotonic() + 120
        while not any(self.folder.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return shard.index


@dataclass(frozen=True)
class Begun:
    """Work that leaves a file for each shard that was begun."""

    folder: Path

    def __call__(self, shard: Shard) -> int:
        (self.folder / str(shard.index)).touch()
        return shard.index


@dataclass(frozen=True)
class Stays:
    """Work that is done at once on the first shard; on the others it leaves its process's number and never ends."""

    folder: Path

    def __call__(self, shard: Shard) -> int:
        while shard.index > 0:
            (self.folder / str(os.getpid())).touch()
            time.sleep(1)
        return shard.index


@dataclass(frozen=True)
class Raising:
    """Work that fails on one shard."""

    error: Exception

    def __call__(self, shard: Shard) -> int:
        if shard.index == 2:
            raise self.error
        return shard.index
