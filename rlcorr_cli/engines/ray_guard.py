"""Runs on Ray go on in a child process, so that the exit status is always one of ours.

Where its raylet dies, Ray's library ends the process that uses it at once, with a status of its own: 1, which means of
`check` that a rule failed.  So the run goes on in a child, which says its status before it ends; where it did not, the
parent says so, and removes what was left behind.  Signals are passed on: one that was sent to both reaches the child
twice, and counts once.
"""

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from mmap import mmap
from pathlib import Path

from rlcorr_cli.engines import interrupt, ray_cluster
from rlcorr_cli.errors import DataError
from rlcorr_cli.files.temporaries import sweep

PR_SET_PDEATHSIG = 1
"""Of Linux: have a signal sent to this process when its parent is gone."""
UNSAID = 255
"""What stands where the status goes while the child has written none."""


def fork(said: mmap, named: Sequence[str]) -> None:
    """Return in a child, which is to write its status into `said`, a byte of memory that both see.

    The parent ends with that status, or with a DataError where the child wrote none.  named: the arguments and
    variables as typed, among which are the outputs.
    """
    said[0] = UNSAID
    interrupt.install()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nothing is known of how a child ends
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    interrupt.install(pass_on)
    _, ended = os.waitpid(child, 0)
    if said[0] != UNSAID:
        os._exit(said[0])
    for folder in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for own in folder.glob(f"{ray_cluster.FOLDER}{child}-*"):
            ray_cluster.end_cluster(str(own))
    places = [Path(text.rpartition("=")[2]) for text in named]
    sweep({Path(tempfile.gettempdir()), *places, *(place.parent for place in places)})
    if os.WTERMSIG(ended) in interrupt.ENDING:  # for a moment as it connects, Ray has a handler of its own
        raise interrupt.Terminated(os.WTERMSIG(ended))
    raise DataError(
        "The connection to the Ray cluster is lost: the process of this run ended without a result.",
        "Is the cluster still up, and did its nodes have enough memory?  Check which outputs exist, then run it again.",
    )
