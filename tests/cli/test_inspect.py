"""`rlcorr inspect`: how a dump is read, and its problems counted; rows that are asked for in a wrong way."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, analyzed, jsonl, parquet, row, run, run_process

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
            if not note.startswith(("Quantiles", "One sequence outweighs", "The intervals", "pareto"))
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


@pytest.mark.parametrize(("path", "number", "index"), [(BF16, "5", 5), (JSONL, "5", 4), (STEPS, "100", 100)])
def test_a_row_has_the_number_that_errors_give_it(path: str, number: str, index: int) -> None:
    parquet = path.endswith("parquet")
    rows = pq.read_table(path).to_pylist() if parquet else [json.loads(x) for x in Path(path).read_text().splitlines()]
    (found,) = run("inspect", path, "--row", number, "--json").json["rows"]
    assert found["facts"]["sample_id"] == rows[index]["sample_id"]


def test_a_bad_row_is_shown_as_it_stands(tmp_path: Path) -> None:
    rows = [row(sample_id="a"), row([-1.0, None, -2.0], [-1.0], sample_id="b"), row([None, -1.0], sample_id="c")]
    for path in (parquet(tmp_path / "d.parquet", rows), jsonl(tmp_path / "d.jsonl", rows)):
        (found,) = run("inspect", path, "--row", "b", "--json").json["rows"]
        assert found["problem"].startswith("unequal_lengths: old_log_probs has 1 token, rollout_log_probs has 3")
        assert found["log_probs"] == {"rollout_log_probs": [-1.0, None, -2.0], "old_log_probs": [-1.0]}
        assert "! bad row, not_finite" in run("inspect", path, "--row", "c").out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--row", "none"), "There is no row of sample_id none"),
        (("--row", "1", "--worst", "2"), "Use one of the two"),
        (("--tokenizer", "tokenizer.json"), "Add --worst 5"),
        (("--worst", "2", "--tokenizer", "none.json"), "There is no file none.json"),
        (("--where", "step ="), "Cannot read --where"),
        (("--where", "stepp = 4"), "names stepp, and there is no such column"),
        (("--where", "step + 1"), "is no condition"),
        (("--where", "step = 99"), "No row fits"),
        (("--where", "step = 4; drop table x"), "Cannot read --where"),
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
    lines = json.dumps(row()) + "\n" + json.dumps(row([0.5])) + "\n"
    for args, place in (((), "standard input, line 2"), (("--worst", "1"), "standard input, line 1")):
        ran = run_process("inspect", "-", *args, stdin=lines)
        assert ran.status == 0, ran.err
        assert place in " ".join(ran.out.split())


def test_it_does_not_say_that_nothing_is_suspicious_where_responses_are_left_out(tmp_path: Path) -> None:
    def chat(finish: str | None) -> dict[str, Any]:
        choice = {"logprobs": {"content": [{"logprob": -0.5}]}, "finish_reason": finish}
        return {"id": "a", "object": "chat.completion", "choices": [choice]}

    told = " ".join(run("inspect", jsonl(tmp_path / "a.jsonl", [chat("stop"), chat(None)])).out.split())
    assert "1 of 2 responses left out as unfinished" in told
    assert "nothing suspicious" not in told
    assert "No bad rows among those that are read; the notes say which responses are not, or not whole." in told


def test_log_probs_that_lie_nested_are_named_beside_the_columns(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"details": {"tokens": [{"logprob": -0.5}]}}])
    ran = run("inspect", path)
    assert (ran.status, ran.out.split()[:3]) == (3, ["column", "type", "read"])
    assert "details.tokens[].logprob holds numbers" in ran.err


def test_it_says_first_that_no_row_can_be_used(tmp_path: Path) -> None:
    told = run("inspect", parquet(tmp_path / "a.parquet", [row(response_mask=[0, 0])])).out
    assert told.splitlines()[1].strip() == "No row can be used: none has a valid token."
    assert "nothing suspicious" not in told
