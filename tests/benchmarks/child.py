"""Child processes and what they cost.

The parent imports nothing heavy: a child's peak memory, as Linux counts it, starts from its parent's.
"""

import json
import os
import resource
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
    """Of one process: seconds by the clock and of CPU (its threads' user and system time), what it printed, and its
    peak memory as Linux counts it, which is that of its parent where this is larger: both in KiB."""

    wall: float
    cpu: float
    counted: int
    of_parent: int
    printed: str

    @property
    def peak(self) -> float:
        """Peak memory in MB (10^6 bytes); a RuntimeError where the parent's hides it."""
        if self.counted <= self.of_parent:
            raise RuntimeError(f"the benchmark's own peak of {self.of_parent:,} KiB hides its child's: run it alone")
        return self.counted * 1024 / 1e6


class ChildFailed(RuntimeError):
    """A child ended with another status than 0; the message is what it wrote to stderr."""


def cost(command: Sequence[str | Path], *, variables: Mapping[str, str] = MappingProxyType({})) -> Cost:
    """Run a command to its end.  variables: of its environment, beside this process's."""
    # An installed package has its byte code; without this variable's leave, a checkout compiles itself at every start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= variables
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        of_parent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)  # reaped here, so Popen must be told
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise ChildFailed(f"{' '.join(map(str, command))}: status {process.returncode}\n{err.read().strip()}")
        return Cost(
            wall=wall,
            cpu=usage.ru_utime + usage.ru_stime,
            counted=usage.ru_maxrss,
            of_parent=of_parent,
            printed=out.read(),
        )


def script(name: str, *args: str | Path) -> list[str | Path]:
    """The command for a script of this directory."""
    return [sys.executable, HERE / name, *args]


def answer(name: str, *args: str | Path) -> dict[str, Any]:
    """The JSON object that a script of this directory prints."""
    return json.loads(cost(script(name, *args)).printed)
