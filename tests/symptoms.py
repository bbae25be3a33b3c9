"""Dumps in the likeness of the 24 questions of rlcorr_cli/manual/symptoms.md: one file or two, `dump` and `other`."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SAMPLE = Path(__file__).parent.parent / "sample_data" / "smollm2_bf16.parquet"
CAUSES = Path(__file__).parent / "diagnosis" / "causes"
Row = dict[str, Any]
LISTS = ("rollout_log_probs", "old_log_probs")


def _rows(name: str) -> list[Row]:
    return pq.read_table(CAUSES / f"{name}.parquet").to_pylist()


def _write(folder: Path, rows: list[Row], name: str = "dump") -> None:
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


def _copied(name: str) -> Callable[[Path], None]:
    def copy(folder: Path) -> None:
        shutil.copy(CAUSES / f"{name}.parquet", folder / "dump.parquet")

    return copy


def _noise(rows: int, tokens: int, size: float, seed: int = 0) -> list[Row]:
    """Rows of long sequences whose log-ratios are rounding noise: equal policies for a person."""
    rng = np.random.default_rng(seed)
    made: list[Row] = []
    for i in range(rows):
        b = -rng.gamma(0.5, 1.2, tokens)
        noise = rng.normal(0, size, tokens) * (1 - np.exp(b))
        made.append(
            {
                "sample_id": f"s{i}",
                "group_id": f"g{i // 4}",
                "rollout_log_probs": b.tolist(),
                "old_log_probs": np.minimum(b + noise - noise * noise / 2, 0).tolist(),
                "reward": float(i % 2),
                "advantages": [1.0 if i % 2 else -1.0] * tokens,
            }
        )
    return made


def _with_steps(sizes: list[float]) -> list[Row]:
    """Steps of 16 rows of 200 tokens, of these sizes of noise."""
    return [
        {**row, "step": step, "sample_id": f"{step}_{row['sample_id']}", "group_id": f"{step}_{row['group_id']}"}
        for step, size in enumerate(sizes)
        for row in _noise(16, 200, size, seed=step)
    ]


def _changed(change: Callable[[int, Row, np.ndarray, np.ndarray], tuple[Any, Any]]) -> list[Row]:
    rows = pq.read_table(SAMPLE, columns=["sample_id", "group_id", *LISTS]).to_pylist()
    for i, row in enumerate(rows):
        b, a = change(i, row, *(np.array(row[name]) for name in LISTS))
        row["rollout_log_probs"], row["old_log_probs"] = list(map(float, b)), list(map(float, a))
    return rows


def _kl_by_step(name_before: str, name_after: str) -> list[Row]:
    """Three steps of one cause and two of another."""
    names = ("sample_id", "group_id", "token_ids", *LISTS)
    before, after = ([{key: row[key] for key in names} for row in _rows(name)] for name in (name_before, name_after))
    return [{**row, "step": i % 3} for i, row in enumerate(before)] + [
        {**row, "step": 3 + i % 2, "sample_id": f"late_{i}"} for i, row in enumerate(after)
    ]


def top1(folder: Path) -> None:
    rng = np.random.default_rng(0)

    def change(_i: int, _row: Row, b: np.ndarray, a: np.ndarray) -> tuple[Any, Any]:
        p = np.exp(b)
        low = np.maximum(p, 0.3)
        top = np.log(low + rng.random(b.size) * np.maximum(0, 1 - p - low))
        return np.where((p < 0.5) & (rng.random(b.size) < 0.6), top, b), a

    _write(folder, _changed(change))


def prompt(folder: Path) -> None:
    rng = np.random.default_rng(1)

    def change(_i: int, row: Row, b: np.ndarray, a: np.ndarray) -> tuple[Any, Any]:
        far = (row["group_id"] == "g2") & (np.arange(a.size) >= 20)
        return b, np.where(far, np.minimum(0, a - np.abs(rng.normal(4, 2, a.size))), a)

    _write(folder, _changed(change))
    # The same rows, scored by the engine's prefill: it agrees with the trainer.
    _write(folder, _changed(lambda i, row, b, a: (a, a + rng.normal(0, 1e-4, a.size).clip(None, -a))), "other")


def slip(folder: Path) -> None:
    def change(i: int, _row: Row, b: np.ndarray, a: np.ndarray) -> tuple[Any, Any]:
        half = b.size // 2
        return (np.r_[b[:half], b[half + 2 :], 0, 0], a) if i % 3 == 0 and b.size > 8 else (b, a)

    _write(folder, _changed(change))


def first_token(folder: Path) -> None:
    rng = np.random.default_rng(2)

    def change(_i: int, _row: Row, b: np.ndarray, a: np.ndarray) -> tuple[Any, Any]:
        a = np.minimum(0, b + rng.normal(0, 1e-6, b.size))
        a[0] = min(0, round((b[0] + rng.choice([-0.25, -0.125, 0, 0.125, 0.25])) / 0.125) * 0.125)
        return b, a

    _write(folder, _changed(change))


def with_nan(folder: Path) -> None:
    rows = _changed(lambda i, row, b, a: (b, a))
    rows[3]["rollout_log_probs"][5] = float("nan")
    _write(folder, rows)


def one_ulp(folder: Path) -> None:
    rng = np.random.default_rng(3)

    def change(_i: int, _row: Row, b: np.ndarray, _a: np.ndarray) -> tuple[Any, Any]:
        b = b.astype(np.float32)
        moved = np.where(rng.random(b.size) < 0.01, np.nextafter(b, np.float32(-9)), b)
        return b, moved

    _write(folder, _changed(change))


def two_updates(folder: Path) -> None:
    """Rows with a current policy that differs from the old one by the shape of the micro-batch alone."""
    rng = np.random.default_rng(4)
    rows = _noise(32, 200, 0.02)
    for row in rows:
        old = np.array(row["old_log_probs"])
        row["current_log_probs"] = np.minimum(0, old + rng.normal(0, 0.15, old.size) * (1 - np.exp(old))).tolist()
    _write(folder, rows)


def sawtooth(folder: Path) -> None:
    """A gap that grows over refits and is gone after a restart."""
    _write(folder, _with_steps([0.01, 0.03, 0.06, 0.12, 0.01, 0.03, 0.06, 0.12]))


def resumed(folder: Path) -> None:
    """Three steps of a larger gap, in rows that name no prompt."""
    rows = _with_steps([0.01, 0.01, 0.15, 0.1, 0.05, 0.01, 0.01])
    _write(folder, [{key: value for key, value in row.items() if key != "group_id"} for row in rows])


def late(folder: Path) -> None:
    """The error of a token stays as it is; sequences grow longer and tokens less likely."""
    rng = np.random.default_rng(6)
    rows: list[Row] = []
    for step in range(5):
        for i in range(16):
            b = -rng.gamma(0.3 + 0.25 * step, 1.2, 80 + 80 * step)
            noise = rng.normal(0, 0.05, b.size) * (1 - np.exp(b))
            a = np.minimum(0, b + noise)
            rows.append({"sample_id": f"{step}_{i}", "step": step, "rollout_log_probs": b, "old_log_probs": a})
    _write(folder, [{k: list(v) if isinstance(v, np.ndarray) else v for k, v in row.items()} for row in rows])


def positions(folder: Path) -> None:
    """The gap grows along the sequence, in every step by more."""
    rng = np.random.default_rng(7)
    rows = _with_steps([0.005] * 5)
    for row in rows:
        a = np.array(row["old_log_probs"])
        size = 0.02 * (1 + row["step"]) * (0.2 + np.arange(a.size) / a.size)
        row["old_log_probs"] = np.minimum(0, a + rng.normal(0, 1, a.size) * size).tolist()
    _write(folder, rows)


MAKERS: dict[int, Callable[[Path], None]] = {
    1: _copied("temp07_raw_vs_processed"),
    2: _copied("top_p095"),
    3: _copied("temp12_processed_vs_raw"),
    4: lambda folder: _write(folder, _noise(64, 600, 0.05)),
    5: lambda folder: _write(folder, _noise(32, 4000, 0.05)),
    6: lambda folder: _write(folder, _noise(64, 600, 0.05)),
    7: lambda folder: _write(folder, _kl_by_step("noise_bf16_fp32", "stale_4")),
    8: sawtooth,
    9: prompt,
    10: _copied("quant_int8"),
    11: top1,
    12: _copied("worker_temp09"),
    13: positions,
    14: first_token,
    15: _copied("moe_flips_bf16"),
    16: _copied("lora_not_merged"),
    17: _copied("quant_int4"),
    18: _copied("stale_4"),
    19: resumed,
    20: two_updates,
    21: slip,
    22: with_nan,
    23: late,
    24: one_ulp,
}
"""Question -> what writes its dump into a folder."""
