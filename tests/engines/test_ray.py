"""`--engine ray` on a cluster of three nodes: what threads give, whatever is lost on the way there."""

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray_clusters import add_node, ray_cluster
from work_for_ray import Begun, Killed, Raising, Stays, StaysOn, node_of

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "cli"))
import stores
from running import STEPS, command, forked_command, jsonl, looks, refused, row, run, wait_for
from stores import Proxy
from stores import store as store

import rlcorr_cli
from rlcorr_cli.batch import Shard
from rlcorr_cli.engines import ray_tasks
from rlcorr_cli.engines.engine import AHEAD
from rlcorr_cli.engines.ray_cluster import PACKAGE
from rlcorr_cli.engines.ray_tasks import RayEngine
from rlcorr_cli.engines.remote import WorkerFault
from rlcorr_cli.errors import DataError, UsageError

pytestmark = pytest.mark.xdist_group("ray")
BY_RAY = ("--engine", "ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Iterator[Any]:
    """This process, connected as a program that uses Ray itself is; its workers can import the tests' work."""
    import ray

    environment = {"py_modules": [PACKAGE], "env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}
    ray.init(cluster.address, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    yield cluster
    assert ray.is_initialized()  # whoever has connected disconnects
    ray.shutdown()


@pytest.fixture
def engine(connected: Any) -> Iterator[RayEngine]:
    engine = RayEngine(2, None, prepare="rlcorr_cli.engines.interrupt:check")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real dump, in three files of two row groups each."""
    folder = tmp_path_factory.mktemp("parts")
    table = pq.read_table(STEPS)
    for i, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        pq.write_table(table.take(part), folder / f"{i}.parquet", row_group_size=len(part) // 2 + 1)
    return folder


def shards(n: int) -> list[Shard]:
    return [Shard(index=i, path=f"part-{i}.jsonl", format="jsonl", part=None, n_bytes=1) for i in range(n)]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Minutes of work, in batches of a row."""
    offsets = pa.array(np.arange(0, 4_000_001, 100, dtype=np.int32))
    values = pa.array(-np.random.default_rng(0).random(4_000_000, np.float32))
    column = pa.ListArray.from_arrays(offsets, values)
    path = tmp_path_factory.mktemp("long") / "long.parquet"
    pq.write_table(pa.table({"rollout_log_probs": column, "old_log_probs": column}), path, row_group_size=5000)
    return path


def readers(path: Path) -> list[int]:
    """Workers of Ray that have a file open."""
    processes = (Path("/proc", pid) for pid in os.listdir("/proc") if pid.isdigit())
    return [int(process.name) for process in processes if _is_worker(process) and _has_open(process, path)]


def _is_worker(process: Path) -> bool:
    with suppress(OSError):
        return (process / "cmdline").read_bytes().startswith(b"ray::")
    return False


def _has_open(process: Path, path: Path) -> bool:
    with suppress(OSError):
        return any(os.readlink(link) == str(path) for link in (process / "fd").iterdir())
    return False


@pytest.mark.parametrize(
    ("number", "status", "program"), [(signal.SIGINT, 130, command), (signal.SIGTERM, 143, forked_command)]
)
def test_a_signal_ends_what_runs_on_the_cluster_and_not_the_cluster(
    number: int, status: int, program: Callable[[], str], cluster: Any, long: Path, tmp_path: Path
) -> None:
    arguments = ["analyze", str(long), "--batch-tokens", "100", *BY_RAY, "--ray-address", cluster.address]
    report = tmp_path / "report.json"
    with subprocess.Popen([program(), *arguments, "-o", str(report)], stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(readers(long)) == 2, process)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == status
    assert err == (b"Interrupted: nothing was written.\n" if number == signal.SIGINT else b"")
    assert list(tmp_path.iterdir()) == []
    until(lambda: not readers(long))


def test_the_report_of_a_run_that_lost_a_worker_is_whole(cluster: Any, long: Path) -> None:
    arguments = ["analyze", str(long), "--batch-tokens", "20000", "--json"]
    by_ray = [*arguments, *BY_RAY, "--ray-address", cluster.address]
    workers: list[int] = []

    def reading() -> bool:
        workers[:] = readers(long)
        return bool(workers)

    with subprocess.Popen([forked_command(), *by_ray], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(reading, process)
        os.kill(workers[0], signal.SIGKILL)
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.decode() == run(*arguments).out


def test_the_commands_of_the_manual_run(cluster: Any, dump: Path, tmp_path: Path) -> None:
    """Those of rlcorr: what `ray start` does on each machine is done for the nodes already."""
    page = (Path(PACKAGE) / "manual" / "clusters.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(rlcorr [^#\n]* --engine ray[^#\n]*)", page, re.MULTILINE)
    assert len(lines) == 2
    (tmp_path / "dump").symlink_to(dump)
    for line in lines:
        args = shlex.split(line.replace("head:6379", cluster.address))[1:]
        by_address = {**os.environ, "RAY_ADDRESS": cluster.address}
        done = subprocess.run([forked_command(), *args], cwd=tmp_path, env=by_address, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.usefixtures("connected")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")
def test_the_pipeline_of_the_manual_corrects_as_filter_does(dump: Path, tmp_path: Path) -> None:
    page = (Path(PACKAGE) / "manual" / "clusters.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "dump").symlink_to(dump)
    exec(compile(block.replace('"/shared/', f'"{tmp_path}/'), "clusters.md", "exec"), {})
    corrected = pq.read_table(tmp_path / "corrected").sort_by("sample_id")
    by_filter = tmp_path / "filtered.parquet"
    assert run("filter", str(dump), "--preset", "token_is", "--rejected", "keep", "-o", str(by_filter)).status == 0
    assert corrected.equals(pq.read_table(by_filter).sort_by("sample_id").replace_schema_metadata())


def until(state: Callable[[], bool]) -> None:
    """Longer than any busy machine takes to get there."""
    deadline = time.monotonic() + 120
    for _ in looks(state):
        assert time.monotonic() < deadline


COMMANDS = {
    "analyze": ("analyze", "--group-by", "step", "--preset", "geo_rs"),
    "a batch's mean": ("analyze", "--is", "token", "--is-high", "2", "--normalize", "batch"),
    "compare": ("compare",),
    "check": ("check", "--preset", "token_is"),
}


@pytest.mark.parametrize("command_line", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.usefixtures("connected")
def test_ray_gives_the_report_of_threads_byte_for_byte(
    command_line: tuple[str, ...], dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dump.parent)  # a relative path is meant here, wherever workers are
    name, *options = command_line
    here, there = (run(name, dump.name, *options, "--json", *engine) for engine in (("--engine", "threads"), BY_RAY))
    assert here.out == there.out
    assert (here.status, here.err) == (there.status, there.err)
    assert here.status == 0


@pytest.mark.usefixtures("connected")
def test_ray_filters_the_rows_that_threads_keep(dump: Path, tmp_path: Path) -> None:
    tables = []
    for engine in ("threads", "ray"):
        out = tmp_path / f"{engine}.parquet"
        assert run("filter", str(dump), "--preset", "geo_rs", "-o", str(out), "--engine", engine).status == 0
        tables.append(pq.read_table(out))
    assert 0 < len(tables[0]) < len(pq.read_table(dump))
    assert tables[0].equals(tables[1])


@pytest.mark.usefixtures("connected")
def test_a_bad_row_is_told_in_the_same_two_lines(tmp_path: Path) -> None:
    good = jsonl(tmp_path / "a.jsonl", [row()])
    bad = jsonl(tmp_path / "b.jsonl", [row(), row(rollout=[0.5, -1.0])])
    here, there = (run("analyze", good, bad, "--engine", engine) for engine in ("threads", "ray"))
    refused(there, 3, "b.jsonl, line 2")
    assert here == there


@pytest.mark.usefixtures("connected")
def test_workers_read_a_store_by_the_drivers_variables(dump: Path, store: Proxy) -> None:
    uris = [stores.put(store.endpoint, f"on-ray/{path.name}", path) for path in sorted(dump.iterdir())]
    here, there = (run("analyze", *paths, "--json", *BY_RAY).json for paths in (sorted(map(str, dump.iterdir())), uris))
    assert [source.pop("path") for source in there["inputs"]] == uris
    assert len([source.pop("path") for source in here["inputs"]]) == 3
    assert there["metrics"] == here["metrics"]


def test_shards_run_on_both_nodes(engine: RayEngine) -> None:
    assert len(set(engine.map(shards(40), node_of))) == 2


def test_only_so_many_shards_are_begun_before_results_are_taken(engine: RayEngine, tmp_path: Path) -> None:
    results = engine.map(shards(60), Begun(tmp_path))
    assert next(results) == 0
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) <= AHEAD * engine.workers + 1
    assert list(results) == list(range(1, 60))


EXPECTED = [[f"{i} first", f"{i} second"] for i in range(6)]


def test_the_shard_of_a_killed_worker_runs_again_and_counts_once(engine: RayEngine, tmp_path: Path) -> None:
    assert [list(results) for results in engine.stream(shards(6), Killed(tmp_path, 3, 1))] == EXPECTED
    assert len(list(tmp_path.iterdir())) == 1


def test_a_shard_that_is_the_end_of_three_workers_is_named(engine: RayEngine, tmp_path: Path) -> None:
    results: list[list[str]] = []
    with pytest.raises(DataError, match=r"part-3.jsonl: 3 workers were lost .*; the last one was killed"):
        results.extend(map(list, engine.stream(shards(6), Killed(tmp_path, 3, 9))))
    assert len(list(tmp_path.iterdir())) == 3
    assert results == EXPECTED[:3]


def test_what_a_node_took_with_it_runs_again_on_others(connected: Any, engine: RayEngine, tmp_path: Path) -> None:
    node = add_node(connected)
    work = StaysOn(node.node_id, tmp_path)

    def remove() -> None:
        until(lambda: any(tmp_path.iterdir()))
        connected.remove_node(node)

    remover = threading.Thread(target=remove)
    remover.start()
    engine.workers = 3
    assert list(engine.map(shards(12), work)) == list(range(12))
    remover.join()
    assert any(tmp_path.iterdir())


def test_no_task_is_at_work_after_the_end_of_its_run(engine: RayEngine, tmp_path: Path) -> None:
    results = engine.map(shards(3), Stays(tmp_path))
    assert next(results) == 0
    until(lambda: any(tmp_path.iterdir()))
    results.close()
    assert not any(Path("/proc", number.name).exists() for number in tmp_path.iterdir())


@pytest.mark.usefixtures("connected")
def test_a_run_without_a_node_to_work_on_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise InterruptedError(record.getMessage())

    stop = Stop()
    monkeypatch.setattr(ray_tasks, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(logging.getLogger(ray_tasks.__name__), "handlers", [stop])
    on_gpus = RayEngine(2, None, prepare="", on_gpus=True)
    with pytest.raises(InterruptedError, match=r"No node of the Ray cluster has a GPU: this run waits for one"):
        next(on_gpus.map(shards(2), node_of))


def test_an_error_for_a_user_comes_back_as_it_was_raised(engine: RayEngine) -> None:
    with pytest.raises(DataError) as caught:
        list(engine.map(shards(6), Raising(DataError("part-2.jsonl, line 3: x is NaN.", "Look at it."))))
    assert (caught.value.message, caught.value.hint) == ("part-2.jsonl, line 3: x is NaN.", "Look at it.")


def test_a_fault_of_ours_comes_back_with_its_traceback(engine: RayEngine) -> None:
    with pytest.raises(WorkerFault, match=r"(?s)in a worker:.*work_for_ray.py.*ZeroDivisionError: by zero"):
        list(engine.map(shards(6), Raising(ZeroDivisionError("by zero"))))


@pytest.mark.usefixtures("connected")
def test_a_path_that_a_node_does_not_see_is_told_with_the_node(dump: Path) -> None:
    """What is open here is open in no other process, and there its name is of something else, or of nothing."""
    folder = os.open(dump, os.O_RDONLY)
    high = os.dup2(folder, 900)
    said = run("analyze", f"/proc/self/fd/{high}/0.parquet", *BY_RAY)
    os.close(folder)
    os.close(high)
    refused(said, 3, " of the Ray cluster does not see /proc/self/fd/900/0.parquet.", "storage that all nodes share")


@pytest.mark.usefixtures("connected")
def test_an_address_is_refused_where_ray_is_connected_already() -> None:
    refused(run("analyze", STEPS, *BY_RAY, "--ray-address", "local"), 2, "Ray is connected already.")
    with pytest.raises(UsageError, match="ray_address is a string"):
        rlcorr_cli.analyze(STEPS, ray_address="local")
