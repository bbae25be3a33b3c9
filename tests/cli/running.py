"""Run the command line: in this process (quick), as a process of its own, or as the installed command."""

import contextlib
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import Process as Process, forked_command as forked_command, forked_workers, pid_behind as pid_behind
from limits import LIMIT_SECONDS as LIMIT_SECONDS

import rlcorr_cli
from rlcorr_cli.commands import main

SAMPLE = Path(__file__).parents[2] / "sample_data"
BF16, STEPS = str(SAMPLE / "smollm2_bf16.parquet"), str(SAMPLE / "smollm2_steps.parquet")


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The report on stdout of a run that was to succeed."""
        assert self.status == 0, self.err
        return json.loads(self.out)


def run(*args: str) -> Ran:
    """`rlcorr ARGS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.run(list(args))
    return Ran(status, out.getvalue(), err.getvalue())


def on_a_terminal(*args: str, lines: int = 24, **env: str) -> str:
    """What `rlcorr ARGS` draws on a pseudo-terminal of so many lines."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (lines, 80))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")}
    command = [forked_command(), *(args or ("analyze", BF16, "--quiet"))]
    process = Process(command, stdout=theirs, env={**environment, "TERM": "xterm", **env})
    os.close(theirs)
    drawn = b""
    try:
        while part := os.read(ours, 65536):
            drawn += part
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(ours)
    assert process.wait(LIMIT_SECONDS) == 0
    return drawn.decode()


def watched(dump: str, **how: Any) -> Any:
    """What one look of `watch` makes of a dump, whatever its age, and leaves nothing."""
    with TemporaryDirectory() as folder:
        return rlcorr_cli.watch(dump, once=True, every=0, state=f"{folder}/watch.rlcorr", **how)


def refused(ran: Ran, status: int, *parts: str) -> None:
    """It ended with this status and two lines that say so, nothing on stdout."""
    assert ran.status == status, ran.err
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 2, ran.err
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err, ran.err


def analyzed(*args: str) -> dict[str, Any]:
    """The JSON report of `rlcorr analyze ARGS`."""
    return run("analyze", *args, "--json").json


def command() -> str:
    """The installed `rlcorr`."""
    found = shutil.which("rlcorr", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found, "rlcorr is not installed"
    return found


def run_installed(*args: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Ran:
    """`rlcorr ARGS` by the installed command."""
    return _process(command(), args, env, stdin)


def run_process(*args: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Ran:
    """`rlcorr ARGS` as a process of its own, with its own streams, status and end, forked from one that is warm."""
    return _process(forked_command(), args, env, stdin)


def run_lean(script: str, *args: str, env: Mapping[str, str] | None = None) -> Ran:
    """A script in a Python that has loaded NumPy and pyarrow, and nothing of rlcorr: forked from one that is
    warm."""
    return _process(forked_command("pyarrow.parquet"), ["-c", script, *args], env, None)


def run_python(script: str, *args: str) -> Ran:
    """A script in a Python of its own."""
    return _process(sys.executable, ["-c", script, *args], None, None)


@pytest.fixture
def warm() -> Iterator[None]:
    """Workers that need not import anything anew: for what they compute, not for how they start and end."""
    with forked_workers():
        yield


def _process(program: str, args: Sequence[str], env: Mapping[str, str] | None, stdin: str | None) -> Ran:
    given = {**os.environ, **(env or {})}
    done = subprocess.run(
        [program, *args], capture_output=True, text=True, env=given, input=stdin, timeout=LIMIT_SECONDS
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def wait_for(state: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Until a process that is still running is seen to be in a state."""
    for _ in looks(state):
        assert process.poll() is None, "it ended before that"


def until(state: Callable[[], bool]) -> None:
    """Until a state is there."""
    for _ in looks(state):
        pass


def looks(state: Callable[[], bool]) -> Iterator[None]:
    """Whenever a look has shown that a state is not there yet.  Looking takes a tenth of a core at most: the processes
    that are waited for need the rest."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        before = time.thread_time()
        if state():
            return
        assert time.monotonic() < deadline, "it does not come to that"
        yield
        time.sleep(max(0.005, 9 * (time.thread_time() - before)))


def row(rollout: Sequence[Any] = (-0.5, -1.0), old: Sequence[Any] = (-0.25, -2.0), **more: Any) -> dict[str, Any]:
    return {"rollout_log_probs": list(rollout), "old_log_probs": list(old), **more}


def parquet(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return str(path)


def jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)
