"""Under --normalize batch a row's own weight is divided as its tokens' are: it is what samplers read."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import STEPS, run


@pytest.mark.parametrize("scope", ["token", "sequence", "geometric"])
def test_a_row_weight_is_divided_by_its_batch_mean(scope: str, tmp_path: Path) -> None:
    columns = ["step", "rollout_is_weights", "rollout_is_seq_weight"]
    plain, divided = tmp_path / "plain.parquet", tmp_path / "divided.parquet"
    for path, normalize in ((plain, "none"), (divided, "batch")):
        ran = run("filter", STEPS, "--is", f"{scope}:,1.5", "--normalize", normalize, "-o", str(path))
        assert ran.status == 0, ran.err
    divisors: dict[int, set[float]] = {}
    tables = (pq.read_table(path, columns=columns).to_pylist() for path in (plain, divided))
    for before, after in zip(*tables, strict=True):
        tokens = [(a, b) for a, b in zip(before["rollout_is_weights"], after["rollout_is_weights"], strict=True) if b]
        divisor = before["rollout_is_seq_weight"] / after["rollout_is_seq_weight"]
        assert divisor == pytest.approx(sum(a for a, _ in tokens) / sum(b for _, b in tokens), rel=1e-5)
        divisors.setdefault(before["step"], set()).add(round(divisor, 5))
    assert len(divisors) == 5
    assert all(max(of_step) - min(of_step) < 3e-5 for of_step in divisors.values()), divisors
    assert len(set.union(*divisors.values())) >= 5, "batches are divided by their own means"
