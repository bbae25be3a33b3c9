"""What a worker process runs: it is sent work and shards over a socket, and sends results back (see `processes`)."""

import os
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NoReturn

from rlcorr_cli.batch import Shard
from rlcorr_cli.engines import remote
from rlcorr_cli.engines.processes import END

DRIVER_GONE = 1


def main(fd: int, prepare: str) -> NoReturn:
    """Run shards until the driver is gone.  fd: of the socket; prepare: 'module:function', called first."""
    connection = Connection(fd)
    orders: SimpleQueue[bytes | Shard] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    remote.prepare(prepare)
    payload = b""
    while True:
        order = orders.get()
        if isinstance(order, bytes):
            payload = order
            continue
        try:
            for outcome in remote.outcomes(payload, order):
                connection.send_bytes(outcome)
            connection.send_bytes(END)
        except OSError:
            os._exit(DRIVER_GONE)


def _listen(connection: Connection, orders: "SimpleQueue[bytes | Shard]") -> NoReturn:
    """Hand on what comes, and end the process, whatever it is at, when nothing can come any more."""
    while True:
        try:
            orders.put(connection.recv())
        except (EOFError, OSError):
            os._exit(DRIVER_GONE)
