"""`rlcorr inspect`: how a dump is read, its problems counted, its worst rows named, one row token by token."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, analyzed, jsonl, parquet, refused, row, run, run_process

JSONL = BF16.replace(".parquet", ".jsonl")


def inspected(*args: str) -> dict[str, Any]:
    return run("inspect", *args, "--json").json


def test_it_counts_what_analyze_counts() -> None:
    for path in (BF16, STEPS, JSONL):
        found, report = inspected(path), analyzed(path)
        assert found["counts"] == report["counts"]
        assert found["inputs"] == report["inputs"]
        marks = {"sample_id": "sample_id", "step": "step"}
        assert found["columns"] == {**report["inputs"][0]["columns"], **marks}
        assert found["notes"] == [
            note
            for note in report["notes"]
            if not note.startswith(("Quantiles", "chi2_seq", "The intervals", "pareto"))
        ]


def test_it_describes_columns_lengths_and_values() -> None:
    found, table = inspected(BF16), pq.read_table(BF16)
    assert list(found["schema"]) == table.column_names
    assert found["schema"]["reward"] == "double"
    lengths = sorted(len(one) for one in table["rollout_log_probs"].to_pylist())
    ranks = {q: max(1, math.ceil(float(q) * len(lengths))) - 1 for q in found["lengths"]}
    assert found["lengths"] == {q: lengths[rank] for q, rank in ranks.items()}
    flat = np.concatenate(table["old_log_probs"].to_pylist())
    wanted = {"min": flat.min(), "mean": flat.mean(), "max": flat.max(), "zero_fraction": float((flat == 0).mean())}
    assert found["values"]["old_log_probs"] == pytest.approx(wanted, rel=1e-12)


def test_bad_rows_are_counted_by_class_and_end_nothing(tmp_path: Path) -> None:
    rows = [row(), row([-0.5], [-1.0, -2.0]), row([0.5, -1.0]), row(), row([None, -1.0]), row([-9999.0, -1.0])]
    for path, places in (
        (parquet(tmp_path / "d.parquet", rows), [f"row {i} (0-based)" for i in (1, 4, 2, 5)]),
        (jsonl(tmp_path / "d.jsonl", rows), [f"line {i}" for i in (2, 5, 3, 6)]),
    ):
        found = inspected(path)
        assert found["counts"]["bad_rows"] == 4
        assert {name: one["rows"] for name, one in found["problems"].items()} == dict.fromkeys(
            ("unequal_lengths", "not_finite", "above_zero", "sentinel"), 1
        )
        for one, place in zip(found["problems"].values(), places, strict=True):
            assert f"{place}: " in one["first"]
        text = run("inspect", path).out
        assert "! unequal_lengths  1 row, first" in text
        assert "Nothing suspicious" not in text


def test_a_dump_that_cannot_be_read_still_shows_its_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [{"rollout_log_probs": [-1.0], "uid": "a"}])
    ran = run("inspect", path)
    assert ran.status == 3
    assert "uid" in ran.out
    assert "old_log_probs" in ran.err
    as_json = run("inspect", path, "--json")
    assert (as_json.status, as_json.out) == (3, "")


def test_a_dump_without_a_valid_token_is_shown_and_refused(tmp_path: Path) -> None:
    ran = run("inspect", parquet(tmp_path / "d.parquet", [row(response_mask=[0, 0])]))
    assert ran.status == 3
    assert "0 valid tokens, 100% of 2 masked" in ran.out
    assert "no valid token" in ran.err


def test_the_worst_rows_are_those_of_a_full_sort(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=9)
    ids, a, b = (table[name].to_pylist() for name in ("sample_id", "old_log_probs", "rollout_log_probs"))
    logs = [np.array(x) - np.array(y) for x, y in zip(a, b, strict=True)]
    measures = {
        "k3": ([np.mean(np.expm1(one) - one) for one in logs], [np.expm1(one) - one for one in logs]),
        "abs_log_ratio": ([np.mean(np.abs(one)) for one in logs], [np.abs(one) for one in logs]),
        "seq_log_ratio": ([abs(one.sum()) for one in logs], [np.abs(one) for one in logs]),
    }
    for by, (sequences, tokens) in measures.items():
        found = inspected(str(tmp_path / "d.parquet"), "--worst", "5", "--rank", by, "--batch-tokens", "500")["worst"]
        order = np.argsort(sequences)[::-1][:5]
        assert found["by"] == by
        assert [one["sample_id"] for one in found["sequences"]] == [ids[i] for i in order]
        assert [one["value"] for one in found["sequences"]] == pytest.approx([sequences[i] for i in order], rel=1e-9)
        assert found["sequences"][0]["place"].endswith(f"d.parquet, row {order[0]} (0-based)")
        every = sorted(((x, ids[i], t) for i, one in enumerate(tokens) for t, x in enumerate(one)), reverse=True)[:5]
        assert [(one["sample_id"], one["token"]) for one in found["tokens"]] == [key[1:] for key in every]
        assert [one["value"] for one in found["tokens"]] == pytest.approx([key[0] for key in every], rel=1e-9)


def test_one_row_token_by_token_with_what_the_plan_says() -> None:
    plan = ("--is", "token:,1.02", "--rs", "k3.token:,0.001", "--rs", "ratio.seq_mean:0.999,1.001")
    given = pq.read_table(BF16).slice(7, 1).to_pylist()[0]
    found = run("inspect", BF16, "--row", given["sample_id"], *plan, "--json").json
    assert found["place"].endswith("row 7 (0-based)")
    assert found["facts"]["sample_id"] == given["sample_id"]
    assert found["texts"]["response"] == given["response"]
    assert found["tokens"] == given["response_token_ids"]
    assert found["log_probs"]["old_log_probs"] == given["old_log_probs"]
    logs = np.array(given["old_log_probs"]) - np.array(given["rollout_log_probs"])
    assert found["log_ratios"] == pytest.approx(logs.tolist(), rel=1e-12)
    assert found["weights"] == pytest.approx(np.minimum(np.exp(logs), 1.02).tolist(), rel=1e-9)
    token, sequence = found["rejections"]
    assert token["keep"] == (np.expm1(logs) - logs <= 0.001).tolist()
    assert not all(token["keep"])
    assert sequence["value"] == pytest.approx(math.exp(logs.mean()), rel=1e-9)
    assert sequence["keep"] == [0.999 <= math.exp(logs.mean()) <= 1.001] * len(logs)
    text = " ".join(run("inspect", BF16, "--row", "7", *plan).out.split())
    assert "rejected by" in text
    assert "+0.0918 1.020 token_k3, " in text


@pytest.mark.parametrize(("path", "number", "index"), [(BF16, "5", 5), (JSONL, "5", 4), (STEPS, "100", 100)])
def test_a_row_has_the_number_that_errors_give_it(path: str, number: str, index: int) -> None:
    parquet = path.endswith("parquet")
    rows = pq.read_table(path).to_pylist() if parquet else [json.loads(x) for x in Path(path).read_text().splitlines()]
    found = run("inspect", path, "--row", number, "--json").json
    assert found["facts"]["sample_id"] == rows[index]["sample_id"]


def test_a_bad_row_is_shown_as_it_stands(tmp_path: Path) -> None:
    rows = [row(sample_id="a"), row([-1.0, None, -2.0], [-1.0], sample_id="b"), row([None, -1.0], sample_id="c")]
    for path in (parquet(tmp_path / "d.parquet", rows), jsonl(tmp_path / "d.jsonl", rows)):
        found = run("inspect", path, "--row", "b", "--json").json
        assert found["problem"].startswith("unequal_lengths: old_log_probs has 1 token, rollout_log_probs has 3")
        assert found["log_probs"] == {"rollout_log_probs": [-1.0, None, -2.0], "old_log_probs": [-1.0]}
        assert "! bad row, not_finite" in run("inspect", path, "--row", "c").out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--row", "none"), "There is no row of sample_id none"),
        (("--row", "1", "--worst", "2"), "Use one of the two"),
        (("--worst", "2", "--rank", "kl"), "k3, abs_log_ratio, seq_log_ratio"),
    ],
)
def test_wrong_uses(args: tuple[str, ...], part: str) -> None:
    ran = run("inspect", STEPS, *args)
    assert ran.status == 2
    assert part in ran.err


def test_a_name_of_several_rows_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [row(sample_id="a", step=i) for i in range(2)])
    ran = run("inspect", path, "--row", "a")
    assert ran.status == 2
    assert "2 rows have sample_id a" in ran.err
    assert "row 0 (0-based)" in ran.err


def test_of_a_name_of_very_many_rows_three_are_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d.jsonl", [row(sample_id="a", step=i) for i in range(50)])
    ran = run("inspect", path, "--row", "a")
    assert ran.status == 2
    assert "50 rows have sample_id a" in ran.err
    assert [f"line {i}" in ran.err for i in (1, 2, 3, 4)] == [True, True, True, False]


def test_text_fits_80_columns() -> None:
    for args in ((), ("--worst", "3"), ("--row", "s003", "--preset", "seq_is_rs")):
        text = run("inspect", BF16, *args).out
        assert max(map(len, text.splitlines())) <= 80


def test_standard_input_is_inspected() -> None:
    ran = run_process("inspect", "-", "--worst", "1", stdin=json.dumps(row()) + "\n" + json.dumps(row([0.5])) + "\n")
    assert ran.status == 0, ran.err
    assert "standard input, line 2" in ran.out


def test_a_measure_of_the_worst_without_the_worst_is_refused() -> None:
    refused(run("inspect", BF16, "--rank", "k3"), 2, "--rank orders the worst", "Add --worst 5.")
    refused(run("inspect", BF16, "--rank", "k3", "--row", "s003"), 2, "--rank orders the worst")
    by_k3 = run("inspect", BF16, "--worst", "2", "--rank", "k3").out
    assert run("inspect", BF16, "--worst", "2", "-q").out == by_k3
