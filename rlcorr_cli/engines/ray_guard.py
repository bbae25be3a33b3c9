"""A run on Ray in a process of its own, whose end is said by the one that was called.

Where its raylet dies, Ray's library ends the process that uses it at once, with a status of its own: 1, which means of
`check` that a rule failed.  So the run goes on in a child, which says its status before it ends; where it did not, the
parent says what happened, and removes what was left behind.  Signals are passed on; and where the parent is killed, the
system asks the child to end.
"""

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rlcorr_cli.engines import interrupt, ray_cluster
from rlcorr_cli.errors import DataError
from rlcorr_cli.files.temporaries import sweep

PR_SET_PDEATHSIG = 1
"""Of Linux: have a signal sent to this process when its parent is gone."""


def forked() -> tuple[int, int]:
    """In the child 0 and where to write the status; in the parent the child and where to read it."""
    parent, (reader, writer) = os.getpid(), os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupt.ENDING)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # a Ctrl-C in the terminal reaches the parent alone
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(interrupt.Terminated(signal.SIGTERM).exit_status)
    else:
        os.close(writer)
        os.set_blocking(reader, False)
        for number in interrupt.ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: _pass_on(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt.ENDING)
    return child, reader if child else writer


def _pass_on(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def status_of(child: int, reader: int, args: Sequence[str]) -> int:
    """The status that the child said; a DataError where it said none, and what it left is removed."""
    os.waitpid(child, 0)
    with suppress(BlockingIOError):
        if status := os.read(reader, 1):
            return status[0]
    for folder in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for own in folder.glob(f"{ray_cluster.FOLDER}{child}-*"):
            ray_cluster.end_cluster(str(own))
    places = [Path(arg.rpartition("=")[2]) for arg in args]
    sweep({Path(tempfile.gettempdir()), *places, *(place.parent for place in places)})
    raise DataError(
        "The connection to the Ray cluster is lost, and Ray ended the run; nothing was written.",
        "Is the cluster still up, and did its nodes have enough memory?  Run it again.",
    )
