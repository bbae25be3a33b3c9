"""Ray core tasks: a shard each, on the nodes of a cluster.

Ray itself runs a task again that was lost, and for ever where memory is the reason; here the driver starts the shard
again, so that MOST_RUNS holds whatever took its worker, and the error names its file.  A task gives two things: how its
node saw the shard, which comes here at once, and the shard's results, which stay in the cluster's memory until it is
their turn.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from rlcorr_cli.engines import interrupt
from rlcorr_cli.engines.in_order import AHEAD, Engine, cores, in_order
from rlcorr_cli.engines.processes import MOST_RUNS, lost, packed, unpacked
from rlcorr_cli.engines.ray_cluster import Cluster, broken, connected
from rlcorr_cli.engines.ray_worker import NodeView, Reading, packed_shard, run_shard
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files.disk import DISK
from rlcorr_cli.files.services import SERVICES
from rlcorr_cli.reading.batch import Shard

R = TypeVar("R")
Reference = Any
"""To what a task will give: a ray.ObjectRef."""
LOOK_SECONDS = 0.01
"""Between one look at the tasks and the next."""
ENDING_SECONDS = 5.0
"""What tasks that are ended have to be gone; on a machine that is not busy it takes a few tenths."""
SILENT_SECONDS = 60.0
"""Without a result, after which it is looked, and said, whether there is any node to wait for."""
OF_ONE_MACHINE = {"GOOGLE_APPLICATION_CREDENTIALS", "HF_HOME"}
"""Variables of stores that name files, which may lie elsewhere on a node."""
NEEDED = ("numpy", "pyarrow", "threadpoolctl", "msgspec")
"""What work on a shard imports, the last for batches of prime-rl."""
NEEDED_ON_GPUS = ("torch", "array_api_compat")
_LOG = logging.getLogger(__name__)
SHARE = "Put it on storage that all nodes share, or in an object store (`rlcorr help stores`)."


class RayEngine(Engine):
    """An Engine over tasks of a cluster, which is connected to when work comes.

    workers: shards at a time, None for as many as the cluster has cores, or GPUs where `on_gpus`.  address: as
    `connected` takes it.  prepare: called on a node before a shard.
    """

    def __init__(
        self, workers: int | None, address: str | None, *, prepare: Callable[[], None], on_gpus: bool = False
    ) -> None:
        super().__init__(cores())
        self.workers = workers
        self._address, self._prepare, self._on_gpus = address, prepare, on_gpus
        self._cluster: Cluster | None = None

    @property
    def named(self) -> str:
        """What runs there at a time."""
        return f"tasks on Ray, {self.workers or 'as many as it has room for'} at a time"

    def run(
        self, shards: Sequence[Shard], work: Callable[[Shard], Iterator[R]], *, ahead: int
    ) -> Iterator[Iterator[R]]:
        """For each shard in order an iterator of its results.

        ahead: does not count, since a shard's results come together, when it is done, and wait in the cluster's memory
        to be taken.
        """
        self._cluster = self._cluster or connected(self._address, self.workers or cores())
        reading = Reading(
            work=packed(work, self._prepare),
            needed=NEEDED + NEEDED_ON_GPUS if self._on_gpus else NEEDED,
            directory=os.getcwd(),
            variables=variables_of_stores(),
        )
        n_workers = self.workers or self._cluster.size(on_gpus=self._on_gpus)
        # The cluster runs what it has room for, and as many wait there, so that no core waits for this process; unless
        # a number was asked for: no more than that are at work.
        tasks = _Tasks(self._cluster.ray, reading, at_work=self.workers or AHEAD * n_workers, on_gpus=self._on_gpus)
        try:
            yield from in_order(shards, tasks.begin, AHEAD * n_workers)
        finally:
            tasks.end()

    def close(self) -> None:
        """Leave the cluster, and end what was started there for this run."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


@dataclass(eq=False, kw_only=True)
class _Task:
    """A shard whose results are yet to be taken.  seen, outcomes: what its task will give, None before it is begun;
    view: what it gave for `seen`."""

    shard: Shard
    seen: Reference = None
    outcomes: Reference = None
    runs: int = 0
    view: NodeView | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether it is begun and not done."""
        return self.seen is not None and self.view is None


class _Tasks:
    """The tasks of one reading.  at_work: how many there may be at a time."""

    def __init__(self, ray: Any, reading: Reading, *, at_work: int, on_gpus: bool) -> None:
        self._ray, self._at_work = ray, at_work
        self._wants = "GPU" if on_gpus else "CPU"
        resources = {"num_cpus": 1, "num_gpus": 1} if on_gpus else {"num_cpus": 1}
        self._remote = ray.remote(run_shard).options(num_returns=2, max_retries=0, **resources)
        self._reading = ray.put(reading)
        self._lost = (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.OutOfMemoryError,
            ray.exceptions.ObjectLostError,
        )
        self._tasks: list[_Task] = []
        self._heard = time.monotonic()

    def begin(self, shard: Shard) -> Iterator[Any]:
        """Have a shard begun as soon as there may be one more at work; its results."""
        task = _Task(shard=shard)
        self._tasks.append(task)
        self._begin_more()
        return self._results(task)

    def end(self) -> None:
        """End what is still at work, and wait until it is gone, so that none writes where the run has cleared up."""
        at_work = [task.seen for task in self._tasks if task.is_at_work]
        with interrupt.without_resignalling(), suppress(self._ray.exceptions.RayError):
            deadline, pause = time.monotonic() + ENDING_SECONDS, LOOK_SECONDS
            while at_work and time.monotonic() < deadline:
                # Again each time: Ray loses the end of a task that is just then on its way to a worker.
                for seen in at_work:
                    self._ray.cancel(seen, force=True)
                time.sleep(pause)
                pause *= 2
                _, at_work = self._ray.wait(at_work, num_returns=len(at_work), timeout=0)

    def _begin_more(self) -> None:
        n_at_work = sum(task.is_at_work for task in self._tasks)
        for task in self._tasks:
            if task.seen is None and n_at_work < self._at_work:
                self._start(task)
                n_at_work += 1

    def _start(self, task: _Task) -> None:
        task.runs += 1
        task.view = None
        task.seen, task.outcomes = self._remote.remote(self._reading, packed_shard(task.shard))

    def _results(self, task: _Task) -> Iterator[Any]:
        """A task's results, once they are there."""
        try:
            outcomes = self._outcomes(task)
        except self._ray.exceptions.RayError as error:
            if explained := broken(error):
                raise explained from error
            raise
        except SystemError:
            interrupt.check()  # what a signal's handler raises within Ray, it makes this of
            raise
        self._tasks.remove(task)
        yield from _taken(task, outcomes)

    def _outcomes(self, task: _Task) -> list[bytes]:
        while True:
            while task.view is None:
                self._look()
            try:
                return self._ray.get(task.outcomes)
            except self._lost as error:  # the node that kept them
                self._start_again(task, error)

    def _look(self) -> None:
        """See which tasks are done, wait a moment if none is, and begin those again whose worker was lost."""
        interrupt.check()
        at_work = {task.seen: task for task in self._tasks if task.is_at_work}
        ready, _ = self._ray.wait(list(at_work), num_returns=len(at_work), timeout=0)
        if not ready:
            self._warn_without_nodes()
            time.sleep(LOOK_SECONDS)  # here rather than within Ray, which does not bear what a signal raises there
            return
        self._heard = time.monotonic()
        for seen in ready:
            try:
                at_work[seen].view = self._ray.get(seen)
            except self._lost as error:
                self._start_again(at_work[seen], error)
        self._begin_more()

    def _warn_without_nodes(self) -> None:
        """Say once a minute what a run waits for that would else wait for ever in silence."""
        if time.monotonic() - self._heard < SILENT_SECONDS:
            return
        self._heard = time.monotonic()
        if not self._ray.cluster_resources().get(self._wants):
            needed = "core" if self._wants == "CPU" else "GPU"
            _LOG.warning(
                "No node of the Ray cluster has a %s: this run waits for one to come.  Ctrl-C ends it.", needed
            )

    def _start_again(self, task: _Task, error: Exception) -> None:
        if task.runs >= MOST_RUNS:
            fates = {"OutOfMemoryError": "ran out of memory", "WorkerCrashedError": "was killed"}
            raise lost(task.shard, fates.get(type(error).__name__, "was on a node that is gone")) from error
        self._start(task)


def _taken(task: _Task, outcomes: list[bytes]) -> Iterator[Any]:
    """The results of a task, and what ended it early, as the user is to see it."""
    view = task.view
    assert view is not None
    if view.lacks:
        packages = ", ".join(view.lacks)
        what = f"Node {view.node} of the Ray cluster lacks {packages} in the Python that its workers run."
        raise UsageError(what, f"Install there what rlcorr needs, in this process's versions: pip install {packages}.")
    try:
        for outcome in outcomes:
            yield unpacked(outcome)
    except DataError as error:
        if seen_otherwise := _seen_otherwise(task.shard, view):
            raise seen_otherwise from error
        raise


def _seen_otherwise(shard: Shard, view: NodeView) -> DataError | None:
    """The error of a node that does not see a file as this process does."""
    stamps = dict([(shard.path, shard.stamp), *shard.companions])
    for path in (*view.unseen, *view.unlike):
        try:
            is_unchanged_here = DISK.stamp(path) == stamps[path]
        except DataError:
            is_unchanged_here = False
        if is_unchanged_here:
            sees = "does not see" if path in view.unseen else "has another file by the name"
            return DataError(f"Node {view.node} of the Ray cluster {sees} {os.path.abspath(path)}.", SHARE)
    return None


def variables_of_stores() -> dict[str, str | None]:
    """The variables that say which store is asked, and as whom, for nodes to go by.

    Where a secret is set here, all of its store's are as they are here: none of a node's own is mixed with it.
    """
    variables: dict[str, str | None] = {}
    for service in SERVICES.values():
        names = set(service.variables) - OF_ONE_MACHINE
        variables |= {name: os.environ[name] for name in names if name in os.environ}
        if any(name in os.environ for name in service.secrets):
            variables |= {name: os.environ.get(name) for name in service.secrets}
    return variables
