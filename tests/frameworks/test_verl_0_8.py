"""verl 0.8 against 0.9, of which it is one step behind: its shares of sequences beyond a bound are of applied weights.

No reference values were run for this release: the two names are held to slow loops from its definition, all others to
the profile of 0.9, which is held to verl's own function in `test_golden.py`.
"""

from math import exp
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from profiled import filtered, report

ROWS: list[dict[str, Any]] = [
    *pq.read_table(Path(__file__).parent.parent / "golden" / "input.parquet").to_pylist(),
    {"old_log_probs": [-1.0], "rollout_log_probs": [-3.0], "response_mask": [0]},
]
ROWS = [{name: row[name] for name in ("old_log_probs", "rollout_log_probs", "response_mask")} for row in ROWS]
SHARES = ("rollout_corr/rollout_is_seq_fraction_high", "rollout_corr/rollout_is_seq_fraction_low")
CONFIGS: dict[str, dict[str, Any]] = {
    "token": {"rollout_is": "token", "rollout_is_threshold": 1.1},
    "token, IcePop": {"rollout_is": "token", "rollout_is_threshold": "0.97_1.05"},
    "sequence": {"rollout_is": "sequence", "rollout_is_threshold": 1.1},
    "sequence, IcePop": {"rollout_is": "sequence", "rollout_is_threshold": "0.5_1.5"},
    "normalised": {"rollout_is": "token", "rollout_is_threshold": 1.1, "rollout_is_batch_normalize": True},
    "rejections": {"rollout_is": "token", "rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.01"},
}


def bounds(config: dict[str, Any]) -> tuple[float, float, bool]:
    """low, high, and whether what lies outside is zeroed; without a low the shares take 1 / high for it."""
    threshold = config.get("rollout_is_threshold", 2.0)
    if isinstance(threshold, str):
        low, high = map(float, threshold.split("_"))
        return low, high, True
    return 1 / threshold, threshold, False


def shares(config: dict[str, Any]) -> list[float]:
    """Slow loops: the share of rows whose mean weight, once bounded, is above high, and below low; an empty one has
    mean 0."""
    low, high, zeroes = bounds(config)
    means: list[float] = []
    for row in ROWS:
        valid = [at for at, kept in enumerate(row["response_mask"]) if kept]
        logs = [row["old_log_probs"][at] - row["rollout_log_probs"][at] for at in valid]
        if config["rollout_is"] == "sequence":
            logs = [sum(logs)] * len(logs)
        raw = [exp(max(-20.0, min(20.0, log))) for log in logs]
        applied = [(weight if low <= weight <= high else 0.0) if zeroes else min(weight, high) for weight in raw]
        means.append(sum(applied) / len(applied) if applied else 0.0)
    above = [mean for mean in means if mean > high * (1 + 1e-12)]
    return [len(above) / len(ROWS), sum(mean < low for mean in means) / len(ROWS)]


@pytest.mark.parametrize("name", CONFIGS)
def test_shares_of_sequences_are_of_applied_weights(name: str, tmp_path: Path) -> None:
    metrics = report(tmp_path, "verl-0.8", CONFIGS[name], ROWS)["metrics"]
    assert [metrics[share] for share in SHARES] == pytest.approx(shares(CONFIGS[name]))
    assert 0 < metrics[SHARES[1]] < 1


@pytest.mark.parametrize("name", CONFIGS)
def test_all_else_is_as_in_0_9(name: str, tmp_path: Path) -> None:
    older, newer = (report(tmp_path, profile, CONFIGS[name], ROWS)["metrics"] for profile in ("verl-0.8", "verl-0.9"))
    assert older[SHARES[0]] < newer[SHARES[0]] or name in ("normalised", "rejections")
    assert {k: v for k, v in older.items() if k not in SHARES} == {k: v for k, v in newer.items() if k not in SHARES}
    older, newer = (filtered(tmp_path, profile, CONFIGS[name], ROWS) for profile in ("verl-0.8", "verl-0.9"))
    assert older == newer
