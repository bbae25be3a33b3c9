"""A Ray cluster of three nodes on this machine, for tests: each node is a raylet with workers of its own."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

MEMORY = 80 << 20
"""Of each node's object store; Ray takes no less than 75 MiB."""


@contextmanager
def ray_cluster() -> Generator[Any]:
    """A head, which runs nothing, and two nodes of a core each."""
    from ray.cluster_utils import Cluster

    folder = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: sockets lie below
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            add_node(cluster, wait=False)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
        del os.environ["RAY_TMPDIR"]
        shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster: Any, *, wait: bool = True) -> Any:
    """One more node."""
    return cluster.add_node(wait=wait, num_cpus=1, object_store_memory=MEMORY)
