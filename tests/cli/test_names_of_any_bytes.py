"""Dumps in a folder whose name is not UTF-8: outputs name them as the terminal does."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import BF16, SAMPLE, run

SKYRL = "global_step_4_training_input.pkl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "\udcff-run"
    folder.mkdir()
    shutil.copy(BF16, folder / "a.parquet")
    shutil.copy(SAMPLE / "native" / "slime" / "1.pt", folder)
    shutil.copy(SAMPLE / "native" / "skyrl" / SKYRL, folder)
    return folder


def source_files(output: Path) -> set[str]:
    """What a dump says that its rows come from."""
    if output.suffix in (".jsonl", ".gz"):
        opened = gzip.open if output.suffix == ".gz" else open
        with opened(output, "rt") as lines:
            return {json.loads(line)["source_file"] for line in lines}
    return set(pq.read_table(output).column("source_file").to_pylist())


@pytest.mark.parametrize("output", ["out.parquet", "out.jsonl", "out.jsonl.gz", "parts/"])
@pytest.mark.parametrize("name", ["a.parquet", "1.pt", SKYRL])
def test_rows_are_said_to_come_from_it(folder: Path, name: str, output: str) -> None:
    ran = run("convert", str(folder / name), "-o", f"{folder.parent}/{output}")
    assert ran.status == 0, ran.err
    assert source_files(folder.parent / output) == {f"{folder.parent}/\\udcff-run/{name}"}


@pytest.mark.parametrize("output", ["out.parquet", "out.jsonl"])
@pytest.mark.parametrize("name", ["1.pt", SKYRL])
def test_corrected_rows_are_said_to_come_from_it(folder: Path, name: str, output: str) -> None:
    ran = run("filter", str(folder / name), "--preset", "token_is", "-o", f"{folder.parent}/{output}")
    assert ran.status == 0, ran.err
    assert source_files(folder.parent / output) == {f"{folder.parent}/\\udcff-run/{name}"}


def test_saved_totals_are_of_it(folder: Path) -> None:
    saved = folder.parent / "part.rlcorr"
    assert run("analyze", str(folder / "a.parquet"), "-o", str(saved)).status == 0
    (inputs,) = run("analyze", str(saved), "--json").json["inputs"]
    assert inputs["path"] == f"{folder.parent}/\\udcff-run/a.parquet"
    assert run("check", str(saved), "--max", "kl=9").status == 0
