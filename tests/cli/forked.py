"""The command as a process of its own, without the time that it takes to import: `forked_command()`.

A server that has imported all of rlcorr forks for every command.  A client, 20 ms to start, hands it its arguments,
environment, directory, limits and open files, passes signals on (`Process` sends them itself), and ends as the forked
process ends.  So a test sees all that the console script does in main(), which ends the process.  Only how Python sets
itself up is not looked at: tests of PYTHONIOENCODING, of imports, of memory, and some of everything else take the
installed command.
Called as `python -c CODE` it runs the code: so it stands for the Python that worker processes are started with, in
`forked_workers` and in every command that is itself forked.  Ray starts a cluster of its own with more than that: it
takes the installed command, too.
"""

import fcntl
import gc
import json
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TextIO
from uuid import uuid4

sys.path.append(str(Path(__file__).parents[1]))  # a script sees its own folder alone
from limits import LIMIT_SECONDS, LimitedProcess

MOST_FILES = 16
PREFIX = "rlcorr-forked-"
CLIENT = """\
import array, fcntl, json, os, signal, socket, struct, sys
def is_open(stream):
    try:
        fcntl.fcntl(stream, fcntl.F_GETFD)
    except OSError:
        return False
    return True
numbers = [number for number in sorted(map(int, os.listdir("/proc/self/fd"))) if is_open(number)]
# Where a stream is closed, the socket would get its number, and go as that stream.
low = socket.socket(socket.AF_UNIX)
server = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
low.close()
server.connect({address!r})
request = json.dumps([numbers, os.getpid(), sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
streams = array.array("i", numbers)
server.sendmsg([struct.pack("=q", len(request))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(request)
for stream in streams:
    os.close(stream)
(pid,) = struct.unpack("=q", server.recv(8, socket.MSG_WAITALL))
with open("/proc/self/comm", "w") as name:
    name.write(str(pid))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
(status,) = struct.unpack("=q", server.recv(8, socket.MSG_WAITALL))
if os.WIFSIGNALED(status):
    if os.WTERMSIG(status) != signal.SIGKILL:
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.WEXITSTATUS(status))
"""


@lru_cache
def forked_command(*modules: str) -> str:
    """What to run instead of `rlcorr`.  Its server starts with the first call in a run of pytest, for all processes of
    pytest-xdist, and ends with the last of those that called.

    modules: what the server has imported, in place of all of rlcorr.
    """
    # Not in TMPDIR, which a test may have set: a socket's path has to be short.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid4().hex)
    folder = Path("/tmp", PREFIX + "-".join((run, *modules)))
    with _locked():
        if folder.exists():
            _HELD.append(os.open(folder / "held", os.O_WRONLY | os.O_NONBLOCK))
        else:
            folder.mkdir(0o700)
            try:
                _start_server(folder, modules)
            except BaseException:
                shutil.rmtree(folder)  # where others would wait for it
                raise
    return str(folder / "rlcorr")


_HELD: list[int] = []
"""Our end of the server's stdin.  Nothing is ever written to it; it closes however this process ends."""
_SERVERS: list[LimitedProcess] = []


@contextmanager
def _locked() -> Generator[None]:
    """Alone among those that start a server, or end theirs."""
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start_server(folder: Path, modules: Sequence[str]) -> None:
    path, address = folder / "rlcorr", str(folder / "socket")
    path.write_text(f"#!{sys.executable} -ISE\n" + CLIENT.format(address=address))
    path.chmod(0o755)
    os.mkfifo(folder / "held")
    stdin = os.open(folder / "held", os.O_RDONLY | os.O_NONBLOCK)
    _HELD.append(os.open(folder / "held", os.O_WRONLY))
    arguments = [sys.executable, __file__, address, *modules]
    server = LimitedProcess(arguments, stdin=stdin, stdout=subprocess.PIPE, start_new_session=True)
    os.close(stdin)
    _SERVERS.append(server)
    assert server.first_line() == b"ready\n"


class Process(LimitedProcess):
    """A process that a test or an engine starts.  A forked command itself has the signal, when send_signal returns,
    and is gone when wait() returns: after a SIGKILL, too, which its client could not pass on."""

    @property
    def command_pid(self) -> int:
        """The command's process; 0 where it is not forked yet."""
        pid = pid_behind(self.pid)
        is_client = Path(self.args[0]).parent.name.startswith(PREFIX)
        return 0 if is_client and pid == self.pid else pid

    def send_signal(self, sig: int) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.poll() is None and not self.command_pid:
            assert time.monotonic() < deadline, "the command is not forked"
            time.sleep(0.001)
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.command_pid, sig)


def pid_behind(pid: int) -> int:
    """The process that a client stands for, or the process itself where it is no client, or gone."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return pid
    return int(name) if name.isdigit() else pid


@contextmanager
def forked_workers() -> Generator[None]:
    """Worker processes that need not import anything anew: for what they compute, not for how they are started."""
    before = sys.executable, subprocess.Popen
    sys.executable, subprocess.Popen = forked_command(), Process
    try:
        yield
    finally:
        sys.executable, subprocess.Popen = before


def serve(address: str, *modules: str) -> list[str]:
    """Fork for every client until stdin closes.  Returns in the forked processes, with a command's arguments."""
    _import_all(*modules)
    gc.freeze()  # a collection in a forked process would copy every page that it looks at
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
    sys.executable, subprocess.Popen = str(Path(address).with_name("rlcorr")), Process
    print("ready", flush=True)
    while listener not in select.select([0, listener], [], [])[0] or (args := _answered(listener)) is None:
        if select.select([0], [], [], 0)[0]:
            with _locked():
                if select.select([0], [], [], 0)[0]:  # and nobody came meanwhile
                    shutil.rmtree(Path(address).parent)
                    sys.exit()
    return args


def _import_all(*modules: str) -> None:
    """modules: in place of all of rlcorr."""
    for module in modules or _own_modules():
        with suppress(ImportError):  # an optional dependency
            import_module(module)
    # A fork has but the thread that forks.  jemalloc, which is in pyarrow, starts its own anew.
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")} - {"jemalloc_bg_thd"}
    assert len(threads) == 1, threads


def _own_modules() -> list[str]:
    import rlcorr_cli

    names = [module.name for module in pkgutil.walk_packages(rlcorr_cli.__path__, "rlcorr_cli.")]
    # And pytest: modules of tests whose work is sent to workers import it.
    return ["pytest", *(name for name in names if not name.endswith("__main__"))]


def _answered(listener: socket.socket) -> list[str] | None:
    """The arguments in the command's process; None in the server, once a waiting process is forked off."""
    client, _ = listener.accept()
    if os.fork():
        client.close()
        return None
    listener.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(client, 8, MOST_FILES)
    request = client.recv(struct.unpack("=q", size)[0], socket.MSG_WAITALL)
    if pid := os.fork():
        for stream in (0, 1, 2, *streams):
            os.close(stream)
        client.sendall(struct.pack("=q", pid))
        handle = os.pidfd_open(pid)
        if client in select.select([client, handle], [], [])[0]:  # a client that is killed takes its command with it
            os.kill(pid, signal.SIGKILL)
            os._exit(1)
        client.sendall(struct.pack("=q", os.waitpid(pid, 0)[1]))
        os._exit(0)
    client.close()
    return _taken_over(streams, *json.loads(request))


def _taken_over(
    streams: list[int], numbers: list[int], client: int, args: list[str], environment: dict[str, str], folder: str
) -> list[str]:
    """Be what the client's own process would be; a stream that it has closed is closed here, too."""
    for number, stream in zip(numbers, [_moved(stream) for stream in streams], strict=True):
        os.dup2(stream, number)
        os.close(stream)
    for number in {0, 1, 2}.difference(numbers):
        os.close(number)
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.prlimit(client, resource.RLIMIT_FSIZE))
    sys.dont_write_bytecode = True  # under that limit Python cuts byte code short, and keeps it for all who come after
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["rlcorr", *args]
    stdin = open(0, encoding="utf-8", closefd=False) if 0 in numbers else None  # noqa: SIM115  # stays open
    sys.stdin = sys.__stdin__ = stdin
    sys.stdout = sys.__stdout__ = _text(1, "strict") if 1 in numbers else None
    sys.stderr = sys.__stderr__ = _text(2, "backslashreplace") if 2 in numbers else None
    return args


def _moved(stream: int) -> int:
    """Where no number is that a client's file may have."""
    moved = fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 1000)
    os.close(stream)
    return moved


def _text(number: int, errors: str) -> TextIO:
    buffering = 1 if os.isatty(number) or number == 2 else -1
    return open(number, "w", buffering, encoding="utf-8", errors=errors, closefd=False)


if __name__ == "__main__":
    arguments = serve(*sys.argv[1:])
    if arguments[:1] == ["-c"]:
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
        sys.exit()
    from rlcorr_cli.commands.main import main

    main(arguments)
