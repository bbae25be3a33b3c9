"""A Ray cluster of three nodes on this machine, for tests: each node is a raylet with workers of its own; and which of
these read a file."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MEMORY = 80 << 20
"""Of each node's object store; Ray takes no less than 75 MiB."""


@contextmanager
def ray_cluster() -> Generator[Any]:
    """A head, which runs nothing, and two nodes of a core each."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: sockets lie below
    # Workers that a node starts before it is asked are of no use to a run that sends its code along.  And Ray Data
    # starts 32 processes to read the footers of three files, each of which imports all of it.
    variables = {
        "RAY_TMPDIR": folder,
        "RAY_prestart_worker_first_driver": "0",
        "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1",
    }
    os.environ.update(variables)
    # The monitor makes a cluster grow, which this one never does.
    spared = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY, **spared})
    try:
        for _ in range(2):
            add_node(cluster, wait=False)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
        for name in variables:
            del os.environ[name]
        shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster: Any, *, wait: bool = True) -> Any:
    """One more node."""
    return cluster.add_node(wait=wait, num_cpus=1, object_store_memory=MEMORY)


def readers(path: Path) -> list[int]:
    """Workers of Ray that have a file open."""
    processes = (Path("/proc", pid) for pid in os.listdir("/proc") if pid.isdigit())
    return [int(process.name) for process in processes if _is_worker(process) and _has_open(process, path)]


def _is_worker(process: Path) -> bool:
    with suppress(OSError):
        return (process / "cmdline").read_bytes().startswith(b"ray::")
    return False


def _has_open(process: Path, path: Path) -> bool:
    with suppress(OSError):
        return any(os.readlink(link) == str(path) for link in (process / "fd").iterdir())
    return False
