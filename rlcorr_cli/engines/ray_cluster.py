"""A Ray cluster to work on: the one that is named, else one that runs, else one of this run's own.

A cluster of this run's own leaves nothing behind: its processes end with the run, its folder is removed, and its token
is kept in memory alone.  Another's cluster is left as it is.

Runs on Ray go on in a child process (`fork`), so that the exit status is always one of ours.  Where its raylet dies,
Ray's library ends the process that uses it at once, with a status of its own: 1, which means of `check` that a rule
failed.  So the run goes on in a child, which says its status before it ends; where it did not, the parent says so, and
removes what was left behind.  Signals are passed on: one that was sent to both reaches the child twice, and counts
once.
"""

import ctypes
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from mmap import mmap
from pathlib import Path
from typing import Any

import rlcorr_cli
from rlcorr_cli.engines import interrupt
from rlcorr_cli.errors import DataError, UsageError, shortened
from rlcorr_cli.files.destinations import sweep
from rlcorr_cli.frozen import frozen

Ray = Any
"""The package `ray`, imported when it is asked for."""
ANSWER_SECONDS = 5
ADDRESS = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}")
HTTP2_SETTINGS = b"\x04"
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + HTTP2_SETTINGS + bytes(5)
"""What begins a connection, to which the other side answers with a frame of that kind."""
FOLDER = "rlcorr-"
"""What the name of a cluster's folder begins with; the number of the run's process follows."""
LONGEST_FOLDER = 32
"""Characters: Ray puts sockets below, whose names the system takes up to 107."""
QUIET = {"log_to_driver": False, "logging_level": "CRITICAL"}
SENT_WITHOUT = ["__pycache__", "manual", "*.md"]
"""What of the package no worker needs."""
PACKAGE = str(Path(rlcorr_cli.__file__).parent)


@frozen(kw_only=True)
class Cluster:
    """A connection.  address: for messages.  ours: whether this run connected; folder: of a cluster of its own."""

    ray: Ray
    address: str
    ours: bool
    folder: str | None = None

    def size(self, *, on_gpus: bool) -> int:
        """How many cores it has now, or GPUs."""
        resource = "GPU" if on_gpus else "CPU"
        n = int(self.ray.cluster_resources().get(resource, 0))
        if n == 0:
            what = f"The Ray cluster at {self.address} has no {resource}."
            raise UsageError(what, "Where it adds nodes when they are asked for, say how many with ⟦workers⟧.")
        return n

    def close(self) -> None:
        """Disconnect, and end what this run has started."""
        if self.ours:
            self.ray.shutdown()
        if self.folder is not None:
            _remove(self.folder)


def connected(address: str | None, workers: int) -> Cluster:
    """The cluster at an address, 'local' for one of this run's own with so many workers; None: as RAY_ADDRESS says,
    else one that this machine is a node of, else one of its own."""
    ray = imported()
    if ray.is_initialized():
        if address is not None:
            raise UsageError("Ray is connected already.", "Leave ray_address out, or call ray.shutdown() before.")
        return Cluster(ray=ray, address="which this process is connected to", ours=False)
    named = address or os.environ.get("RAY_ADDRESS") or "auto"
    if named == "auto":
        named = _address_of_node() or "local"
    if named == "local":
        return _local(ray, workers)
    if not ADDRESS.fullmatch(named):
        raise UsageError(
            f"{shortened(named)} is not an address that a node of a Ray cluster connects to.",
            "Write HOST:PORT of its head (port 6379 as a rule), or local; from elsewhere, submit a job to the cluster "
            "(`rlcorr help clusters`).",
        )
    if not _answers(named):
        hint = "Is the cluster up, and this HOST:PORT of its head (6379 as a rule)?  RAY_ADDRESS is looked at, too."
        raise UsageError(f"No Ray cluster answers at {shortened(named, quotes=False)}.", hint)
    try:
        _init(ray, named)
    except ConnectionError as error:
        what = f"What answers at {named} is not a cluster that Ray {ray.__version__} can join."
        hint = "Does the cluster have the same Ray and Python, and is this HOST:PORT of its head (6379 as a rule)?"
        raise UsageError(what, hint) from error
    return Cluster(ray=ray, address=named, ours=True)


def imported() -> Ray:
    """Ray, or what to install."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError("⟦engine ray⟧ needs Ray, which is not installed.", "pip install 'rlcorr[ray]'.") from error
    return ray


def _address_of_node() -> str | None:
    """The address of the cluster that `ray start` made this machine a node of, if it still answers."""
    folders = (os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR"), "/tmp")
    for folder in filter(None, folders):
        with suppress(OSError):
            address = Path(folder, "ray", "ray_current_cluster").read_text(encoding="utf-8").strip()
            if ADDRESS.fullmatch(address) and _answers(address):
                return address
    return None


def _answers(address: str) -> bool:
    """Whether anything at an address speaks as Ray does, which is HTTP/2: Ray itself would go on asking for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return True
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(HTTP2_GREETING)
            return connection.recv(4)[3:] == HTTP2_SETTINGS
    except (OSError, OverflowError):
        return False


def _local(ray: Ray, workers: int) -> Cluster:
    """A cluster of this run's own."""
    above = tempfile.gettempdir()
    if len(above) > LONGEST_FOLDER and os.access("/tmp", os.W_OK):
        above = "/tmp"
    folder = tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=above)
    # Ray takes a token from this process, where it would write a new one into the home folder.
    kept = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if not kept.exists():
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        _init(ray, "local", num_cpus=workers, include_dashboard=False, _temp_dir=folder)
    except BaseException:
        # Where an interrupt came, Ray does not know yet what it has started.
        end_cluster(folder)
        raise
    return Cluster(ray=ray, address="local", ours=True, folder=folder)


def _init(ray: Ray, address: str, **more: Any) -> None:
    sent = {"py_modules": [PACKAGE], "excludes": SENT_WITHOUT}
    # Ray prints to stdout what became of workers, log_to_driver or not, and there it would stand within a report.  What
    # prints has no switch, so it is taken out of the module that looks it up; the driver tells of lost workers.
    worker: Any = import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None
    try:
        with _own_signals():
            ray.init(address=address, runtime_env=sent, **QUIET, **more)
    except ConnectionError:
        raise
    except (RuntimeError, ValueError, AssertionError, OSError, ray.exceptions.RayError) as error:
        raise _refused(address, str(error)) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # So Ray says that one of the processes that it started is gone.
        what = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise DataError(f"The Ray cluster did not start: {what[:300]}.", "Run it again.") from error


def broken(error: Exception) -> UsageError | DataError | None:
    """What became of a cluster, where an error of Ray's tells; None of one that is a fault of ours."""
    text = " ".join(str(error).split())
    if "No module named 'rlcorr_cli'" in text:
        what = "The workers of the Ray cluster that this process is connected to have no rlcorr."
        return UsageError(what, "Install it there, or connect with ray.init(runtime_env={'py_modules': [rlcorr_cli]}).")
    if type(error).__name__ == "RuntimeEnvSetupError":
        return UsageError(f"A node of the Ray cluster could not take rlcorr's code: {text[:300]}", "See its logs.")
    if type(error).__name__ in ("LocalRayletDiedError", "RaySystemError", "RpcError"):
        return DataError(f"The connection to the Ray cluster is lost: {text[:300]}", "Is it still up?  Run it again.")
    return None


def _refused(address: str, text: str) -> UsageError:
    """What Ray says of a cluster that it does not connect to, in two lines."""
    text = " ".join(text.split())
    if "ersion mismatch" in text:
        cluster, here = (re.findall(rf"{name}: ([\w.]+)", text) for name in ("Ray", "Python"))
        theirs, ours = (f"Ray {ray} and Python {python}" for ray, python in zip(cluster, here, strict=False))
        hint = "Run rlcorr with the cluster's own, such as by `ray job submit -- rlcorr …`."
        return UsageError(f"The Ray cluster at {address} has {theirs}, this process {ours}.", hint)
    what = "No Ray cluster could be started" if address == "local" else f"No connection to the Ray cluster at {address}"
    return UsageError(
        f"{what}: {text.split('. ')[0][:300].rstrip('.')}.",
        "rlcorr must run on a node of the cluster, such as its head.",
    )


@contextmanager
def _own_signals() -> Generator[None]:
    """Ray would take SIGTERM over as it starts, and make a SystemExit of it, or a trace of C; it stays ours."""
    before = signal.getsignal(signal.SIGTERM)
    utils: Any = import_module("ray._private.utils")
    taking_over, utils.set_sigterm_handler = getattr(utils, "set_sigterm_handler", None), lambda _: None
    try:
        yield
    except SystemError:
        interrupt.check()  # what a signal's handler raises within Ray, it makes this of
        raise
    finally:
        utils.set_sigterm_handler = taking_over
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def end_cluster(folder: str) -> None:
    """End the processes of a cluster whose folder this is, and remove it; where the system does not list them, they end
    with us."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if folder.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
    _remove(folder)


def _remove(folder: str) -> None:
    """Again where a process that is about to end still writes into it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.05)


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
        for own in folder.glob(f"{FOLDER}{child}-*"):
            end_cluster(str(own))
    places = [Path(text.rpartition("=")[2]) for text in named]
    sweep({Path(tempfile.gettempdir()), *places, *(place.parent for place in places)})
    if os.WTERMSIG(ended) in interrupt.ENDING:  # for a moment as it connects, Ray has a handler of its own
        raise interrupt.Terminated(os.WTERMSIG(ended))
    raise DataError(
        "The connection to the Ray cluster is lost: the process of this run ended without a result.",
        "Is the cluster still up, and did its nodes have enough memory?  Check which outputs exist, then run it again.",
    )
