"""Child processes and what they cost.

The parent imports nothing heavy: a child's peak memory, as Linux counts it, starts from its parent's.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cost:
    """Of one process: seconds by the clock and of CPU (its threads' user and system time), peak memory in MB (10^6
    bytes), and what it printed."""

    wall: float
    cpu: float
    peak: float
    printed: str


class ChildFailed(RuntimeError):
    """A child ended with another status than 0; the message is what it wrote to stderr."""


def cost(
    command: Sequence[str | Path], *, printed: bool = True, variables: Mapping[str, str] = MappingProxyType({})
) -> Cost:
    """Run a command to its end.  printed: whether to read what it printed, from which the peak of the next one starts
    where that is large.  variables: of its environment, beside this process's."""
    # An installed package has its byte code; without this variable's leave, a checkout compiles itself at every start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= variables
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)  # reaped here, so Popen must be told
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise ChildFailed(f"{' '.join(map(str, command))}: status {process.returncode}\n{err.read().strip()}")
        return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, out.read() if printed else "")


def script(name: str, *args: str | Path) -> list[str | Path]:
    """The command for a script of this directory."""
    return [sys.executable, HERE / name, *args]


def answer(name: str, *args: str | Path) -> dict[str, Any]:
    """The JSON object that a script of this directory prints."""
    return json.loads(cost(script(name, *args)).printed)
