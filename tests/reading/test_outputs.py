"""Datasets: whole or not at all, and only in the place of datasets."""

import os
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.files.destinations import check_run
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.datasets import Output, dataset
from rlcorr_cli.reading.whole_rows import ArrowRows

ROWS = ArrowRows(pa.table({"a": [1, 2, 3]}))


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def output(staging: Outputs, path: Path, *, overwrite: bool = False) -> Output:
    return Output(staging, dataset(path, "-o", overwrite), 2, "{}")


def written(path: Path, *, overwrite: bool = False) -> None:
    with Outputs() as staging, output(staging, path, overwrite=overwrite) as rows:
        rows.write(ROWS)
        rows.finish("{}")
        staging.publish()


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "out"])
def test_an_output_that_came_meanwhile_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for overwrite in (False, True):
        with Outputs() as staging, output(staging, path, overwrite=overwrite) as rows:
            rows.write(ROWS.part(1, 3))
            written(path, overwrite=overwrite)
            rows.finish("{}")
            if overwrite:
                staging.publish()
            else:
                with pytest.raises(OutputError, match="meanwhile"):
                    staging.publish()
        assert left(tmp_path) == [name]
        if name == "out.jsonl":
            assert len(path.read_text().splitlines()) == (2 if overwrite else 3)
        elif name == "out":
            assert left(path) == ["part-00000.parquet", *([] if overwrite else ["part-00001.parquet"])]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out.parquet"])
def test_the_same_rows_are_the_same_bytes(tmp_path: Path, name: str) -> None:
    written(tmp_path / name)
    first = (tmp_path / name).read_bytes()
    written(tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_bytes() == first
    assert b"rlcorr-" not in first


def other_part(path: Path) -> None:
    pq.write_table(ROWS.table, path)


@pytest.mark.parametrize(
    "name", ["part-mine", "part-r-00000.csv", "part-00000.csv", "notes.txt", "_rlcorr.json", "part-00007.parquet"]
)
def test_a_directory_of_other_files_is_never_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out"
    written(path)
    check_run((dataset(path, "-o", True),))
    before = left(path)
    with Outputs() as staging, output(staging, path, overwrite=True) as rows:
        rows.write(ROWS)
        rows.finish("{}")
        other_part(path / name) if name.endswith(".parquet") else (path / name).mkdir()  # while this runs
        with pytest.raises(OutputError, match=f"holds other files \\({name}\\)"):
            staging.publish()
    assert left(path) == sorted([*before, name])
    assert left(tmp_path) == ["out"]
    with pytest.raises(OutputError, match="holds other files"):
        check_run((dataset(path, "-o", True),))


def test_parts_are_known_by_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for make in (other_part, Path.mkdir, Path.touch, lambda part: part.symlink_to(tmp_path / "x" / part.name)):
        written(tmp_path / "x", overwrite=True)
        path.mkdir()
        make(path / "part-00000.parquet")
        with pytest.raises(OutputError, match="holds other files"):
            check_run((dataset(path, "-o", True),))
        path.rename(tmp_path / f"was {len(left(tmp_path))}")


def test_a_directory_of_parts_is_data_alone_to_other_readers(tmp_path: Path) -> None:
    """polars reads every file of a directory, and refuses one of another suffix."""
    written(tmp_path / "out")
    assert left(tmp_path / "out") == ["part-00000.parquet", "part-00001.parquet"]
    assert len(pl.read_parquet(tmp_path / "out")) == 3


def test_an_empty_directory_is_filled_and_a_link_to_one_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    check_run((dataset(tmp_path / "real", "-o", False),))
    written(tmp_path / "real")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="link is a link to a directory, and a link is not replaced"):
            check_run((dataset(tmp_path / "link", "-o", overwrite),))
    with pytest.raises(OutputError, match="real exists"):
        check_run((dataset(tmp_path / "real", "-o", False),))
    inode = os.stat(tmp_path / "real").st_ino
    written(tmp_path / "real", overwrite=True)
    assert os.stat(tmp_path / "real").st_ino != inode


def test_an_older_output_goes_where_this_run_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rejected.jsonl"
    for overwrite in (True, False):
        with Outputs() as staging, output(staging, path, overwrite=overwrite) as rows:
            path.write_text("{}\n")
            rows.finish_or_remove("{}")
            if overwrite:
                staging.publish()
            else:  # it came meanwhile, and would read as this run's
                with pytest.raises(OutputError, match="meanwhile"):
                    staging.publish()
        assert path.exists() is not overwrite


def test_a_name_of_no_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown form of output"):
        dataset(tmp_path / "out.csv", "-o", False)


def test_two_columns_of_one_name_are_not_written_as_one(tmp_path: Path) -> None:
    twice = ArrowRows(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["prompt", "prompt"]))
    with Outputs() as staging:
        with (
            output(staging, tmp_path / "a.jsonl") as rows,
            pytest.raises(DataError, match="Two columns are called prom"),
        ):
            rows.write(twice)
        assert left(tmp_path) == []
    with Outputs() as staging, output(staging, tmp_path / "a.parquet") as rows:
        rows.write(twice)
        rows.finish("{}")
        staging.publish()
    assert left(tmp_path) == ["a.parquet"]
