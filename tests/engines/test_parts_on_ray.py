"""Parts written by tasks on Ray: as by worker processes, on a disk and in a store."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import Proxy, get, keys, server
from stores import store as store

pytest.importorskip("ray")
sys.path.append(str(Path(__file__).parents[1] / "cli"))
from ray_clusters import ray_cluster
from running import STEPS, run

from rlcorr_cli.io.outputs import SEAL

GEO = ("--preset", "geo_rs")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def connected() -> Iterator[None]:
    import ray

    with ray_cluster() as cluster:
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
