"""`rlcorr check --expect equal`: bit-equal engines as a goal, with a gate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run


def dump(folder: Path, n_off: int, kind: Any = np.float32) -> str:
    """40 rows of 25 tokens with equal columns, but for some tokens that are off by the last bit of float32."""
    rng = np.random.default_rng(0)
    rollout = -rng.exponential(1.0, 1000).astype(np.float32)
    trained = rollout.copy()
    trained[:n_off] = np.nextafter(rollout[:n_off], np.float32(-9))
    rows = {
        name: pa.array(list(values.astype(kind).reshape(40, 25)))
        for name, values in (("rollout_log_probs", rollout), ("old_log_probs", trained))
    }
    pq.write_table(pa.table(rows), folder / "dump.parquet")
    return str(folder / "dump.parquet")


def test_equal_columns_pass_where_they_are_expected_and_fail_elsewhere(tmp_path: Path) -> None:
    path = dump(tmp_path, 0)
    ran = run("check", path)
    assert ran.status == 1
    assert "bypass_copy" in ran.out
    ran = run("check", path, "--expect", "equal")
    assert ran.status == 0, ran.out
    assert "bypass_copy accepted" in ran.out


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_token_off_by_one_bit_fails_the_gate_and_is_counted(kind: Any, tmp_path: Path) -> None:
    path = dump(tmp_path, 7, kind)
    ran = run("check", path, "--expect", "equal")
    assert ran.status == 1
    report = json.loads(run("analyze", path, "--json").out)
    assert report["metrics"]["bit_mismatch"] == pytest.approx(0.007)


def test_float64_columns_that_are_one_number_of_float32_are_equal(tmp_path: Path) -> None:
    values = np.array([[-0.1, -0.7, -1.3]])
    rows = {"rollout_log_probs": list(values), "old_log_probs": list(values - 1e-12)}
    pq.write_table(pa.table(rows), tmp_path / "dump.parquet")
    report = json.loads(run("analyze", str(tmp_path / "dump.parquet"), "--json").out)
    assert report["metrics"]["bit_mismatch"] == 0
