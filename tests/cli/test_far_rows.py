"""Rows beyond what float64 exponentiates (709.78), through every command: no traceback, and no infinite number."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run

PLANS = ("token_is", "seq_is", "geo_rs", "token_rs", "prime_dppo", "gspo", "nemo_seq_mask_tis", "dppo_kl")


def commands(dump: str, plan: str, folder: Path) -> Iterator[Sequence[str]]:
    yield "analyze", dump, "--preset", plan, "--json"
    yield "analyze", dump, "--profile", "verl-0.6", "--preset", "geo_rs", "--json"
    yield "check", dump, "--preset", plan, "--json"
    yield "diagnose", dump, "--json"
    yield "compare", dump, "--preset", plan, "--preset", "token_rs", "--json"
    yield "sweep", dump, "--is", "token:,2", "--vary", "is.high", "--json"
    yield "sweep", dump, "--is", "token:0.5,", "--vary", "is.low", "--target-ess", "0.9", "--json"
    yield "sweep", dump, "--vary", "ratio.seq_mean", "--target-keep", "0.9", "--json"
    yield "diff", dump, dump, "--json"
    yield "filter", dump, "--preset", plan, "--dry-run", "--json"
    yield "filter", dump, "--rs", "ratio.seq_mean:0.9,1.1", "-o", f"{folder}/kept.parquet", "--force", "--overwrite"
    yield "inspect", dump, "--worst", "2", "--preset", plan, "--json"
    yield "watch", dump, "--once", "--every", "0", "--state", f"{folder}/w.rlcorr", "--json"


def written(path: Path, far: float, which: str, side: str) -> str:
    """20 rows of 4 tokens, some of which lie `far` below on one side."""
    is_far = {"one": [7], "tenth": [0, 10], "all": range(20), "token": range(0, 20, 3)}[which]
    sides = {"rollout": [[-0.5] * 4 for _ in range(20)], "old": [[-0.5 - i / 1000] * 4 for i in range(20)]}
    for row in is_far:
        sides[side][row] = [far, *sides[side][row][1:]] if which == "token" else [far] * 4
    columns = {"rollout_log_probs": sides["rollout"], "old_log_probs": sides["old"]}
    steps = {"step": [i // 10 for i in range(20)], "advantages": [float(i % 3 - 1) for i in range(20)]}
    pq.write_table(pa.table({**columns, **steps}), path)
    return str(path)


@pytest.mark.parametrize(
    ("far", "which", "side", "plan"),
    [
        (-1000.0, "tenth", "rollout", "token_is"),
        (-1000.0, "one", "old", "geo_rs"),
        (-710.5, "tenth", "old", "seq_is"),
        (-710.5, "token", "rollout", "prime_dppo"),
        (-8999.0, "all", "rollout", "dppo_kl"),
        (-8999.0, "one", "rollout", "nemo_seq_mask_tis"),
        (-1e4, "one", "rollout", "token_is"),
        (-1e30, "one", "old", "token_rs"),
    ],
)
def test_rows_beyond_float64_end_with_a_documented_status(
    far: float, which: str, side: str, plan: str, tmp_path: Path
) -> None:
    dump = written(tmp_path / "far.parquet", far, which, side)
    for command in commands(dump, plan, tmp_path):
        ran = run(*command)
        assert ran.status in (0, 1, 3), (command, ran.err)
        if ran.status == 0 and "--json" in command:
            json.loads(ran.out, parse_constant=pytest.fail)


def test_a_bound_is_suggested_though_the_next_row_lies_beyond_float64(tmp_path: Path) -> None:
    report = run("analyze", written(tmp_path / "far.parquet", -1000.0, "tenth", "rollout"), "--json").json
    assert report["geometric"]["kept_fraction"] == 0.9
    assert report["geometric"]["high"] > 1


@pytest.mark.parametrize("far", [-720.0, -1000.0])
def test_binary_kl_keeps_a_token_on_the_safe_side_of_its_advantage(far: float) -> None:
    import rlcorr_cli

    batch = {"rollout_log_probs": [[far, -1.0]], "current_log_probs": [[-1.0, -1.0]], "advantages": [-1.0]}
    for device in ("cpu", "torch"):
        kept = rlcorr_cli.correct(batch, preset="dppo_kl", mode="bypass", device=device)
        assert kept["response_mask"].to_pylist() == [[1, 1]]


def test_a_plan_that_drops_a_far_token_leaves_the_same_k3_in_compare_as_in_analyze(tmp_path: Path) -> None:
    rollout = [[-1.0, -1.0, -1.0]] * 39 + [[-1000.0, -1.0, -1.0]]
    table = pa.table({"rollout_log_probs": rollout, "old_log_probs": [[-1.0, -1.1, -0.95]] * 40})
    pq.write_table(table, tmp_path / "one.parquet")
    dump = str(tmp_path / "one.parquet")
    for device in ("cpu", "torch"):
        compared = run("compare", dump, "--preset", "token_rs", "--device", device, "--json").json
        (left,) = [plan["values"]["k3_left"] for plan in compared["plans"] if plan["name"] == "token_rs"]
        kept = run("analyze", dump, "--preset", "token_rs", "--device", device, "--json").json["metrics"]["kept_k3_kl"]
        assert left == pytest.approx(kept, rel=1e-12)
        assert np.isfinite(left)


def test_a_step_at_which_all_other_tokens_lie_beyond_float64_is_looked_at(tmp_path: Path) -> None:
    rows = [{"rollout_log_probs": [0.0, -1000.0 - i], "old_log_probs": [-0.5 - i / 9, -1.0 - i / 7]} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "step.parquet")
    assert run("diagnose", str(tmp_path / "step.parquet"), "--json").status == 0
