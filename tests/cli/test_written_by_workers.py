"""`rlcorr filter --engine processes -o DIR`: whole or not there, on a disk and in a store, whatever ends the run."""

import json
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import STEPS, Process, forked_command, refused, run, wait_for, warm as warm
from stores import Proxy, get, keys, put, server, store as store

from rlcorr_cli.reading.datasets import SEAL
from rlcorr_cli.show.explain import schema

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.full]
PROCESSES = ("--engine", "processes", "--workers", "2")
BY_ONE = ("--engine", "processes", "--workers", "1")
GEO = ("--preset", "geo_rs")


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what is meant for a store would be written first."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample in four files."""
    folder, table = tmp_path_factory.mktemp("dump"), pq.read_table(STEPS)
    for i in range(4):
        pq.write_table(table.slice(80 * i, 80), folder / f"{i}.parquet")
    return str(folder)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that is done at once, and one of minutes of work in batches of a row."""
    folder = tmp_path_factory.mktemp("long")
    for name, n_rows in (("0", 3), ("1", 20_000)):
        offsets = pa.array(np.arange(0, 100 * n_rows + 1, 100, dtype=np.int32))
        values = pa.array(-np.random.default_rng(0).random(100 * n_rows, np.float32))
        column = pa.ListArray.from_arrays(offsets, values)
        pq.write_table(pa.table({"rollout_log_probs": column, "old_log_probs": column}), folder / f"{name}.parquet")
    return str(folder)


def started(long: str, out: str) -> Process:
    args = ["filter", long, "--preset", "token_is", "--batch-tokens", "100", *PROCESSES, "-o", out]
    return Process([forked_command(), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_half_way(folder: Path) -> bool:
    """Whether one part is whole and another has been begun."""
    written = [path.name for path in folder.glob(".rlcorr-*/*")]
    return "part-00000.parquet" in written and any(name.startswith(".part-00001") for name in written)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_half_way_leaves_nothing(number: signal.Signals, long: str, tmp_path: Path) -> None:
    with started(long, str(tmp_path / "out")) as process:
        wait_for(lambda: is_half_way(tmp_path), process)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 128 + number
    assert err == (b"Interrupted: nothing was written.\n" if number == signal.SIGINT else b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("warm")
def test_a_kill_half_way_leaves_no_directory_and_the_next_run_no_litter(long: str, dump: str, tmp_path: Path) -> None:
    with started(long, str(tmp_path / "out")) as process:
        wait_for(lambda: is_half_way(tmp_path), process)
        process.kill()
        process.communicate()
    (litter,) = tmp_path.iterdir()
    assert not (litter / SEAL).exists()
    report = run("filter", dump, *GEO, *BY_ONE, "-o", str(tmp_path / "out"), "--json").json
    (note,) = [note for note in report["notes"] if "killed" in note]
    assert note.startswith("Removed 1 unfinished output")
    assert litter.name in note
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_leaves_nothing(dump: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [forked_command(), "filter", dump, *GEO, "--rejected", "keep", *BY_ONE, "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 4, done
    assert done.stderr.startswith(f"Error: Cannot write {tmp_path / 'out'}: File too large")
    assert len(done.stderr.splitlines()) == 2, done.stderr
    assert list(tmp_path.iterdir()) == []


def rows(folder: str) -> pa.Table:
    """Rows of a folder in the store, in the order of its parts' names."""
    names = [key for key in keys(server(), folder) if key.endswith(".parquet")]
    tables = [pq.read_table(pa.BufferReader(get(server(), name))) for name in names]
    return pa.concat_tables(table.replace_schema_metadata() for table in tables)


def local_rows(folder: Path) -> pa.Table:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return pa.concat_tables(table.replace_schema_metadata() for table in tables)


def test_workers_upload_what_is_written_on_a_disk(store: Proxy, dump: str, tmp_path: Path, temporary: Path) -> None:
    """From a store into it; of what one process writes on a disk, row for row."""
    for path in Path(dump).iterdir():
        put(server(), f"written/in/{path.name}", path)
    outputs = ("-o", "s3://dumps/written/kept", "--rejected-output", "s3://dumps/written/dropped")
    ran = run("filter", "s3://dumps/written/in", *GEO, *PROCESSES, *outputs)
    assert ran.status == 0, ran.err
    local = ("-o", str(tmp_path / "kept"), "--rejected-output", str(tmp_path / "dropped"))
    assert run("filter", dump, *GEO, "--engine", "threads", "--workers", "1", *local).status == 0
    for name in ("kept", "dropped"):
        assert rows(f"written/{name}").equals(local_rows(tmp_path / name))
        told = json.loads(get(server(), f"written/{name}/{SEAL}"))
        jsonschema.validate(told, {**schema(), "$ref": "#/$defs/parts"})
        assert [f"written/{name}/{part['name']}" for part in told["parts"]] == keys(server(), f"written/{name}")[1:]
    assert {key.split("/")[1] for key in keys(server(), "written")} == {"in", "kept", "dropped"}
    assert run("analyze", "s3://dumps/written/kept", "--json").json["counts"]["rows"] == len(rows("written/kept"))
    assert not any(temporary.iterdir())


@pytest.mark.usefixtures("warm")
def test_an_older_folder_has_no_seal_while_parts_are_named(store: Proxy, dump: str) -> None:
    args = ("filter", dump, *GEO, "--rejected", "keep", *BY_ONE, "-o", "s3://dumps/sealed/d")
    assert run(*args).status == 0
    older = keys(server(), "sealed/d")
    assert len(older) == 5
    refused(run(*args), 4, "exists", "Add --overwrite")
    store.answer = lambda method, path: (
        (403, {}, b"") if method == "PUT" and path.endswith("/d/part-00001.parquet") else None
    )
    refused(run(*args, "--overwrite"), 4, "the credentials are refused")
    assert keys(server(), "sealed/d") == [key for key in older if not key.endswith(SEAL)]
    store.answer = lambda method, path: None
    assert run(*args, "--overwrite").status == 0
    assert keys(server(), "sealed") == older


@pytest.mark.usefixtures("warm")
def test_a_part_that_the_store_refuses_leaves_nothing(store: Proxy, dump: str, temporary: Path) -> None:
    store.answer = lambda method, path: (403, {}, b"") if method == "PUT" and "part-00002.parquet" in path else None
    refused(run("filter", dump, *GEO, *BY_ONE, "-o", "s3://dumps/refused/d"), 4, "the credentials are refused")
    assert keys(server(), "refused") == []
    assert not any(temporary.iterdir())


@pytest.mark.usefixtures("warm")
def test_a_kill_half_way_leaves_no_seal_in_a_store_and_the_next_run_no_litter(
    store: Proxy, long: str, dump: str
) -> None:
    with started(long, "s3://dumps/killed/d") as process:
        wait_for(lambda: any(key.endswith("/part-00000.parquet") for key in keys(server(), "killed")), process)
        process.kill()
        process.communicate()
    marker, part = keys(server(), "killed")
    assert marker.startswith("killed/d/.rlcorr-")
    assert part == "killed/d/part-00000.parquet"
    report = run("filter", dump, *GEO, *BY_ONE, "-o", "s3://dumps/killed/d", "--json").json
    (note,) = [note for note in report["notes"] if "killed" in note]
    assert note.startswith("Removed 1 unfinished output that killed runs had left beside this one's (")
    assert marker.split("/")[2] in note
    assert not any("/." in key for key in keys(server(), "killed"))
    assert f"killed/d/{SEAL}" in keys(server(), "killed")
