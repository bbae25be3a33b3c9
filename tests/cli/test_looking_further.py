"""Plans that look at advantages, at the current policy or at a whole batch, and reading only the first rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, analyzed, jsonl, parquet, refused, row, run, run_process

GATED = """
[[rejections]]
statistic = "ratio"
scope = "token"
high = 1.0
gate = "negative"
"""


def gated(tmp_path: Path) -> str:
    path = tmp_path / "gated.toml"
    path.write_text(GATED)
    return str(path)


def numbers(metrics: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None}


def masks(tmp_path: Path, *args: str) -> list[list[int]]:
    out = tmp_path / "out.parquet"
    ran = run("filter", *args, "--rejected", "keep", "--overwrite", "-o", str(out))
    assert ran.status == 0, ran.err
    return pq.read_table(out, columns=["response_mask"])["response_mask"].to_pylist()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([-1.0, 1.0, 0.0], [[0, 1], [1, 1], [1, 1]]),
        ([-1, 0, -2], [[0, 1], [1, 1], [0, 1]]),
        ([[-1.0, -1.0], [0.5, -0.5], [-0.5, 0.5]], [[0, 1], [1, 1], [0, 1]]),
    ],
)
def test_advantages_are_one_number_or_one_for_each_token(given: list[Any], kept: list[Any], tmp_path: Path) -> None:
    rows = [row(response_mask=[1, 1], advantage=one) for one in given]
    for path in (parquet(tmp_path / "a.parquet", rows), jsonl(tmp_path / "a.jsonl", rows)):
        assert masks(tmp_path, path, "--plan", gated(tmp_path)) == kept


def test_a_list_of_advantages_leaves_masked_tokens_aside(tmp_path: Path) -> None:
    rows = [row((-0.5, -1.0, -1.0), (-0.25, -0.5, -2.0), response_mask=[0, 1, 1], advantages=[None, -1.0, 2.0])]
    assert masks(tmp_path, parquet(tmp_path / "a.parquet", rows), "--plan", gated(tmp_path)) == [[0, 0, 1]]


def test_missing_columns_are_named(tmp_path: Path) -> None:
    plain = parquet(tmp_path / "plain.parquet", [row()])
    refused(run("analyze", plain, "--preset", "prime_dppo"), 3, "advantages", "sign", "--map advantages=COLUMN")
    refused(run("analyze", plain, "--preset", "opsm"), 3, "current_log_probs", "another")
    refused(run("filter", plain, "--preset", "gspo", "--dry-run"), 3, "current_log_probs", "plan that compares")
    named = parquet(tmp_path / "named.parquet", [row(a=1.0), row(a=2.0)])
    assert run("analyze", named, "--preset", "prime_dppo", "--map", "advantages=a").status == 0
    words = parquet(tmp_path / "words.parquet", [row(advantage="high")])
    refused(run("analyze", words, "--preset", "prime_dppo"), 3, "advantage holds string", "one number per row")


@pytest.mark.parametrize("bad", [None, float("nan"), [1.0, None], [float("inf"), 0.0], [1.0]])
def test_advantages_that_are_no_numbers_are_refused_with_their_row(bad: object, tmp_path: Path) -> None:
    good = [1.0, 1.0] if isinstance(bad, list) else 1.0
    rows = [row(advantages=good), row(advantages=bad)]
    refused(run("analyze", parquet(tmp_path / "a.parquet", rows), "--preset", "prime_dppo"), 3, "row 1", "advantages")
    refused(run("analyze", jsonl(tmp_path / "a.jsonl", rows), "--preset", "prime_dppo"), 3, "line 2", "advantages")
    assert run("analyze", str(tmp_path / "a.parquet"), "--preset", "token_is").status == 0


def test_bypass_takes_the_rollout_policy_for_the_old_one(tmp_path: Path) -> None:
    rows = [
        {"rollout_log_probs": [-1.0, -1.0], "current_log_probs": [-1.5, -1.5], "response_mask": [1, 1], "advantage": a}
        for a in (-1.0, 1.0)
    ]
    path = parquet(tmp_path / "two.parquet", rows)
    assert masks(tmp_path, path, "--preset", "opsm", "--mode", "bypass") == [[0, 0], [1, 1]]


def test_a_budget_is_the_same_however_the_dump_is_read(tmp_path: Path) -> None:
    plan = ["--preset", "m2po", "--rs", "ratio.token:0.3,3"]
    report = analyzed(STEPS, *plan)
    assert 0.00001 < report["metrics"]["rollout_rs_m2po_masked_fraction"] < 0.1
    assert any(note.startswith("m2po keeps log_ratio_squared up to") for note in report["notes"])
    assert any("m2po is kept in each batch: 5 values of step" in note for note in report["notes"])
    for given in (["--batch-tokens", "1000"], ["--engine", "threads", "--workers", "1"], ["--group-by", "step"]):
        found = analyzed(STEPS, *plan, *given)["metrics"]
        assert numbers(found) == pytest.approx(numbers(report["metrics"]), rel=1e-9, abs=1e-12)
    whole = analyzed(STEPS, *plan, "--batch-by", "none")
    lost = "rollout_rs_m2po_masked_fraction"
    assert whole["metrics"][lost] < report["metrics"][lost]
    out = tmp_path / "out.parquet"
    assert run("filter", STEPS, *plan, "-o", str(out)).status == 0
    kept = report["metrics"]["kept_k3_kl"]
    assert analyzed(str(out))["metrics"]["k3_kl"] == pytest.approx(kept, rel=1e-12)


def test_a_budget_needs_a_dump_that_can_be_read_twice() -> None:
    ran = run_process("analyze", "-", "--preset", "m2po", stdin=json.dumps(row()) + "\n")
    refused(ran, 2, "read only once", "Save it to a file")


def test_limit_reads_the_first_rows(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    first = parquet(tmp_path / "first.parquet", table.slice(0, 10).to_pylist())
    wanted = analyzed(first, "--preset", "token_is")
    pq.write_table(table, tmp_path / "groups.parquet", row_group_size=4)
    for path in (BF16, BF16.replace(".parquet", ".jsonl"), str(tmp_path / "groups.parquet")):
        found = analyzed(path, "--preset", "token_is", "--limit", "10", "--batch-tokens", "300")
        assert found["counts"] == wanted["counts"]
        assert numbers(found["metrics"]) == pytest.approx(numbers(wanted["metrics"]), rel=1e-9, abs=1e-12)
        assert "Only the first 10 rows are read." in found["notes"]
    pq.write_table(table.drop_columns(["sample_id"]), tmp_path / "groups.parquet", row_group_size=4)
    both = [first, str(tmp_path / "groups.parquet")]
    assert [one["rows"] for one in analyzed(*both, "--limit", "12")["inputs"]] == [10, 2]
    assert "Only the first row is read." in analyzed(first, "--limit", "1")["notes"]
    assert analyzed(first, "--limit", "1000")["counts"] == wanted["counts"]


@pytest.mark.parametrize("plan", [["--preset", "token_is"], ["--preset", "slime_mis"]])
def test_filter_with_a_limit_writes_those_rows(plan: list[str], tmp_path: Path) -> None:
    pq.write_table(pq.read_table(BF16), tmp_path / "groups.parquet", row_group_size=4)
    out = tmp_path / "out.parquet"
    given = [str(tmp_path / "groups.parquet"), *plan, "--rejected", "keep", "--limit", "10"]
    report = run("filter", *given, "-o", str(out), "--json").json
    assert report["output"]["rows_in"] == report["output"]["rows_out"] == 10
    wanted = pa.Table.from_pylist(pq.read_table(BF16, columns=["sample_id"]).slice(0, 10).to_pylist())
    assert pq.read_table(out, columns=["sample_id"]).to_pylist() == wanted.to_pylist()


def test_a_budget_that_cannot_be_kept_says_so(tmp_path: Path) -> None:
    gaps = [(2.0, 3.0), (2.0, 2.0), (0.0, 2.0)]
    rows = [row((-1.0, -1.0), (-1 - a, -1 - b), step=step) for step, (a, b) in enumerate(gaps)]
    report = analyzed(parquet(tmp_path / "far.parquet", rows), "--preset", "m2po")
    assert report["metrics"]["kept_tokens"] == 4  # the smallest of each batch, equal ones together
    assert any("in 2 batches not even the smallest is below 0.04" in note for note in report["notes"])


def test_a_policy_that_did_not_move_has_no_drift(tmp_path: Path) -> None:
    logp = [-0.1 - 0.37 * i for i in range(50)]
    rows = [row([-x - 3.0 for x in range(50)], logp, current_log_probs=logp, advantage=-1.0)]
    plan = tmp_path / "still.toml"
    plan.write_text('[[rejections]]\nstatistic = "k1"\nscope = "token"\nhigh = 0.0\nlow = 0.0\nof = "drift"\n')
    report = analyzed(parquet(tmp_path / "d.parquet", rows), "--plan", str(plan))
    assert report["metrics"]["kept_tokens"] == 50
    assert (report["metrics"]["ois_max"], report["metrics"]["ppo_kl"]) == (1.0, 0.0)


def test_where_a_gate_is_shut_nothing_is_outside(tmp_path: Path) -> None:
    plan = tmp_path / "gated.json"
    bounds = {"scope": "token", "low": 1.5, "high": 5.0, "outside": "zero", "gate": "negative"}
    plan.write_text(json.dumps({"weighting": bounds}))
    rows = [row((-1.0, -1.0), (-1.0, -0.1), advantage=a) for a in (-1.0, 1.0, 1.0)]
    metrics = analyzed(parquet(tmp_path / "d.parquet", rows), "--plan", str(plan))["metrics"]
    assert metrics["rollout_is_oob_ratio"] == metrics["rollout_is_ratio_fraction_low"] == pytest.approx(1 / 6)


def test_only_one_trained_policy_is_no_drift(tmp_path: Path) -> None:
    one = {"rollout_log_probs": [-1.0], "current_log_probs": [-1.5], "advantage": -1.0}
    refused(run("analyze", parquet(tmp_path / "a.parquet", [one]), "--preset", "trl-opsm"), 3, "--mode bypass")


@pytest.mark.parametrize("given", [True, [True, False]])
def test_booleans_are_no_advantages(given: object, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [row(advantage=given)])
    refused(run("analyze", path, "--preset", "prime_dppo"), 3, "advantage holds", "number")


def test_huge_whole_numbers_are_numbers(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [row(advantage=2**60 + 1, reward=2**60 + 1)])
    assert run("analyze", path, "--preset", "prime_dppo").status == 0
