"""Weights beyond float32, which a filtered dataset cannot hold: written as the largest that it can, and said."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import jsonl, parquet, row, run

LARGEST = float(np.finfo(np.float32).max)
PLAN = {"weighting": {"scope": "token"}, "log_ratio_limit": None}
ROWS = [
    row([-90.5, -1.0], [-0.5, -1.25]),  # e^90, beyond float32
    row([-800.5, -1.0], [-0.5, -1.25]),  # e^800, beyond float64
    row([-1.0, -1.0], [-1.25, -0.75]),
]


def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    return str(path)


@pytest.mark.parametrize("to", ["out.parquet", "out.jsonl"])
def test_are_clamped_counted_and_said(to: str, tmp_path: Path) -> None:
    write = jsonl if to.endswith("jsonl") else parquet
    dump, out = write(tmp_path / f"in{Path(to).suffix}", ROWS), tmp_path / to
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = run("filter", dump, "--plan", plan(tmp_path), "-o", str(out), "--json")
    assert ran.status == 0, ran.err
    assert any("the largest float32, are written as that: 2 tokens." in note for note in ran.json["notes"])
    rows = read(out)
    assert [one["rollout_is_weights"][0] for one in rows[:2]] == [LARGEST, LARGEST]
    assert rows[2]["rollout_is_weights"] == pytest.approx(np.exp([-0.25, 0.25]), rel=1e-6)
    assert np.isfinite([one["rollout_is_seq_weight"] for one in rows]).all()


@pytest.mark.parametrize(("name", "second"), [("nemo-tis", 2.0), ("nemo-seq-mask-tis", 2.0**120)])
def test_of_a_preset_of_nemo_are_zero(name: str, second: float, tmp_path: Path) -> None:
    """As its nan_to_num has them; without a bound, what float32 holds stays as it is."""
    rows = [row([-90.5, -1.0], [-0.5, -1.25]), row([-0.5 - 120 * math.log(2), -1.0], [-0.5, -1.0])]
    dump, out = parquet(tmp_path / "in.parquet", rows), tmp_path / "out.parquet"
    ran = run("filter", dump, "--preset", name, "--rejected", "keep", "-o", str(out), "--json")
    assert ran.status == 0, ran.err
    weights = [written["rollout_is_weights"][0] for written in read(out)]
    assert weights == [pytest.approx(0.0), pytest.approx(second)]
    assert not any("largest float32" in note for note in ran.json["notes"])


def test_ordinary_weights_are_not_mentioned(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "in.parquet", ROWS[2:])
    ran = run("filter", dump, "--plan", plan(tmp_path), "-o", str(tmp_path / "out.parquet"), "--json")
    assert not any("largest float32" in note for note in ran.json["notes"])


def read(path: Path) -> list[dict[str, object]]:
    """Rows of either format; a number that is no JSON is an error."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line, parse_constant=_refuse) for line in path.read_text().splitlines()]


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
