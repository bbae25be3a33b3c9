"""Golden cases through the command line, five ways: the numbers are the peers', and the same whatever the way."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from running import analyzed, run_installed

GOLDEN = Path(__file__).parent.parent / "golden"
INPUT = GOLDEN / "input.parquet"
CASES: dict[str, Any] = json.loads((GOLDEN / "expected_metrics.json").read_text())
CUTS = (0, 3, 10, 11, 30, 44, 60, 64)


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder, table = tmp_path_factory.mktemp("ways"), pq.read_table(INPUT)
    seven = folder / "seven"
    seven.mkdir()
    for i, (first, last) in enumerate(pairwise(CUTS)):
        pq.write_table(table.slice(first, last - first), seven / f"part{i}.parquet")
    lines = folder / "input.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return {
        "plain": [str(INPUT)],
        "small batches": [str(INPUT), "--batch-tokens", "500"],
        "large batches": [str(INPUT), "--batch-tokens", "100000"],
        "seven files": [str(seven)],
        "JSON lines": [str(lines)],
    }


def plan_args(case: str, folder: Path) -> list[str]:
    path = folder / "config.json"
    path.write_text(json.dumps(CASES[case]["config"]))
    return ["--profile", case.split("/")[0], "--plan", str(path)]


@pytest.mark.parametrize("case", CASES)
def test_every_way_gives_the_peers_numbers(case: str, ways: dict[str, list[str]], tmp_path: Path) -> None:
    found = {way: analyzed(*args, *plan_args(case, tmp_path))["metrics"] for way, args in ways.items()}
    assert found["plain"].keys() == CASES[case]["metrics"].keys()
    assert found["plain"] == pytest.approx(CASES[case]["metrics"], rel=1e-6, abs=1e-9)
    for way, metrics in found.items():
        assert metrics == pytest.approx(found["plain"], rel=1e-9, abs=1e-15), way


def test_the_installed_command_gives_the_peers_numbers(tmp_path: Path) -> None:
    found = run_installed("analyze", str(INPUT), *plan_args("slime/0", tmp_path), "--json")
    assert found.json["metrics"] == pytest.approx(CASES["slime/0"]["metrics"], rel=1e-6, abs=1e-9)
    assert found.err == ""
