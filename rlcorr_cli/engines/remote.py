"""Work on a shard beyond this process: how it is sent there, and how its results or its failure come back.

What goes over the way is pickled: it is made by this program, and travels between its own processes only.
"""

import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from rlcorr_cli.errors import DataError, RlcorrError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Shard

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
