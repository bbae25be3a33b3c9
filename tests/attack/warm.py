"""Run cases by a warm server: it has imported all of rlcorr, and forks for each command.  `Server().run(...)`.

As tests/cli/forked.py, but the server itself waits for the command, so that no client has to start; it sets the
streams, limits and rights that a case asks for, and ends what does not end by itself.
"""

import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # a script sees its own folder alone
from limits import LIMIT_SECONDS as LIMIT_SECONDS, LimitedProcess

CLI = Path(__file__).parents[1] / "cli"
CPU_SECONDS = 60
"""A command that computes for longer hangs: it is far above what any of them takes."""
IDLE_SECONDS = 30
"""A command that does nothing for so long hangs, however busy the machine is."""
MEMORY = 6 << 30
"""Bytes that a command may hold; one that would read a device to its end must not take the machine with it."""
LARGEST_FILE = 300 << 20
NOBODY = 65534
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""As workers of rlcorr have it: tensors are small here."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended.  status: None where it had to be killed for time; -N where a signal ended it."""

    status: int | None
    seconds: float
    peak_mb: float


class Server:
    """The process that forks; one command at a time."""

    def __init__(self) -> None:
        self._process = LimitedProcess(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD,
            start_new_session=True,
        )
        assert self._process.first_line() == "ready\n"

    def run(self, request: dict[str, Any]) -> Ended:
        """Run what `_become` takes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the server."""
        with self._process:
            pass  # its stdin closes, which ends it


def serve() -> list[str]:
    """Fork for every request until stdin closes.  Returns in the forked processes, with a command's arguments."""
    sys.path.insert(0, str(CLI))
    import forked

    forked._import_all()
    gc.freeze()  # a collection in a forked process would copy every page that it looks at
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        if not (pid := os.fork()):
            requests.close()  # before `_become` closes what they stand on, of which Python 3.13 would complain
            answers.close()
            return _become(request)
        print(json.dumps(_waited(pid)), file=answers, flush=True)
    sys.exit()


def _waited(pid: int) -> dict[str, Any]:
    """How the command ended, by itself or not; nothing that it started goes on."""
    handle, computed = os.pidfd_open(pid), -1.0
    while not (ended := bool(select.select([handle], [], [], IDLE_SECONDS)[0])):
        before, computed = computed, _computed(pid)
        if computed == before or computed > CPU_SECONDS:
            break
    os.close(handle)
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status) if ended else None
    return {"status": code, "seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}


def _computed(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _become(request: dict[str, Any]) -> list[str]:
    """Be the command's process."""
    os.setpgid(0, 0)
    os.chdir(request["here"])
    for number, path in enumerate(request["streams"]):
        os.close(number)
        if path:
            assert os.open(path, os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT | os.O_APPEND) == number
            os.set_inheritable(number, True)
        else:  # kept free, as it is for a process that starts without it
            os.open(os.devnull, os.O_RDONLY)
    os.closerange(3, 64)
    resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    sys.dont_write_bytecode = True  # under that limit Python cuts byte code short, and keeps it for all who come after
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["unprivileged"] and not os.getuid():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    for number, path in enumerate(request["streams"]):
        if not path:
            os.close(number)
    if request["program"]:
        os.execve(request["program"], [request["program"], *request["args"]], request["environment"])
    sys.stdin = sys.__stdin__ = _stream(0, request)
    sys.stdout = sys.__stdout__ = _stream(1, request)
    sys.stderr = sys.__stderr__ = _stream(2, request)
    sys.argv = ["rlcorr", *request["args"]]
    return request["args"]


def _stream(number: int, request: dict[str, Any]) -> Any:
    """The stream as Python makes it; None where it is closed."""
    if not request["streams"][number]:
        return None
    mode, errors = ("r", "strict") if not number else ("w", "backslashreplace" if number == 2 else "strict")
    return open(number, mode, 1 if number == 2 else -1, encoding="utf-8", errors=errors, closefd=False)


if __name__ == "__main__":
    arguments = serve()
    from rlcorr_cli.commands.main import main

    main(arguments)
