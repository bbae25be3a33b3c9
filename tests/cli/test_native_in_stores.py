"""Frameworks' own dumps in an object store: the rows that the same files on the disk have."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from few import few
from running import refused, run
from stores import Proxy, put, server, store as store

from rlcorr_cli.layouts.table import NAMES, layout
from tests.layouts.native_rows import NATIVE, folder_of


@pytest.mark.parametrize("name", few(NAMES, ("miles", "prime-rl-monitor", "verl")))
def test_convert_gives_the_rows_of_the_files_on_the_disk(
    name: str, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, temporary = NATIVE / folder_of(layout(name)), tmp_path / "temporary"
    for path in folder.rglob("*"):
        if path.is_file():
            put(server(), f"native/{path.relative_to(NATIVE)}", path)
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    ran = run("convert", str(folder), "--format", name, "-o", str(here))
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    remote = run("convert", f"s3://dumps/native/{folder.name}", "--format", name, "-o", str(there))
    assert (remote.status, ran.status) == (0, 0), (remote.err, ran.err)
    rows, expected = pq.read_table(there), pq.read_table(here)
    named = [path.replace(str(NATIVE), "s3://dumps/native") for path in expected["source_file"].to_pylist()]
    assert rows["source_file"].to_pylist() == named
    for column in set(rows.column_names) - {"source_file"}:
        assert str(rows[column].to_pylist()) == str(expected[column].to_pylist()), column  # NaN is not itself
    assert not any(temporary.iterdir())


def test_a_step_that_is_still_written_is_told_by_the_mark_beside_it(store: Proxy) -> None:
    step = next((NATIVE / "prime-rl").rglob("STABLE")).parent
    for path in step.glob("*.jsonl"):
        put(server(), f"unmarked/{step.name}/{path.name}", path)
    refused(run("inspect", f"s3://dumps/unmarked/{step.name}/"), 3, "there is no STABLE beside it")
    put(server(), f"unmarked/{step.name}/STABLE", "")
    assert run("inspect", f"s3://dumps/unmarked/{step.name}/").status == 0


def test_a_stream_in_a_store_is_read_with_what_lies_beside_it(store: Proxy) -> None:
    run_folder = NATIVE / "prime-rl" / "runs" / "exact"
    for path in run_folder.rglob("*"):
        if path.is_file():
            put(server(), f"monitored/{path.relative_to(run_folder)}", path)
    here = run("analyze", str(run_folder), "--json").json
    for name in ("monitored/", "monitored/monitors/file/traces/stream/00000.jsonl.zst"):
        there = run("analyze", f"s3://dumps/{name}", "--json").json
        assert (there["counts"], there["metrics"]) == (here["counts"], here["metrics"])
