"""Datasets: whole or not at all, and only in the place of datasets."""

from pathlib import Path

import pyarrow as pa
import pytest

from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.io.outputs import check_dataset, create

ROWS = pa.table({"a": [1, 2, 3]})


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "out"])
def test_an_output_that_came_meanwhile_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for overwrite in (False, True):
        with create(path, 2, "", overwrite=overwrite) as first, create(path, 2, "", overwrite=overwrite) as second:
            first.write(ROWS)
            second.write(ROWS.slice(1))
            first.finish("")
            if overwrite:
                second.finish("")
            else:
                with pytest.raises(OutputError, match="meanwhile"):
                    second.finish("")
        assert left(tmp_path) == [name]
        if name == "out.jsonl":
            assert len(path.read_text().splitlines()) == (2 if overwrite else 3)
        elif name == "out":
            assert left(path) == ["part-00000.parquet", *([] if overwrite else ["part-00001.parquet"])]


@pytest.mark.parametrize("name", ["part-mine", "part-r-00000.csv", "part-00000.csv", "notes.txt"])
def test_a_directory_of_other_files_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000.parquet").touch()
    check_dataset(tmp_path / "out", [], overwrite=True)
    with create(tmp_path / "out", 2, "", overwrite=True) as output:
        output.write(ROWS)
        (tmp_path / "out" / name).mkdir()  # while this runs
        with pytest.raises(OutputError, match=f"holds other files \\({name}\\)"):
            output.finish("")
    assert left(tmp_path / "out") == sorted(["part-00000.parquet", name])
    with pytest.raises(OutputError, match="holds other files"):
        check_dataset(tmp_path / "out", [], overwrite=True)


def test_a_link_to_a_directory_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        with create(tmp_path / "link", 2, "", overwrite=True) as output:
            output.write(ROWS)
            output.finish("")
    assert (tmp_path / "link").is_symlink()
    assert left(tmp_path) == ["link", "real"]
    assert left(tmp_path / "real") == ["part-00000.parquet", "part-00001.parquet"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_an_older_output_goes_where_this_run_has_no_rows(tmp_path: Path, overwrite: bool) -> None:
    path = tmp_path / "rejected.jsonl"
    path.write_text("{}\n")
    with create(path, 1, "", overwrite=overwrite) as output:
        output.finish_or_remove("")
    assert path.exists() is not overwrite


def test_standard_output_takes_no_dataset() -> None:
    with pytest.raises(UsageError, match="standard output"):
        check_dataset(Path("-"), [], overwrite=False)


def test_two_columns_of_one_name_are_not_written_as_one(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["prompt", "prompt"])
    with create(tmp_path / "a.jsonl", 1, "") as output, pytest.raises(DataError, match="Two columns are called prompt"):
        output.write(twice)
    with create(tmp_path / "a.parquet", 1, "") as output:
        output.write(twice)
        output.finish("")
    assert left(tmp_path) == ["a.parquet"]
