"""Parts written by tasks on Ray: as by worker processes, on a disk and in a store."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import Proxy, get, keys, server
from stores import store as store

pytest.importorskip("ray")
sys.path.append(str(Path(__file__).parents[1] / "cli"))
from ray_clusters import ray_cluster
from running import STEPS, command, run, wait_for
from test_ray import readers, until

from rlcorr_cli.io.outputs import SEAL

GEO = ("--preset", "geo_rs")
N_ROWS = 20_000
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Iterator[None]:
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    folder, table = tmp_path / "dump", pq.read_table(STEPS)
    folder.mkdir()
    for i in range(4):
        pq.write_table(table.slice(80 * i, 80), folder / f"{i}.parquet")
    return folder


def joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(table.replace_schema_metadata() for table in tables)


@pytest.mark.usefixtures("connected")
def test_tasks_write_the_parts_that_one_process_writes(
    dump: Path, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert len(json.loads(Path(f"many{name}", SEAL).read_text())["parts"]) == 4
    stored = [key for key in keys(server(), "by-ray") if key.endswith(".parquet")]
    assert joined([pq.read_table(pa.BufferReader(get(server(), key))) for key in stored]).equals(
        joined([pq.read_table(p) for p in sorted(Path("one").glob("*.parquet"))])
    )
    assert keys(server(), "by-ray")[0] == f"by-ray/kept/{SEAL}"
    assert len(keys(server(), "by-ray")) == 5


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is done at once, and one of seconds of work in batches of a few rows."""
    folder = tmp_path_factory.mktemp("long")
    for name, n_rows in (("0", 3), ("1", N_ROWS)):
        offsets = pa.array(np.arange(0, 100 * n_rows + 1, 100, dtype=np.int32))
        values = pa.array(-np.random.default_rng(0).random(100 * n_rows, np.float32))
        column = pa.ListArray.from_arrays(offsets, values)
        pq.write_table(pa.table({"rollout_log_probs": column, "old_log_probs": column}), folder / f"{name}.parquet")
    return folder


def started(cluster: Any, long: Path, out: Path, batch_tokens: int) -> "subprocess.Popen[bytes]":
    args = ["filter", str(long), "--preset", "token_is", "--batch-tokens", str(batch_tokens), "-o", str(out)]
    by_ray = ["--engine", "ray", "--ray-address", cluster.address]
    return subprocess.Popen([command(), *args, *by_ray], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def writes_the_long_one(long: Path, folder: Path) -> bool:
    """Whether the short file's part is whole, and a worker reads the long one."""
    return any(folder.glob(".rlcorr-*/part-00000.parquet")) and bool(readers(long / "1.parquet"))


def test_the_part_of_a_killed_task_is_written_again(cluster: Any, long: Path, tmp_path: Path) -> None:
    with started(cluster, long, tmp_path / "out", 4000) as process:
        wait_for(lambda: writes_the_long_one(long, tmp_path), process)
        os.kill(readers(long / "1.parquet")[0], signal.SIGKILL)
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
    cluster: Any, long: Path, dump: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    with started(cluster, long, folder / "out", 100) as process:
        wait_for(lambda: writes_the_long_one(long, folder), process)
        process.kill()
        process.communicate()
    until(lambda: not readers(long / "1.parquet"))  # Ray ends the tasks of a driver that is gone
    (litter,) = folder.iterdir()
    assert litter.name.startswith(".rlcorr-")
    assert not (litter / SEAL).exists()
    assert run("filter", str(dump), *GEO, "-o", str(folder / "out")).status == 0
    assert [path.name for path in folder.iterdir()] == ["out"]
