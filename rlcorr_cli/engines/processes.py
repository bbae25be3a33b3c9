"""Worker processes of this machine: each has an interpreter, and so an interpreter lock, of its own.

A worker is a new interpreter that is started for this and is told its work over a socket: it is neither forked, since
torch and pyarrow have threads that a fork would break, nor does it import the program that called rlcorr, as
multiprocessing's own workers do, which would run a script without a main guard a second time.  Who holds the other end
of the socket is all there is to know of one another: a worker whose driver is gone reads the end of it and ends, and a
driver whose worker is gone (killed, out of memory) reads the end of it and has the shard run again by another.
"""

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from rlcorr_cli.batch import Shard
from rlcorr_cli.engines import interrupt
from rlcorr_cli.engines.engine import AHEAD, HELD
from rlcorr_cli.engines.remote import MOST_RUNS, One, lost, packed, unpacked
from rlcorr_cli.engines.threads import ThreadEngine

R = TypeVar("R")
LOOK_SECONDS = 0.5
"""How long the driver waits before it looks whether a signal came that was dropped."""
ENDING_SECONDS = 5.0
"""What a process whose connection is closed has to end by itself."""
END = b""
"""What a worker sends after a shard's last result."""
_START = "import sys; sys.path[:] = {path!r}; from rlcorr_cli.engines.worker import main; main({fd}, {prepare!r})"


@dataclass(eq=False, kw_only=True)
class _Task:
    """A shard that is under way.  held: results to be taken; received: those of the run before it, too, which a second
    run makes again; ended: whether all are here."""

    shard: Shard
    held: deque[bytes] = field(default_factory=deque[bytes])
    received: int = 0
    again: int = 0
    runs: int = 0
    ended: bool = False

    def begin(self) -> None:
        """A worker begins it, maybe anew: what it sends first is here already."""
        self.runs += 1
        self.again = self.received

    def receive(self, message: bytes) -> None:
        """One message of its worker."""
        if message == END:
            self.ended = True
        elif self.again:
            self.again -= 1
        else:
            self.held.append(message)
            self.received += 1


@dataclass(eq=False)
class _Worker:
    process: "subprocess.Popen[bytes]"
    connection: Connection
    task: _Task | None = None
    payload: bytes = b""

    def start(self, task: _Task, payload: bytes) -> None:
        """Have it begin a shard; a worker that is gone is noticed when its results are waited for."""
        self.task = task
        task.begin()
        try:
            if payload is not self.payload:
                self.connection.send(payload)
                self.payload = payload
            self.connection.send(task.shard)
        except OSError:
            pass

    def end(self) -> None:
        """End it at once: it only reads and computes, and what it writes has a temporary name."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def fate(self) -> str:
        """How it ended, where it did by itself."""
        self.connection.close()
        try:
            status = self.process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            return "closed its connection"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"


class ProcessEngine:
    """An Engine over worker processes, which are started when work comes and kept until `close`.

    prepare: 'module:function', called once in each worker before its first shard.  environments: variables of the
    workers, taken in turn, such as the GPU that each is to see.
    """

    shares_memory = False

    def __init__(self, workers: int, prepare: str = "", environments: Sequence[Mapping[str, str]] = ({},)) -> None:
        self.workers = workers
        self._prepare, self._environments = prepare, environments
        self._started: list[_Worker] = []

    @property
    def named(self) -> str:
        """'2 processes'."""
        return "1 process" if self.workers == 1 else f"{self.workers} processes"

    def sized(self, n_bytes: int) -> "ProcessEngine":
        """Itself."""
        return self

    def local(self, threads: int | None = None) -> ThreadEngine:
        """As many threads as there would be processes."""
        return ThreadEngine(threads or self.workers)

    def map(self, shards: Sequence[Shard], work: Callable[[Shard], R]) -> Iterator[R]:
        """One result per shard."""
        for results in self.stream(shards, One(work)):
            yield from results

    def stream(self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]]) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results, to be used up before the next is taken."""
        payload, coming = packed(work), iter(shards)
        tasks: deque[_Task] = deque()
        try:
            while True:
                while len(tasks) < AHEAD * self.workers and (shard := next(coming, None)) is not None:
                    tasks.append(_Task(shard=shard))
                if not tasks:
                    return
                yield self._results(tasks, payload)
                tasks.popleft()
        finally:
            self._drop(tasks)

    def start(self, n_workers: int) -> None:
        """Start workers before there is work, so that they are ready sooner."""
        while len(self._started) < min(n_workers, self.workers):
            self._started.append(self._new())

    def close(self) -> None:
        """End all workers."""
        with interrupt.undisturbed():
            for worker in self._started:
                worker.end()
            self._started.clear()

    def _results(self, tasks: deque[_Task], payload: bytes) -> Iterator[Any]:
        """The first task's results."""
        task = tasks[0]
        while True:
            while task.held:
                yield unpacked(task.held.popleft()).taken()
            if task.ended:
                return
            self._go_on(tasks, payload)

    def _go_on(self, tasks: deque[_Task], payload: bytes) -> None:
        """Give idle workers shards, wait for a message, and take those that came."""
        idle = deque(worker for worker in self._started if worker.task is None)
        under_way = {id(worker.task) for worker in self._started}
        for task in tasks:
            if task.ended or id(task) in under_way:
                continue
            if not idle and len(self._started) >= self.workers:
                break
            if not idle:
                self.start(len(self._started) + 1)
                idle.append(self._started[-1])
            idle.popleft().start(task, payload)
        for worker in self._ready(tasks[0]):
            self._receive(worker)

    def _ready(self, first: _Task) -> list[_Worker]:
        """Workers that have a message; one that is ahead and has HELD results here waits in its own process."""
        heard = {
            worker.connection: worker
            for worker in self._started
            if worker.task is not None and (worker.task is first or len(worker.task.held) < HELD)
        }
        interrupt.check()
        return [
            heard[connection] for connection in wait(list(heard), LOOK_SECONDS) if isinstance(connection, Connection)
        ]

    def _receive(self, worker: _Worker) -> None:
        """Take one message; the worker is gone where there is none."""
        task = worker.task
        assert task is not None
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            self._started.remove(worker)
            fate = worker.fate()
            if task.runs >= MOST_RUNS:
                raise lost(task.shard, fate) from None
            return
        task.receive(message)
        if task.ended:
            worker.task = None

    def _drop(self, tasks: deque[_Task]) -> None:
        """End the workers that are still at one of these tasks, which nobody waits for any more."""
        left = {id(task) for task in tasks}
        with interrupt.undisturbed():
            for worker in [worker for worker in self._started if worker.task is not None and id(worker.task) in left]:
                self._started.remove(worker)
                worker.end()

    def _new(self) -> _Worker:
        """A worker in a session of its own, so that a Ctrl-C in the terminal reaches the driver alone."""
        here, there = socket.socketpair()
        environment = self._environments[len(self._started) % len(self._environments)]
        with there:
            process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path, fd=there.fileno(), prepare=self._prepare)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                env={**os.environ, **environment},
                start_new_session=True,
            )
        return _Worker(process, Connection(here.detach()))
