"""How often a file is opened: once to learn all about it, once to peek at its first rows, once for each shard."""

import builtins
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dumps import jsonl, opened, parquet, row

from rlcorr_cli.commands import main
from rlcorr_cli.layouts.recognise import LOOKED_AT, FileStart
from rlcorr_cli.reading.find import find

ROWS = [row([-0.5, -1.0], [-0.25, -2.0], step=i // 5, policy_version=i // 10) for i in range(20)]


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Path -> how often Arrow opened it."""
    counts: Counter[str] = Counter()
    open_file = pa.OSFile

    def counted(path: bytes, *args: Any, **options: Any) -> Any:
        counts[Path(path.decode()).name] += 1
        return open_file(path, *args, **options)

    monkeypatch.setattr(pa, "OSFile", counted)
    return counts


def test_a_dump_is_opened_once_to_settle_its_columns_and_cut_the_work(openings: Counter[str], tmp_path: Path) -> None:
    paths = [parquet(tmp_path / f"{name}.parquet", ROWS) for name in "ab"]
    dump = opened(paths)
    assert openings == {"a.parquet": 1, "b.parquet": 1}
    assert dump.has("step")
    dump.with_request(group_by=("step", "policy_version"))
    assert openings == {"a.parquet": 1, "b.parquet": 1}


@pytest.mark.parametrize(
    ("args", "times"),
    [
        (("analyze", "--quiet"), 3),
        (("plot", "--kind", "ratio", "--quiet"), 3),
        (("plot", "--kind", "ratio", "--kind", "staleness", "--quiet"), 3),
    ],
)
def test_a_command_opens_a_file_of_one_shard_so_often(
    args: tuple[str, ...], times: int, openings: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "d.parquet", ROWS)
    monkeypatch.chdir(tmp_path)
    assert main.run([args[0], path, *args[1:]]) == 0
    assert openings == {"d.parquet": times}


@pytest.mark.parametrize("name", ["d.parquet", "d.jsonl", "d"])
def test_a_file_is_opened_once_to_be_recognised(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = jsonl if name == "d.jsonl" else parquet
    path = write(tmp_path / name, ROWS)
    counts: Counter[str] = Counter()
    open_file = builtins.open

    def counted(file: Any, *args: Any, **options: Any) -> Any:
        counts[str(file)] += 1
        return open_file(file, *args, **options)

    monkeypatch.setattr(builtins, "open", counted)
    find([path])
    assert counts == {path: 1}


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("excess", [-1, 0, 1, LOOKED_AT])
@pytest.mark.parametrize("blanks", ["", "\n \n  "])
def test_a_first_row_is_read_whole_whatever_its_length(tmp_path: Path, blanks: str, excess: int, end: str) -> None:
    room = LOOKED_AT + excess - len(blanks) - len(json.dumps({"text": "", "last": 1}))
    row = {"text": "x" * room, "last": 1}
    (tmp_path / "d.jsonl").write_text(blanks + json.dumps(row) + end + ("{}" if end else ""))
    assert FileStart(str(tmp_path / "d.jsonl")).row == row
