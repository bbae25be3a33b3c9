"""Which cluster `--engine ray` takes, what it says where there is none, and what one of its own leaves: nothing."""

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray_clusters import readers

from rlcorr_cli.engines.processes import packed, unpacked
from rlcorr_cli.engines.ray_worker import Reading, packed_shard, run_shard
from rlcorr_cli.files.disk import DISK
from rlcorr_cli.reading.batch import Shard

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import BF16, Process, command, refused, run, run_installed, wait_for

pytestmark = pytest.mark.xdist_group("ray")
BY_RAY = ("--engine", "ray")
SAID = {signal.SIGINT: b"Interrupted: nothing was written.\n", signal.SIGTERM: b""}


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where something listens that is not Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused(run("analyze", BF16, *BY_RAY), 2, "Ray, which is not installed", "pip install 'rlcorr[ray]'")


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:8265", "ray://127.0.0.1:10001", "host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    refused(run("analyze", BF16, *BY_RAY, "--ray-address", address), 2, "is not an address", "HOST:PORT")


def test_an_address_where_no_cluster_answers_is_named(
    closed: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcorr_cli.engines.ray_cluster.ANSWER_SECONDS", 0.2)
    for address in (closed, silent):
        refused(run("analyze", BF16, *BY_RAY, "--ray-address", address), 2, f"No Ray cluster answers at {address}.")
    monkeypatch.setenv("RAY_ADDRESS", closed)
    refused(run("analyze", BF16, *BY_RAY), 2, f"No Ray cluster answers at {closed}.", "RAY_ADDRESS")


def test_an_address_goes_with_the_engine() -> None:
    refused(run("analyze", BF16, "--ray-address", "local"), 2, "--ray-address is a string that goes with --engine ray.")


@pytest.fixture
def places() -> Iterator[dict[str, str]]:
    """A home, and a folder for temporary files with a short name, since sockets lie below."""
    with TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        for name in ("home", "tmp"):
            Path(folder, name).mkdir()
        yield {"HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp", "RAY_ADDRESS": "local"}


def left_in(places: dict[str, str]) -> list[str]:
    """Files, and processes of a cluster."""
    folder = str(Path(places["HOME"]).parent)
    files = [str(path) for name in ("HOME", "TMPDIR") for path in Path(places[name]).rglob("*")]
    return [*files, *(pid for pid in os.listdir("/proc") if pid.isdigit() and folder in _command_line(pid))]


def _command_line(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_a_cluster_of_its_own_gives_the_report_of_threads_and_leaves_nothing(places: dict[str, str]) -> None:
    here = run("analyze", BF16, "--json")
    there = run_installed("analyze", BF16, "--json", *BY_RAY, "--workers", "1", env=places)
    assert (there.status, there.err, there.out) == (0, "", here.out)
    assert left_in(places) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)], ids=["of a terminal", "of a scheduler"]
)
def test_a_signal_while_a_cluster_of_its_own_starts_leaves_nothing(
    number: signal.Signals, send: Callable[[int, int], None], places: dict[str, str]
) -> None:
    arguments, env = [command(), "analyze", BF16, *BY_RAY, "--workers", "1"], {**os.environ, **places}
    with Process(arguments, stderr=subprocess.PIPE, env=env, start_new_session=True) as process:
        wait_for(lambda: any("session" in path for path in left_in(places)), process)
        send(process.pid, number)
        _, err = process.communicate()
    assert (process.returncode, err) == (128 + number, SAID[number])
    assert left_in(places) == []


@pytest.mark.full
@pytest.mark.parametrize("killed", ["raylet", "the run itself"])
def test_where_the_process_of_a_run_is_lost_the_status_is_3_and_nothing_is_left(
    killed: str, places: dict[str, str], tmp_path: Path
) -> None:
    (out := tmp_path / "out").mkdir()
    rows = {name: [[-0.5, -1.0]] * 200_000 for name in ("rollout_log_probs", "old_log_probs")}
    pq.write_table(pa.table(rows), dump := tmp_path / "dump.parquet", row_group_size=200_000)
    arguments = ["filter", str(dump), "--preset", "geo_rs", "--batch-tokens", "2", "-o", str(out / "kept.parquet")]
    by_ray = [command(), *arguments, *BY_RAY, "--workers", "1"]
    with Process(by_ray, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **places}) as process:
        wait_for(lambda: bool(readers(dump)), process)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        own = {pid: _command_line(pid) for pid in left_in(places) if pid.isdigit()}
        (raylet,) = (pid for pid, line in own.items() if line.partition("\0")[0].endswith("/raylet"))
        os.kill(int(raylet if killed == "raylet" else child), signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == 3, err
    assert b"Ray cluster" in err
    assert list(out.iterdir()) == []
    assert left_in(places) == []


def state_of(shard: Shard) -> Iterator[tuple[object, ...]]:
    """What work finds."""
    yield (shard.stamp, os.getcwd(), os.environ.get("AWS_REGION"), os.environ.get("AWS_SESSION_TOKEN"))


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(
        work=packed(state_of),
        needed=("pickle", "pyarrow", "torch"),
        directory=str(tmp_path),
        variables={"AWS_REGION": "there", "AWS_SESSION_TOKEN": None},
    )


def shard_of(path: Path) -> Shard:
    return Shard(index=0, path=path.name, format="jsonl", part=None, n_bytes=1, stamp=DISK.stamp(str(path)))


def test_a_node_works_in_the_drivers_folder_and_by_its_variables(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the node")
    monkeypatch.delenv("AWS_REGION", raising=False)
    before = os.getcwd()
    (tmp_path / "a.jsonl").write_text("{}")
    _, (outcome,) = run_shard(reading, packed_shard(shard_of(tmp_path / "a.jsonl")))
    assert unpacked(outcome)[1:] == (str(tmp_path), "there", None)
    assert (os.getcwd(), os.environ["AWS_SESSION_TOKEN"], "AWS_REGION" in os.environ) == (before, "of the node", False)


def test_a_file_is_the_same_on_a_node_whatever_numbers_its_file_system_has_there(
    reading: Reading, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}")
    shard = shard_of(path)
    assert shard.stamp is not None
    of_driver = replace(shard, stamp=(1, 2, *shard.stamp[2:]), companions=(("b.jsonl", (1, 2, 3, 4)),))
    view, (outcome,) = run_shard(reading, packed_shard(of_driver))
    assert unpacked(outcome)[0] == shard.stamp
    assert (view.unseen, view.unlike) == (("b.jsonl",), ())
    path.write_text("{} ")
    view, _ = run_shard(reading, packed_shard(of_driver))
    assert view.unlike == ("a.jsonl",)


def test_what_a_node_lacks_is_told(reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    view, outcomes = run_shard(reading, pickle.dumps(None))
    assert (view.lacks, outcomes) == (("pyarrow", "torch"), [])
    assert socket.gethostname() in view.node
