"""Recorder: what a trainer holds at each step, written down while it trains.

`write` copies the batch's tensors into host memory, of which there is enough for QUEUED steps, and goes back to the
trainer.  One thread makes a file of each copy, in order: under a temporary name, then its own, so that whoever reads
the folder sees whole files only.  Where the disk is slower than the trainer, no memory is free, and the step is lost.

Nothing that goes wrong here reaches the trainer, unless it asks for that with `strict`: of the first step that is lost
the log `rlcorr` tells the reason; all are listed in `lost`.  A process that was forked begins anew, with a thread and
memory of its own, and with nothing lost.

A run that is started again replaces what an earlier one wrote of a step.  What was there when the recorder was made,
and has not changed since, is an earlier run's.  Of a step that is written the files of this rank go, and, where this is
rank 0, those of ranks that are no more.
"""

import logging
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Literal, Self

from rlcorr_cli.errors import OutputError, RlcorrError, UsageError
from rlcorr_cli.files.destinations import Destination, sweep
from rlcorr_cli.files.outputs import Outputs, as_output_error, sync
from rlcorr_cli.layouts.layout import Held
from rlcorr_cli.layouts.memory import HostMemory
from rlcorr_cli.places import scheme
from rlcorr_cli.reading.recorded import RecordedStep, mark_of, rows_of, snapshot, write

LOG = logging.getLogger("rlcorr")
QUEUED = 2
"""Steps that are copied and not yet written, the one that is being written among them."""
EXIT_SECONDS = 60.0
"""What the end of a process waits for the last steps to be written; `close` waits as long as it takes."""


class Recorder:
    """Writes what a trainer holds into a folder: a file a step and rank, which every command reads.

        recorder = Recorder("dump/")
        recorder.write(batch, step=step)  # each step, where the trainer's old log-probs are there

    every: steps from one that is recorded to the next.  share: of the prompts, with all rows of each, the same prompts
    in every run; by the hash of a prompt's ids, or of its group where there are none.  patience: seconds that `write`
    waits where the disk is slower than the trainer.  text: whether texts are written, too.  rank: which of the
    processes that record this is, and world: of how many; by torch.distributed where that is initialized, else 0 of 1.
    rank=None says that all processes hold the same batches: the one of rank 0 by torch.distributed writes.
    strict: whether what goes wrong is raised, by `write`, by the next one, or by `close`.

    lost: the steps that were not recorded, whatever the reason; of the first one a warning is logged.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int = 1,
        share: float = 1.0,
        patience: float = 1.0,
        text: bool = False,
        rank: int | Literal["auto"] | None = "auto",
        world: int | None = None,
        strict: bool = False,
    ) -> None:
        if every < 1 or every % 1 or not 0 < share <= 1 or patience < 0:
            message = f"Recorder takes no every={every}, share={share}, patience={patience}."
            hint = "every is a whole number from 1 on, share above 0 and up to 1, patience 0 or more seconds."
            raise UsageError(message, hint)
        if scheme(os.fspath(folder)):
            raise UsageError(f"Recorder writes to a disk, not to {folder}.", "Name a folder, and copy its files.")
        self.folder = Path(folder).absolute()
        self._every, self._share, self._patience, self._text = every, share, patience, text
        self._rank, self._world, self._strict = rank, world, strict
        self._older = {path.name: _version_of(path) for path in self.folder.glob("step-*")}
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, batch: Any, *, step: int) -> None:
        """Record a batch of a step, if `every` selects its step.  A second batch of a step makes a second file.

        batch: what the trainer holds: a mapping of padded, ragged or packed tensors, or its framework's own batch.  It
        is copied here, and may be overwritten after.
        """
        if self._process != os.getpid():
            self._begin()
        self._raise_late()
        self._attempt(step, partial(self._copy_batch, batch, step))

    def close(self) -> None:
        """Wait until all is written.  `write` may be called after, and starts a thread again."""
        self._finish(None)
        self._raise_late()

    def _begin(self) -> None:
        self._process = os.getpid()
        self.lost: list[int] = []
        self._n_told = 0
        self._thread: threading.Thread | None = None
        # Reuse the memory that was touched last: its pages exist.
        self._free: queue.LifoQueue[HostMemory] = queue.LifoQueue()
        self._copied: queue.Queue[tuple[Sequence[Held], HostMemory, RecordedStep] | None] = queue.Queue()
        for _ in range(QUEUED):
            self._free.put(HostMemory())
        self._n_files = Counter[tuple[int, int]]()
        self._error: Exception | None = None

    def _raise_late(self) -> None:
        """Raise what went wrong with a file, where that is wanted."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _attempt(self, step: int, act: Callable[[], None]) -> None:
        """Do something for a step; whatever goes wrong, the trainer goes on."""
        try:
            act()
        except Exception as error:
            self.lost.append(step)
            if self._strict and self._thread is not threading.current_thread():
                raise
            self._error = error if self._strict else None
            if not self._n_told:
                self._n_told = 1
                reason = f"{error.message} {error.hint}" if isinstance(error, RlcorrError) else repr(error)
                LOG.warning(
                    "Step %s is not recorded in %s: %s Training goes on; other steps that are lost are only counted.",
                    *(step, self.folder, reason),
                )

    def _copy_batch(self, batch: Any, step: int) -> None:
        try:
            step = int(step)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{step!r} is no step.", "Give write the number of the trainer's step.") from error
        rank, world = self._rank_and_world()
        if rank is None or step % self._every:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._write_copies, name="rlcorr-recorder", daemon=True)
            thread.start()
            # Children of multiprocessing run finalizers, and never atexit.
            self._at_exit = Finalize(None, self._finish, (EXIT_SECONDS,), exitpriority=10)
            self._thread = thread
        try:
            host = self._free.get(timeout=self._patience)
        except queue.Empty:
            hint = "Record fewer: every=10, or share=0.1; or name a faster disk."
            raise OutputError(f"{QUEUED} steps before it are still being written.", hint) from None
        try:
            taken = snapshot(batch, host, step)
        except BaseException:
            self._free.put(host)
            raise
        self._copied.put((taken, host, RecordedStep(step, rank, world)))

    def _rank_and_world(self) -> tuple[int | None, int]:
        """The rank of this process, None where it holds a copy of another's batches and writes none, and the number of
        ranks that write, 0 where nobody knows."""
        distributed = getattr(sys.modules.get("torch"), "distributed", None)
        knows = distributed is not None and distributed.is_available() and distributed.is_initialized()
        rank, world = (distributed.get_rank(), distributed.get_world_size()) if knows else (0, 1)
        if self._rank is None:
            return (None if rank else 0), 1
        return (rank, self._world or world) if self._rank == "auto" else (self._rank, self._world or 0)

    def _finish(self, seconds: float | None) -> None:
        if self._thread is None or self._process != os.getpid():
            return
        self._copied.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            LOG.warning("The last steps are not recorded in %s: they were not written in %g s.", self.folder, seconds)
        self._thread = None
        self._at_exit.cancel()
        if len(self.lost) > max(self._n_told, 1):
            self._n_told = len(self.lost)
            LOG.warning("%d steps are not recorded in %s.", len(self.lost), self.folder)

    def _write_copies(self) -> None:
        while (copied := self._copied.get()) is not None:
            taken, host, mark = copied
            self._attempt(mark.step, partial(self._write_file, taken, mark))
            self._free.put(host)

    def _write_file(self, taken: Sequence[Held], mark: RecordedStep) -> None:
        worker = mark.rank if mark.world != 1 else None
        rows = rows_of(taken, share=self._share, text=self._text, worker=worker)
        number = self._n_files[mark.step, mark.rank] + 1
        path = self.folder / f"step-{mark.step:08d}.rank{mark.rank}{'' if number == 1 else f'.{number}'}.parquet"
        destination = Destination(path=path, option="Recorder(folder)", overwrite=self._may_replace(path))
        with Outputs() as outputs, as_output_error(destination):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._n_files:
                sweep((self.folder,))
            temporary = outputs.add(destination)
            with temporary.open("xb") as file:
                write(rows, file, mark)
            sync(temporary)
            for older in self._replaced(mark, path) if number == 1 else ():
                outputs.remove(Destination(path=older, option="Recorder(folder)", overwrite=True))
            outputs.publish()
        self._n_files[mark.step, mark.rank] = number

    def _may_replace(self, path: Path) -> bool:
        """Whether a file is of an earlier run, which this one goes on with from a step before."""
        if not os.path.lexists(path):
            return False
        if mark_of(str(path)) is None:
            raise OutputError(f"{path} is there, and no Recorder wrote it.", "Name a folder of its own.")
        if self._older.get(path.name) != _version_of(path):
            hint = "Give each its rank: Recorder(folder, rank=...); or rank=None where they hold copies."
            raise OutputError(f"{path} was written by another process meanwhile.", hint)
        return True

    def _replaced(self, mark: RecordedStep, first: Path) -> Iterator[Path]:
        """Files of an earlier run beside the first of a step and rank: those of its further batches, and, for rank 0 to
        remove, those of ranks that are no more."""
        names = [name for name in self._older if name.startswith(f"step-{mark.step:08d}.rank")]
        for path in map(self.folder.joinpath, names):
            of = mark_of(str(path)) if path != first and self._older[path.name] == _version_of(path) else None
            if of is not None and (of.rank == mark.rank or (mark.rank == 0 and 0 < mark.world <= of.rank)):
                yield path


def _version_of(path: Path) -> tuple[int, ...]:
    """By which a file that another took the place of is told from it."""
    with suppress(FileNotFoundError):
        return (status := path.lstat()).st_ino, status.st_mtime_ns
    return ()
