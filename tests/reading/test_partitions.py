"""Folders that name columns, whatever the files in them are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dumps import Row, jsonl, parquet, row

from rlcorr_cli import analyze, check, convert, filter, inspect, plot
from rlcorr_cli.errors import DataError

ROOT = Path(__file__).parents[2]
TABLE = pq.read_table(ROOT / "sample_data" / "smollm2_steps.parquet")
NATIVE = ROOT / "tests" / "golden" / "native"
SOURCES = {2: "a b", 10: "a b", 1: "c"}
"""Step -> source, as folders are named."""


def folders(top: Path, form: str) -> Path:
    """One file of five rows below each of step=N/source=NAME."""
    for step, source in SOURCES.items():
        folder = top / f"step={step}" / f"source={source.replace(' ', '%20')}"
        folder.mkdir(parents=True)
        rows = TABLE.drop_columns(["step"]).slice(step, 5)
        if form == "parquet":
            pq.write_table(rows, folder / "x.parquet")
        if form == "arrow":
            with pa.OSFile(str(folder / "x.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
        if form == "jsonl":
            (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    return top


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_folders_name_columns_of_all_files_below_them(tmp_path: Path, form: str) -> None:
    report = analyze(str(folders(tmp_path / "dump", form)), group_by=("step", "source"))
    assert [group.key for group in report.groups] == [
        {"step": 1, "source": "c"},
        {"step": 2, "source": "a b"},
        {"step": 10, "source": "a b"},
    ]
    output = tmp_path / "out.parquet"
    filter(str(tmp_path / "dump"), output, preset="token_is")
    rows = pq.read_table(output)
    assert rows.column("step").to_pylist() == [1] * 5 + [2] * 5 + [10] * 5
    assert rows.column("source").to_pylist() == ["c"] * 5 + ["a b"] * 10


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_every_command_reads_folders_that_name_columns(tmp_path: Path, form: str) -> None:
    dump = str(folders(tmp_path / "dump", form))
    checked = check(dump, group_by="step", max={"kl": 1.0})
    assert checked.passed
    assert {finding.key.get("step") for finding in checked.findings} >= {1, 2, 10}
    assert inspect(dump).columns["step"] == "step"
    (row,) = inspect(dump, row=TABLE.column("sample_id")[1].as_py()).rows
    assert (row.facts["step"], row.facts["source"]) == (1, "c")
    if form == "parquet":  # a picture takes a second, and is drawn of what analyze reads
        (picture,) = plot(dump, tmp_path / "metrics.svg", kind="metrics")
        assert picture.path
    assert convert(dump, tmp_path / "converted.jsonl").rows == 15
    rows = [json.loads(line) for line in (tmp_path / "converted.jsonl").read_text().splitlines()]
    assert [(row["step"], row["source"]) for row in rows] == [(1, "c")] * 5 + [(2, "a b")] * 5 + [(10, "a b")] * 5


@pytest.mark.parametrize("write", [parquet, jsonl])
def test_a_lag_may_be_of_a_step_that_folders_name(tmp_path: Path, write: Callable[[Path, list[Row]], str]) -> None:
    for step in (4, 6):
        (tmp_path / f"step={step}").mkdir()
        write(tmp_path / f"step={step}" / f"x.{write.__name__}", [row([-1.0], [-1.5], policy_version=3)] * step)
    groups = analyze(str(tmp_path), group_by="lag").groups
    assert [(group.key, group.counts["rows"]) for group in groups] == [({"lag": 1}, 4), ({"lag": 3}, 6)]


def test_folders_name_columns_of_a_frameworks_files(tmp_path: Path) -> None:
    for day, step in ((5, 1), (6, 2)):
        (tmp_path / "dump" / f"day={day}").mkdir(parents=True)
        name = f"train_data_step{step}.jsonl"
        shutil.copy(NATIVE / "nemo-rl" / name, tmp_path / "dump" / f"day={day}" / name)
    dump = str(tmp_path / "dump")
    groups = analyze(dump, group_by=("day", "step")).groups
    assert [group.key for group in groups] == [{"day": 5, "step": 1}, {"day": 6, "step": 2}]
    filter(dump, tmp_path / "filtered.parquet", preset="token_is")
    convert(dump, tmp_path / "converted.parquet")
    for name in ("filtered", "converted"):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert table.column_names.count("day") == 1
        assert set(zip(table["step"].to_pylist(), table["day"].to_pylist(), strict=True)) == {(1, 5), (2, 6)}


def test_a_column_that_one_file_of_a_framework_lacks_is_its_folders(tmp_path: Path) -> None:
    for step, name in ((1, "train_data_step1.jsonl"), (2, "renamed.jsonl")):
        (tmp_path / f"step={step}").mkdir()
        shutil.copy(NATIVE / "nemo-rl" / f"train_data_step{step}.jsonl", tmp_path / f"step={step}" / name)
    keys = [group.key for group in analyze(str(tmp_path), group_by="step").groups]
    assert keys == [{"step": 1}, {"step": 2}]


def test_a_files_own_column_goes_before_its_folders(tmp_path: Path) -> None:
    (tmp_path / "step=77").mkdir()
    pq.write_table(TABLE, tmp_path / "step=77" / "x.parquet")
    keys = [group.key["step"] for group in analyze(str(tmp_path), group_by="step").groups]
    assert keys == sorted(set(TABLE.column("step").to_pylist()))


def test_a_name_that_not_all_folders_have_is_no_column(tmp_path: Path) -> None:
    table = TABLE.drop_columns(["step"])
    for folder in ("step=1", "other"):
        (tmp_path / folder).mkdir()
        pq.write_table(table.slice(0, 5), tmp_path / folder / "x.parquet")
    with pytest.raises(DataError, match="no column 'step'"):
        analyze(str(tmp_path), group_by="step")
