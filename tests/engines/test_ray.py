"""`--engine ray` on a cluster of three nodes: what threads give, whatever is lost on the way there."""

import json
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
from limits import LIMIT_SECONDS
from ray_clusters import add_node, ray_cluster, readers
from work_for_ray import Begun, Killed, OnTwoNodes, Raising, Stays, StaysOn, node_of

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "cli"))
import stores
from running import STEPS, Process, command, forked_command, jsonl, refused, row, run, until, wait_for
from stores import Proxy, get, keys, server, store as store

import rlcorr_cli
from rlcorr_cli.engines import interrupt, ray_tasks
from rlcorr_cli.engines.in_order import AHEAD
from rlcorr_cli.engines.processes import WorkerFault
from rlcorr_cli.engines.ray_cluster import PACKAGE
from rlcorr_cli.engines.ray_tasks import RayEngine
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.datasets import SEAL

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.full]
BY_RAY = ("--engine", "ray")
GEO = ("--preset", "geo_rs")
N_ROWS = 20_000


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
    engine = RayEngine(2, None, prepare=interrupt.check)
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


def written(path: Path, n_rows: int, row_group_size: int) -> Path:
    """A file of sequences of a hundred tokens."""
    offsets = pa.array(np.arange(0, 100 * n_rows + 1, 100, dtype=np.int32))
    rng = np.random.default_rng(0)
    rollout = -rng.random(100 * n_rows, np.float32)
    old = np.minimum(rollout + np.float32(0.01) * rng.standard_normal(len(rollout), np.float32), 0)
    columns = {"rollout_log_probs": rollout, "old_log_probs": old}
    lists = {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()}
    pq.write_table(pa.table(lists), path, row_group_size=row_group_size)
    return path


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Minutes of work, in batches of a row."""
    return written(tmp_path_factory.mktemp("long") / "long.parquet", 40_000, 5000)


@pytest.fixture(scope="module")
def short_and_long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is done at once, and one of seconds of work in batches of a few rows."""
    folder = tmp_path_factory.mktemp("long")
    written(folder / "0.parquet", 3, 3)
    written(folder / "1.parquet", N_ROWS, N_ROWS)
    return folder


@pytest.mark.parametrize(
    ("number", "workers", "program"), [(signal.SIGINT, 2, command), (signal.SIGTERM, 1, forked_command)]
)
def test_a_signal_ends_what_runs_on_the_cluster_and_not_the_cluster(
    number: signal.Signals, workers: int, program: Callable[[], str], cluster: Any, long: Path, tmp_path: Path
) -> None:
    arguments = ["analyze", str(long), "--batch-tokens", "100", "--workers", str(workers), *BY_RAY]
    given = [*arguments, "--ray-address", cluster.address, "-o", str(tmp_path / "report.json")]
    with Process([program(), *given], stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(readers(long)) == workers, process)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 128 + number
    assert err == (b"Interrupted: nothing was written.\n" if number == signal.SIGINT else b"")
    assert list(tmp_path.iterdir()) == []
    until(lambda: not readers(long))


def test_the_report_of_a_run_that_lost_a_worker_is_whole(cluster: Any, tmp_path: Path) -> None:
    long = written(tmp_path / "long.parquet", 20_000, 5000)
    arguments = ["analyze", str(long), "--batch-tokens", "20000", "--json"]
    by_ray = [*arguments, *BY_RAY, "--ray-address", cluster.address]
    workers: list[int] = []

    def reading() -> bool:
        workers[:] = readers(long)
        return bool(workers)

    with Process([forked_command(), *by_ray], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(reading, process)
        os.kill(workers[0], signal.SIGKILL)
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.decode() == run(*arguments).out


def started(cluster: Any, dump: Path, out: Path, batch_tokens: int) -> Process:
    args = ["filter", str(dump), "--preset", "token_is", "--batch-tokens", str(batch_tokens), "-o", str(out)]
    by_ray = [*BY_RAY, "--workers", "1", "--ray-address", cluster.address]
    return Process([forked_command(), *args, *by_ray], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def writes_the_long_one(dump: Path, folder: Path) -> bool:
    """Whether the short file's part is whole, and a worker reads the long one."""
    return any(folder.glob(".rlcorr-*/part-00000.parquet")) and bool(readers(dump / "1.parquet"))


def test_the_part_of_a_killed_task_is_written_again(cluster: Any, short_and_long: Path, tmp_path: Path) -> None:
    with started(cluster, short_and_long, tmp_path / "out", 4000) as process:
        wait_for(lambda: writes_the_long_one(short_and_long, tmp_path), process)
        os.kill(readers(short_and_long / "1.parquet")[0], signal.SIGKILL)
        _, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    seal = json.loads((tmp_path / "out" / SEAL).read_text())
    assert [part["rows"] for part in seal["parts"]] == [3, N_ROWS]
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        SEAL,
        "out",
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert len(pq.read_table(tmp_path / "out" / "part-00001.parquet")) == N_ROWS


def test_a_kill_half_way_leaves_no_directory_and_the_next_run_no_litter(
    cluster: Any, short_and_long: Path, dump: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    with started(cluster, short_and_long, folder / "out", 100) as process:
        wait_for(lambda: writes_the_long_one(short_and_long, folder), process)
        process.kill()
        process.communicate()
    until(lambda: not readers(short_and_long / "1.parquet"))  # Ray ends the tasks of a driver that is gone
    (litter,) = folder.iterdir()
    assert litter.name.startswith(".rlcorr-")
    assert not (litter / SEAL).exists()
    assert run("filter", str(dump), *GEO, "-o", str(folder / "out")).status == 0
    assert [path.name for path in folder.iterdir()] == ["out"]


def test_the_commands_of_the_manual_run(cluster: Any, dump: Path, tmp_path: Path) -> None:
    """Those of rlcorr: what `ray start` does on each machine is done for the nodes already."""
    page = (Path(PACKAGE) / "manual" / "clusters.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(rlcorr [^#\n]* --engine ray[^#\n]*)", page, re.MULTILINE)
    assert len(lines) == 2
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "0.parquet").symlink_to(dump / "0.parquet")
    for line in lines:
        args = shlex.split(line.replace("head:6379", cluster.address))[1:]
        by_address = {**os.environ, "RAY_ADDRESS": cluster.address}
        done = subprocess.run(
            [forked_command(), *args], cwd=tmp_path, env=by_address, capture_output=True, timeout=LIMIT_SECONDS
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.usefixtures("connected")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")
def test_the_pipeline_of_the_manual_corrects_as_filter_does(dump: Path, tmp_path: Path) -> None:
    page = (Path(PACKAGE) / "manual" / "clusters.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "dump").symlink_to(dump)
    exec(compile(block.replace('"/shared/', f'"{tmp_path}/'), "clusters.md", "exec"), {})
    assert not [thread.name for thread in threading.enumerate() if "usage" in thread.name]  # tests/conftest.py says why
    corrected = pq.read_table(tmp_path / "corrected").sort_by("sample_id")
    by_filter = tmp_path / "filtered.parquet"
    assert run("filter", str(dump), "--preset", "token_is", "--rejected", "keep", "-o", str(by_filter)).status == 0
    assert corrected.equals(pq.read_table(by_filter).sort_by("sample_id").replace_schema_metadata())


COMMANDS = {
    "analyze": ("analyze", "--group-by", "step", "--preset", "geo_rs"),
    "a batch's mean": ("analyze", "--is", "token:,2", "--normalize", "batch"),
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


def joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(table.replace_schema_metadata() for table in tables)


@pytest.mark.usefixtures("connected")
def test_tasks_write_the_parts_that_one_process_writes(
    dump: Path, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dump").symlink_to(dump)
    monkeypatch.chdir(tmp_path)  # a relative path is meant here, wherever workers are
    for name, engine in (("one", "threads"), ("many", "ray")):
        apart = ("-o", name, "--rejected-output", f"{name}-rejected")
        assert run("filter", "dump", *GEO, *apart, "--engine", engine).status == 0
    ran = run("filter", "dump", *GEO, "-o", "s3://dumps/by-ray/kept", "--engine", "ray")
    assert ran.status == 0, ran.err
    for name in ("", "-rejected"):
        one, many = (
            joined([pq.read_table(p) for p in sorted(Path(f"{of}{name}").glob("*.parquet"))]) for of in ("one", "many")
        )
        assert many.equals(one)
        assert len(json.loads(Path(f"many{name}", SEAL).read_text())["parts"]) == 3
    stored = [key for key in keys(server(), "by-ray") if key.endswith(".parquet")]
    assert joined([pq.read_table(pa.BufferReader(get(server(), key))) for key in stored]).equals(
        joined([pq.read_table(p) for p in sorted(Path("one").glob("*.parquet"))])
    )
    assert keys(server(), "by-ray")[0] == f"by-ray/kept/{SEAL}"
    assert len(keys(server(), "by-ray")) == 4


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


def test_shards_run_on_both_nodes(engine: RayEngine, tmp_path: Path) -> None:
    assert len(set(engine.map(shards(40), OnTwoNodes(tmp_path)))) == 2


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
    remover.join(LIMIT_SECONDS)
    assert any(tmp_path.iterdir())


def test_no_task_is_at_work_after_the_end_of_its_run(engine: RayEngine, tmp_path: Path) -> None:
    results = engine.map(shards(3), Stays(tmp_path))
    assert next(results) == 0
    until(lambda: any(tmp_path.iterdir()))  # the other may be on its way to a worker
    results.close()
    # Ray tells of the end of a task a moment before that of its process.
    until(lambda: not [number.name for number in tmp_path.iterdir() if is_running(Path("/proc", number.name))])


def is_running(process: Path) -> bool:
    """Whether there is such a process, and not only what its parent has yet to ask of it (state Z)."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.usefixtures("connected")
def test_a_run_without_a_node_to_work_on_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise InterruptedError(record.getMessage())

    stop = Stop()
    monkeypatch.setattr(ray_tasks, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(logging.getLogger(ray_tasks.__name__), "handlers", [stop])
    on_gpus = RayEngine(2, None, prepare=interrupt.check, on_gpus=True)
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
