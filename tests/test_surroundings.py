"""Tests run alike wherever they are started, end, and end with their count."""

import ast
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from limits import LIMIT_SECONDS

TESTS = Path(__file__).parent
MODULES = sorted(path for path in TESTS.rglob("*.py") if path.parent.name != "benchmarks")
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)

OF_A_TEST = """
import signal, subprocess, sys
import duckdb  # says of what is not freed that it leaked, behind pytest's last line

def test_what_it_starts_ends_by_signals():
    script = "import signal; print([number for number in {ignored} if signal.getsignal(number) == signal.SIG_IGN])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout={limit})
    assert done.stdout == "[]\\n"
    for number in {ignored}:
        signal.raise_signal(number)  # which pytest itself was asked to ignore
"""


def test_what_tests_start_ignores_no_signal_and_the_last_line_is_the_count(tmp_path: Path) -> None:
    """As under `nohup`, or in the background of a script: there children inherit that signals are ignored."""
    shutil.copy(TESTS / "conftest.py", tmp_path)
    ignored = [int(number) for number in IGNORED]
    (tmp_path / "test_one.py").write_text(OF_A_TEST.format(ignored=ignored, limit=LIMIT_SECONDS))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in IGNORED],
    )
    assert re.fullmatch(r"1 passed in .*s", done.stdout.splitlines()[-1]), done.stdout
    assert done.stderr == ""


HANGING = """
import pytest, time

@pytest.mark.parametrize("seconds", [0, 0, 600, 0])
def test(seconds):
    time.sleep(seconds)
"""


@pytest.mark.full
def test_a_test_that_hangs_is_named_and_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(HANGING)
    settings = ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", ".", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-n", "2", "-o", "faulthandler_timeout=5", "test_one.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 1, done
    assert "crashed while running 'test_one.py::test[600]'" in done.stdout
    assert re.fullmatch(r"1 failed, \d passed in .*s", done.stdout.splitlines()[-1]), done.stdout
    assert 'test_one.py", line 6 in test' in done.stderr


BY_KEYWORD = (
    "subprocess.run",
    "urllib.request.urlopen",
    "http.client.HTTPConnection",
    "multiprocessing.connection.wait",
)
"""What takes its limit as `timeout`."""
NEVER = (
    *("subprocess.Popen", "subprocess.check_output", "subprocess.check_call"),
    *("os.wait", "os.waitpid", "os.wait3", "signal.pause", "signal.sigwait"),
)
"""What has no limit, or, as Popen in a `with`, none when a test fails: LimitedProcess has one."""
BARE = ("wait", "join", "get", "result", "acquire", "recv")
"""Methods that wait without end where they are given nothing."""
MAY = {
    ("cli/forked.py", "os.waitpid"): "a command that is gone, or goes with its client",
    ("engines/test_workers.py", "signal.pause"): "work that is to be ended",
    ("fuzz/measured.py", "subprocess.Popen"): "looked at while it runs, and killed by limits of its own",
    ("fuzz/measured.py", "subprocess.run"): "starts the one that has them",
    ("fuzz/truncation.py", "subprocess.Popen"): "waited for with a limit",
    ("fuzz/run.py", "os.waitpid"): "libFuzzer, which is told its seconds",
    ("test_atomic.py", "os.waitpid"): "a fork of a process that has a limit",
}
"""What one module may, and why."""


def endless(source: str) -> Iterator[str]:
    """Each call that would wait for ever."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {keyword.arg for keyword in node.keywords}
            if (
                name in NEVER
                or (name in BY_KEYWORD and "timeout" not in given)
                or (isinstance(node.func, ast.Attribute) and node.func.attr in BARE and not (node.args or given))
            ):
                yield name


def test_calls_that_wait_for_ever_are_seen() -> None:
    seen = "subprocess.run(a); p.wait(); thread.join(); os.waitpid(p, 0); subprocess.Popen(a)"
    assert list(endless(seen)) == ["subprocess.run", "p.wait", "thread.join", "os.waitpid", "subprocess.Popen"]
    assert list(endless("subprocess.run(a, timeout=3); p.wait(3); ','.join(words); options.get('a')")) == []


def test_nothing_is_waited_for_without_a_limit() -> None:
    found = {(path.relative_to(TESTS).as_posix(), call) for path in MODULES for call in endless(path.read_text())}
    assert found - {*MAY} == set()
