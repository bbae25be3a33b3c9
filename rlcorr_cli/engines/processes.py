"""Worker processes of this machine: each has an interpreter, and so an interpreter lock, of its own.

A thread of the driver stands for each process: it sends it a shard and the work over a socket, and hands on what comes
back, so that to the loop (`in_order`) it is a thread like any other, and a worker whose results nobody takes waits in
its own process.

A worker is a new interpreter that is started for this: it is neither forked, since pyarrow and torch have threads that
a fork would break, nor does it import the program that called rlcorr, as multiprocessing's own workers do, which would
run a script without a main guard a second time.  Who holds the other end of the socket is all there is to know of one
another: a worker whose driver is gone reads the end of it and ends, and a driver whose worker is gone (killed, out of
memory) reads the end of it and has that shard, and no other, run again by another.

How work is sent, and how its results or its failure come back (`packed`, `outcomes`, `unpacked`), is the same for tasks
on Ray.  What goes over the way is pickled: it is made by this program, and travels between its own processes only.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn, TypeVar

from rlcorr_cli.engines import interrupt
from rlcorr_cli.engines.in_order import Engine, by_threads, check
from rlcorr_cli.errors import DataError, RlcorrError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Shard

R = TypeVar("R")
ENDING_SECONDS = 5.0
"""What a process whose connection is closed has to end by itself."""
END = b""
"""What a worker sends after a shard's last result."""
DRIVER_GONE = 1
_START = "import sys; sys.path[:] = {path!r}; from rlcorr_cli.engines.processes import worker; worker({fd})"


MOST_RUNS = 3
"""How often a shard is begun whose worker is lost: a second loss may be chance, a third says that it is the shard."""


class WorkerFault(Exception):
    """A fault of ours in a worker, with the traceback that it had there."""


class WorkerTraceback(Exception):
    """The traceback that an error had in its worker: what `--debug` shows below the driver's own."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@frozen
class Failure:
    """What ended the work on a shard.  error: where a user is to see it; None of a fault of ours."""

    error: RlcorrError | MemoryError | OSError | None
    traceback: str


def packed(work: Callable[[Shard], Iterator[Any]], prepare: Callable[[], None] | None = None) -> bytes:
    """Work as it is sent.  prepare: called in the worker before it."""
    return pickle.dumps((prepare, work), protocol=pickle.HIGHEST_PROTOCOL)


def outcomes(payload: bytes, shard: Shard) -> Iterator[bytes]:
    """Run packed work on a shard: its results and, where it ends early, its Failure, each as it is sent back.

    The work is unpacked for every shard, so that nothing which one shard has met is known to another.
    """
    try:
        prepare, work = pickle.loads(payload)
        if prepare is not None:
            prepare()
        for value in work(shard):
            yield pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        seen = error if isinstance(error, RlcorrError | MemoryError | OSError) else None
        failure = Failure(seen, "".join(traceback.format_exception(error)))
        yield pickle.dumps(failure, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(outcome: bytes) -> Any:
    """A result that a worker sent; its Failure is raised, in the driver."""
    found = pickle.loads(outcome)
    if not isinstance(found, Failure):
        return found
    if found.error is None:
        raise WorkerFault(f"in a worker:\n{found.traceback}")
    raise found.error from WorkerTraceback(found.traceback)


def lost(shard: Shard, how: str) -> DataError:
    """The error of a shard whose workers did not survive it.  how: what became of the last one."""
    return DataError(
        f"{shard.path}: {MOST_RUNS} workers were lost while they read it; the last one {how}.",
        "If memory ran out, use fewer ⟦workers⟧ or a smaller ⟦batch_tokens⟧; ⟦engine threads⟧ shows what happens.",
    )


class ProcessEngine(Engine):
    """An Engine over worker processes, which are started when work comes and kept until `close`.

    prepare: called in a worker before each shard.  environments: variables of the workers, taken in turn, such as the
    GPU that each is to see.
    """

    def __init__(
        self, workers: int, prepare: Callable[[], None] | None = None, environments: Sequence[Mapping[str, str]] = ({},)
    ) -> None:
        super().__init__(workers)
        self.workers = workers
        self._prepare, self._environments = prepare, environments
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._at_work: list[_Worker] = []

    @property
    def named(self) -> str:
        """'2 processes'."""
        return "1 process" if self.workers == 1 else f"{self.workers} processes"

    def run(
        self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]], *, ahead: int
    ) -> Generator[Iterator[R]]:
        """For each shard in order an iterator of its results; workers are ended that are still at work when nobody
        takes more."""
        mine: set[_Worker] = set()

        def results(shard: Shard) -> Iterator[R]:
            # Packed when its shard's turn has come, with what the shards before it made known.
            return self._results(packed(work, self._prepare), shard, mine)

        try:
            yield from by_threads(shards, results, self.workers, ahead=ahead)
        finally:
            self._end(mine)

    def close(self) -> None:
        """End all workers."""
        self._end({*self._at_work, *self._idle})

    def _results(self, payload: bytes, shard: Shard, mine: "set[_Worker]") -> Iterator[Any]:
        """A shard's results, in a thread of their run.  mine: the workers that are at this run's shards."""
        n_results, fate = 0, ""
        for _ in range(MOST_RUNS):
            with self._lock:
                check()  # once a run has ended its workers, none begins
                worker = self._idle.pop() if self._idle else self._new()
                self._at_work.append(worker)
                mine.add(worker)
            # What is here already of a run that was lost comes again, and is passed over.
            for n, message in enumerate(worker.outcomes(payload, shard), 1):
                if message == END:
                    with self._lock:
                        check()  # or it is ended
                        self._at_work.remove(worker)
                        mine.remove(worker)
                        self._idle.append(worker)
                    return
                if n > n_results:
                    n_results = n
                    yield unpacked(message)
            fate = worker.fate()
            with self._lock:
                check()
                self._at_work.remove(worker)
                mine.remove(worker)
        raise lost(shard, fate)

    def _new(self) -> "_Worker":
        """A worker with the first environment that no other has."""
        others = [worker.environment for worker in (*self._at_work, *self._idle)]
        free = min(range(len(self._environments)), key=others.count)
        return _Worker(free, self._environments[free])

    def _end(self, workers: "set[_Worker]") -> None:
        with interrupt.without_resignalling(), self._lock:
            for worker in list(workers):
                worker.end()
            self._at_work = [worker for worker in self._at_work if worker not in workers]
            self._idle = [worker for worker in self._idle if worker not in workers]


class _Worker:
    """A worker process, as the driver has it.  environment: the number of its variables."""

    def __init__(self, environment: int, variables: Mapping[str, str]) -> None:
        self.environment = environment
        here, there = socket.socketpair()
        with there:
            # In a session of its own, so that a Ctrl-C in the terminal reaches the driver alone.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path, fd=there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                env={**os.environ, **variables},
                start_new_session=True,
            )
        self._connection = Connection(here.detach())

    def outcomes(self, payload: bytes, shard: Shard) -> Iterator[bytes]:
        """What it sends of a shard; END is the last, unless it is gone before."""
        try:
            self._connection.send((payload, shard))
            while True:
                message = self._connection.recv_bytes()
                yield message
        except (EOFError, OSError):
            return

    def end(self) -> None:
        """End it at once: it only reads and computes, and what it writes has a temporary name."""
        self._process.kill()
        self._process.wait()

    def fate(self) -> str:
        """How it ended, where it did by itself."""
        try:
            status = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            return "closed its connection"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"


def worker(fd: int) -> NoReturn:
    """What a worker process runs: shards, until the driver is gone.  fd: of the socket."""
    connection = Connection(fd)
    orders: SimpleQueue[tuple[bytes, Shard]] = SimpleQueue()

    def listen() -> NoReturn:
        """Hand on what comes, and end the process, whatever it is at, when nothing can come any more."""
        while True:
            try:
                orders.put(connection.recv())
            except (EOFError, OSError):
                os._exit(DRIVER_GONE)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        payload, shard = orders.get()
        try:
            for outcome in outcomes(payload, shard):
                connection.send_bytes(outcome)
            connection.send_bytes(END)
        except OSError:
            os._exit(DRIVER_GONE)
