"""Interrupted, terminated, or with nobody reading: the status says so, and of an interrupt a line whether it left
anything behind.

Nothing here waits for a time to pass, nor asserts how long a thing takes: a signal is sent once the process is seen to
be where it should be, and where it would go on if the signal were lost, there is always more to read.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from few import few
from limits import LIMIT_SECONDS
from running import BF16, STEPS, Process, command, forked_command, wait_for

pytestmark = pytest.mark.xdist_group("processes")
ROWS, LENGTH = 40_000, 100
SAID = {signal.SIGINT: b"Interrupted: nothing was written.\n", signal.SIGTERM: b""}
LINE = b'{"rollout_log_probs": [-1.0], "old_log_probs": [-1.5]}\n'


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 M tokens in 200 row groups; in batches of one row, minutes of work."""
    rng = np.random.default_rng(0)
    offsets = pa.array(np.arange(0, ROWS * LENGTH + 1, LENGTH, dtype=np.int32))
    columns = {
        name: pa.ListArray.from_arrays(offsets, pa.array(-rng.random(ROWS * LENGTH, np.float32)))
        for name in ("rollout_log_probs", "old_log_probs")
    }
    path = tmp_path_factory.mktemp("big") / "big.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=200, compression="none", use_dictionary=False)
    return path


class Reading:
    """Whether a process is in the middle of a file: it has read a MB since it was first seen to have it open."""

    def __init__(self, process: Process, path: Path) -> None:
        self.process, self.path = process, path
        self.start: int | None = None

    def __call__(self) -> bool:
        """Asked again and again."""
        proc = Path(f"/proc/{self.process.command_pid}")
        try:
            is_open = any(os.path.realpath(fd) == str(self.path) for fd in (proc / "fd").iterdir())
            n_read = int((proc / "io").read_text().split()[1])
        except FileNotFoundError:  # closed while it was looked at
            return False
        if is_open and self.start is None:
            self.start = n_read
        return self.start is not None and n_read - self.start > 1 << 20


@contextmanager
def started(*args: str, stdin: int = subprocess.DEVNULL) -> Iterator[Process]:
    """A command that is not yet at its end; killed where a test leaves it running."""
    process = Process(args, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        process.wait(LIMIT_SECONDS)


@pytest.mark.parametrize(("number", "program"), [(signal.SIGINT, command), (signal.SIGTERM, forked_command)])
def test_a_signal_in_the_middle_of_a_dump_ends_it(
    number: signal.Signals, program: Callable[[], str], big: Path, tmp_path: Path
) -> None:
    args = (
        "analyze",
        str(big),
        "--batch-tokens",
        "100",
        "--engine",
        "threads",
        "--workers",
        "2",
        "-o",
        str(tmp_path / "report.json"),
    )
    with started(program(), *args) as process:
        wait_for(Reading(process, big), process)
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == 128 + number
    assert (out, err) == (b"", SAID[number])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "program"), [(signal.SIGINT, forked_command), (signal.SIGTERM, command)])
def test_a_signal_while_waiting_for_standard_input_ends_it(number: signal.Signals, program: Callable[[], str]) -> None:
    with started(program(), "analyze", "-", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        # Far more than a pipe holds, so this returns when nearly all of it has been read, and then it waits for more.
        process.stdin.write(LINE * 20_000)
        process.stdin.flush()
        process.send_signal(number)
        # Its standard input stays open: it can only end by the signal.
        assert process.wait(LIMIT_SECONDS) == 128 + number
        assert process.stderr is not None
        assert process.stderr.read() == SAID[number]


WRITTEN = """
import os, signal
from pathlib import Path
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.commands import main
from rlcorr_cli.engines import interrupt
from rlcorr_cli.show.stdout import emit

def work(args):
    if "file" in args:
        with Outputs() as staging:
            staging.write(Destination(path=Path(args[-1])), b"whole")
            if "published" in args:
                staging.publish()
    if "stdout" in args:
        emit("a line")
    os.kill(os.getpid(), signal.SIGINT)

interrupt.install()
main.fast_path = work  # what a command does in its place
print(main.run({args!r}))
"""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Interrupted: nothing was written."),
        (["file"], "Interrupted: nothing was written."),
        (["file", "published"], "Interrupted."),
        (["stdout"], "Interrupted."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_interrupt_says_that_nothing_was_written_only_where_nothing_was(
    args: list[str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    script = WRITTEN.format(args=[*args, str(path)])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.stderr == f"{said}\n"
    assert done.stdout.endswith("130\n")
    assert path.exists() == ("published" in args)


LOST = """
import os, signal, sys
from rlcorr_cli.engines import interrupt

def receive():
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000):
        pass  # the handler runs, and raises, here

class Finaliser:
    def __del__(self):
        receive()

def imported():
    try:
        receive()
    except:
        pass

interrupt.install()
try:
    {losing}()
    sys.stdin.read()
except interrupt.Terminated:
    interrupt.signal_handled()  # as main.py does, so that no timer outlives its handler
    sys.exit(143)
except KeyboardInterrupt:
    interrupt.signal_handled()
    sys.exit(130)
"""


@pytest.mark.parametrize("losing", few(["Finaliser", "imported"], ["imported"]))
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_is_dropped_is_raised_again(name: str, status: int, losing: str) -> None:
    """By Python in a finaliser, by a library that catches all; the process then waits for what never comes."""
    arguments = [sys.executable, "-c", LOST.format(name=name, losing=losing)]
    with Process(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(LIMIT_SECONDS) == status
        assert process.stderr is not None
        assert process.stderr.read() == b""


AT_THE_EDGE = """
import os, signal
from rlcorr_cli.commands import main

exit = os._exit

def receive(status=None):
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000):
        pass  # the handler runs here
    exit(status)

if {begins!r}:
    main.stdout.tame_environment = receive
else:
    os._exit = receive
main.main(["presets"])
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("begins", [True, False], ids=["begins", "has ended"])
def test_a_signal_as_a_command_begins_or_has_ended_is_no_fault(begins: bool, name: str, status: int) -> None:
    script = AT_THE_EDGE.format(name=name, begins=begins)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    said = SAID[signal.Signals[name]].decode() if begins else ""
    assert (done.returncode, done.stderr) == (status if begins else 0, said)


LONG = """
import os, signal, sys, time
from rlcorr_cli.engines import interrupt

interrupt.install()
try:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        sys.stdin.read()
    finally:
        try:
            os.unlink("/nowhere/to/be/found")
        except OSError:
            time.sleep(4 * interrupt.AGAIN_SECONDS)
        print("cleaned up", flush=True)
except interrupt.Terminated:
    interrupt.signal_handled()
    sys.exit(143)
"""


@pytest.mark.full
def test_a_long_cleaning_up_is_not_interrupted_by_what_began_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG], stdin=subprocess.PIPE, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleaned up\n", "")


def test_signals_that_are_ignored_at_the_start_stay_ignored() -> None:
    """As `nohup` has it of one, and a script of two in what it runs in the background."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    line = f"trap '' {' '.join(number.name for number in numbers)}; exec \"$@\""
    given = ("bash", "-c", line, "bash", command(), "analyze", "-", "--json")
    with started(*given, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(LINE * 20_000)  # more than a pipe holds, so it reads, and goes on
        process.stdin.flush()
        for number in numbers:
            process.send_signal(number)
        out, err = process.communicate(LINE)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["counts"]["rows"] == 20_001


@pytest.mark.parametrize("reader", few(["head -1", "true"], ["head -1"]))
@pytest.mark.parametrize(
    ("program", "args"),
    [
        (command, ("analyze", BF16, "--json")),
        (forked_command, ("analyze", STEPS, "--group-by", "sample_id")),
        (command, ("presets",)),
        (command, ("explain", "kl")),
        (forked_command, ("--help",)),
    ],
    ids=["analyze --json", "analyze", "presets", "explain", "help"],
)
def test_a_reader_that_goes_away_is_no_error(program: Callable[[], str], args: tuple[str, ...], reader: str) -> None:
    # All that `presets` says may fit into a pipe before `head` leaves it; `true` is gone in any case.
    path = program() if reader == "true" else forked_command()
    line = f"{shlex.join([path, *args])} | {reader}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0
    assert done.stderr == ""
