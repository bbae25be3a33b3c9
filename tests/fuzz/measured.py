"""Run one command and print what it took, as JSON: `python measured.py SECONDS COMMAND...`.

A process of its own that imports little, because a child's peak memory, as Linux counts it, starts from its parent's.
The command is killed when it has used its SECONDS of a processor, which a busy machine does not use up for it, or when
it takes MOST_MB: nobody else on the machine should suffer.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_MB = 4_000
PATIENCE = 20
"""By the clock a command may take so many times its seconds of a processor; then it hangs."""


@dataclass(frozen=True)
class Took:
    """What a process did.  status: negative where a signal ended it; peak_mb: of 2^20 bytes; seconds: by the clock."""

    status: int
    peak_mb: float
    seconds: float
    out: str
    err: str


def took(args: Sequence[str], seconds: float) -> Took:
    """The command's status, peak memory, time and what it printed.  seconds: of a processor, then it is killed."""
    done = subprocess.run(
        [sys.executable, __file__, str(seconds), *args], capture_output=True, text=True, check=True, errors="replace"
    )
    return Took(**json.loads(done.stdout))


def _run(args: Sequence[str], seconds: float) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        limited = ["import os, resource, sys", f"resource.setrlimit(resource.RLIMIT_CPU, ({math.ceil(seconds)},) * 2)"]
        started_by = [sys.executable, "-c", "; ".join([*limited, "os.execvp(sys.argv[1], sys.argv[1:])"])]
        pid = subprocess.Popen([*started_by, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err).pid
        done = 0
        while not done:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if not done and (time.monotonic() - started > PATIENCE * seconds or _resident_mb(pid) > MOST_MB):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        out.seek(0)
        err.seek(0)
        return {
            "status": os.waitstatus_to_exitcode(status),
            "peak_mb": usage.ru_maxrss / 1024,
            "seconds": time.monotonic() - started,
            "out": out.read(),
            "err": err.read(),
        }


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0  # no Linux, or it has ended
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[2:], float(sys.argv[1]))))
