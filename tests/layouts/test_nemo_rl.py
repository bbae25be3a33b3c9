"""NeMo-RL's train_data_step{N}.jsonl, held to files of its own logger."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "nemo-rl"
FILES = ("train_data_step1.jsonl", "train_data_step2.jsonl", "train_data_step3.jsonl", "train_data_step10.jsonl")
COLUMNS = (
    "rollout_log_probs",
    "old_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "sample_id",
    "source",
)


@pytest.mark.parametrize("name", [*FILES, "nan/train_data_step4.jsonl"])
def test_a_step_gives_the_rows_that_its_batch_held(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected("nemo-rl/expected.parquet", name), *COLUMNS)


def test_files_come_in_the_order_named_with_the_row_of_each() -> None:
    rows = rows_of([FOLDER / name for name in FILES])
    right = [row for name in FILES for row in expected("nemo-rl/expected.parquet", name)]
    agree(rows, right, *COLUMNS)
    assert [(row["source_file"], row["source_row"]) for row in rows] == [
        (str(FOLDER / row["file"]), row["row"]) for row in right
    ]


def test_log_probs_that_are_all_zero_are_no_policy() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / "on_policy" / "train_data_step5.jsonl"))
    assert "force_on_policy_ratio" in caught.value.hint


def test_values_that_are_not_finite_stop_analyze_and_name_their_row() -> None:
    with pytest.raises(DataError, match=r"train_data_step4\.jsonl, row"):
        analyze(str(FOLDER / "nan" / "train_data_step4.jsonl"))


def written(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "train_data_step7.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


ROW: dict[str, Any] = {
    "token_ids": [[5, 6, 7]],
    "token_loss_mask": [[0, 1, 1]],
    "sample_loss_mask": [1.0],
    "generation_logprobs": [[0.0, -1.0, -2.0]],
    "prev_logprobs": [[0.0, -1.5, -2.5]],
    "advantages": [[0.5, 0.5, 0.5]],
    "rewards": [1.0],
    "idx": 0,
}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("token_loss_mask", None, "token_loss_mask is not in a list of one"),
        ("prev_logprobs", [], "prev_logprobs is not in a list of one"),
        ("generation_logprobs", [[0.0], [1.0]], "generation_logprobs is not in a list of one"),
        ("generation_logprobs", [[-1.0, -2.0]], "generation_logprobs has 2 values, token_loss_mask has 3"),
        ("token_ids", [["a", "b", "c"]], "token_ids is not a list of whole numbers"),
        ("prev_logprobs", [{"a": 1}], "prev_logprobs is not a list"),
        ("sample_loss_mask", ["x"], "sample_loss_mask is not a number"),
        ("rewards", [{"a": 1}], "rewards is not a number"),
        ("agent_ref", [["a"]], "agent_ref is not a text"),
    ],
)
def test_a_malformed_row_is_named_by_its_line(tmp_path: Path, key: str, value: Any, said: str) -> None:
    path = written(tmp_path, ROW, {**ROW, key: value})
    with pytest.raises(DataError, match=rf"train_data_step7\.jsonl: line 2: {said}"):
        analyze(path)


@pytest.mark.parametrize("key", ["token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs"])
def test_a_row_without_a_key_is_named_by_its_line(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, ROW, {name: value for name, value in ROW.items() if name != key})
    with pytest.raises(DataError, match=rf"line 2: {key} is not a list"):
        analyze(path)


def test_agents_are_sources_and_a_batch_may_be_without_advantages(tmp_path: Path) -> None:
    plain = {name: value for name, value in ROW.items() if name != "advantages"}
    rows = rows_of([Path(written(tmp_path, {**plain, "agent_ref": [{"name": "math"}]}, {**plain, "agent_ref": "x"}))])
    assert [(row["source"], row["advantages"], row["response_mask"]) for row in rows] == [
        ("math", None, [1, 1]),
        ("x", None, [1, 1]),
    ]


def test_one_log_prob_of_any_row_that_is_not_zero_is_a_policy(tmp_path: Path) -> None:
    zeros = {**ROW, "prev_logprobs": [[0.0, 0.0, 0.0]]}
    rows = rows_of([Path(written(tmp_path, *[zeros] * 100, ROW))])
    assert [row["old_log_probs"] for row in rows] == [[0.0, 0.0]] * 100 + [[-1.5, -2.5]]
