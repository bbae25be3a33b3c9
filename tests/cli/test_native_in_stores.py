"""Frameworks' own dumps in an object store: the rows that the same files on the disk have."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from few import few
from running import refused, run
from stores import Proxy, put, server
from stores import store as store

NATIVE = Path(__file__).parents[1] / "golden" / "native"
FORMATS = {
    "openai": "engines",
    "sglang": "engines",
    "miles": "miles",
    "miles-policy-loss": "miles",
    "miles-dashboard": "miles",
    "nemo-gym": "nemo-gym",
    "nemo-rl": "nemo-rl",
    "open-instruct": "open-instruct",
    "prime-rl": "prime-rl",
    "prime-rl-batches": "prime-rl",
    "prime-rl-monitor": "prime-rl/runs",
    "prime-rl-traces": "prime-rl",
    "roll": "roll",
    "skyrl": "skyrl",
    "slime": "slime",
    "tinker": "tinker-cookbook",
    "verl": "verl",
    "verl-tq": "verl",
}


@pytest.mark.parametrize("format", few(FORMATS, ("miles", "prime-rl-monitor", "verl")))
def test_convert_gives_the_rows_of_the_files_on_the_disk(
    format: str, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, temporary = NATIVE / FORMATS[format], tmp_path / "temporary"
    for path in folder.rglob("*"):
        if path.is_file():
            put(server(), f"native/{path.relative_to(NATIVE)}", path)
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    ran = run("convert", str(folder), "--format", format, "-o", str(here))
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    remote = run("convert", f"s3://dumps/native/{FORMATS[format]}", "--format", format, "-o", str(there))
    assert (remote.status, ran.status) == (0, 0), (remote.err, ran.err)
    rows, expected = pq.read_table(there), pq.read_table(here)
    named = [path.replace(str(NATIVE), "s3://dumps/native") for path in expected["source_file"].to_pylist()]
    assert rows["source_file"].to_pylist() == named
    for name in set(rows.column_names) - {"source_file"}:
        assert str(rows[name].to_pylist()) == str(expected[name].to_pylist()), name  # NaN is not itself
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
