"""Rewards and advantages that are numbers, and whose sums or squares float64 does not hold: no warning of NumPy's is
seen (here every one is an error), and no note says what is not so."""

import random
from pathlib import Path
from typing import Any

import pytest
from running import parquet, row, run

LARGEST = (1e308, -1e308, 1e308, 0.0, 1.5)
TOKENS = 40
COLUMNS: dict[str, dict[str, Any]] = {
    "rewards": {"reward": list(LARGEST)},
    "advantages of rows": {"advantages": list(LARGEST)},
    "advantages of tokens": {"advantages": [[value] * TOKENS for value in LARGEST], "reward": list(LARGEST)},
}
GATED = ("--preset", "roll_topr", "--mode", "bypass")


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("analyze", "--group-by", "step"),
    ("check", "--fail-on", "cause"),
    ("compare", "--group-by", "step"),
    ("diagnose", "--by", "step"),
    ("filter", "-o", "o.parquet", "--preset", "token_is"),
    ("inspect",),
    ("plot", "-o", "o.png"),
    ("sweep", "--vary", "ratio.seq_mean"),
)
OF_ADVANTAGES: tuple[tuple[str, ...], ...] = (
    ("analyze", *GATED),
    ("analyze", "--objective", "ppo"),
    ("compare", "--objective", "ppo", "--group-by", "step"),
    ("plot", "--kind", "weights", "-o", "o.png", *GATED),
)
CASES = [
    (columns, command)
    for columns in COLUMNS
    for command in (COMMANDS if columns == "rewards" else COMMANDS + OF_ADVANTAGES)
]


def dump_of(path: Path, columns: str) -> str:
    """Sixty rows with some of COLUMNS."""
    draw, rows = random.Random(1), list[dict[str, Any]]()
    for i in range(60):
        rollout = [-2 * draw.random() - 0.2 for _ in range(TOKENS)]
        old = [a + draw.gauss(0, 0.05) for a in rollout]
        more = {name: values[i % len(LARGEST)] for name, values in COLUMNS[columns].items()}
        rows.append(row(rollout, old, current_log_probs=old, sample_id=i, step=i % 2, **more))
    return parquet(path / "d.parquet", rows)


@pytest.mark.parametrize(("columns", "command"), CASES, ids=lambda part: " ".join([part] if part in COLUMNS else part))
def test_large_rewards_and_advantages_warn_nobody(
    columns: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (name, *options), in_portions = command, () if command[0] == "inspect" else ("--batch-tokens", "400")
    ran = run(name, dump_of(tmp_path, columns), *options, *in_portions)
    assert ran.status in (0, 1), ran.err
    assert "Warning" not in ran.err
    assert "no finite" not in ran.out
    assert "every advantage is 0," not in " ".join(ran.out.split())


def test_a_sum_of_rewards_beyond_float64_is_null_and_said(tmp_path: Path) -> None:
    report = run("analyze", dump_of(tmp_path, "rewards"), "--json").json
    assert report["metrics"]["reward_mean"] is None
    assert "The rewards' sum is too large for float64: reward_mean is null." in report["notes"]


@pytest.mark.parametrize("options", [(), GATED], ids=" ".join)
@pytest.mark.parametrize("columns", ["advantages of rows", "advantages of tokens"])
def test_squares_of_advantages_beyond_float64_are_null_and_said(
    columns: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    report = run("analyze", dump_of(tmp_path, columns), *options, "--json").json
    assert report["metrics"]["advantage_shift"] is None
    assert "The sum of the advantages' squares is too large for float64: advantage_shift is null." in report["notes"]
    assert not [note for note in report["notes"] if "no finite advantage" in note]
