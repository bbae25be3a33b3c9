"""How often a file is opened: once to learn all about it, once to peek at its first rows, once for each shard."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dumps import opened, parquet, row

from rlcorr_cli.cli import main

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
    dump.grouped_by(("step", "policy_version"))
    assert openings == {"a.parquet": 1, "b.parquet": 1}


@pytest.mark.parametrize(
    ("args", "times"),
    [
        (("analyze", "--quiet"), 3),
        (("plot", "--kind", "ratio", "--quiet"), 3),
        # The two kinds have groupings of their own, so the rows are read twice; the file is indexed once all the same.
        (("plot", "--kind", "ratio", "--kind", "staleness", "--quiet"), 5),
    ],
)
def test_a_command_opens_a_file_of_one_shard_so_often(
    args: tuple[str, ...], times: int, openings: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "d.parquet", ROWS)
    monkeypatch.chdir(tmp_path)
    assert main.run([args[0], path, *args[1:]]) == 0
    assert openings == {"d.parquet": times}
