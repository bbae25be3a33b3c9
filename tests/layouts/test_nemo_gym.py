"""NeMo-Gym's rollouts, held to files of its own classes and to a real one of vLLM's rollouts."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.errors import DataError
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "nemo-gym"
RIGHT = "nemo-gym/expected.parquet"
FILES = {"rollouts.jsonl": "rollouts.jsonl", "example_rollouts.jsonl": "../../nemo_gym/example_rollouts.jsonl"}
"""Files, and what their expected rows call them."""
COLUMNS = ("rollout_log_probs", "response_mask", "token_ids", "reward", "group_id", "sample_id", "source")


@pytest.mark.parametrize("name", FILES)
def test_a_conversation_with_calls_of_the_model_gives_a_row(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected(RIGHT, FILES[name]), *COLUMNS)


def test_a_folder_gives_each_file() -> None:
    names = [FILES[name] for name in sorted(FILES)]
    right = [row for name in names for row in expected(RIGHT, name)]
    agree(rows_of([FOLDER], "nemo-gym"), right, *COLUMNS)


def test_analyze_says_who_writes_the_trained_policy() -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / "rollouts.jsonl"))
    assert "train_data_step{N}.jsonl" in caught.value.hint


def rollout(path: Path, *calls: tuple[list[int], list[int]], **others: Any) -> Path:
    output = [
        {"prompt_token_ids": prompt, "generation_token_ids": tokens, "generation_log_probs": [-0.5] * len(tokens)}
        for prompt, tokens in calls
    ]
    path.write_text(json.dumps({"responses_create_params": {}, "response": {"output": output}, **others}))
    return path


def test_tokens_between_two_calls_have_mask_0(tmp_path: Path) -> None:
    (row,) = rows_of([rollout(tmp_path / "a.jsonl", ([1, 2], [3, 4]), ([1, 2, 3, 4, 9, 9], [5]))])
    assert row["token_ids"] == [3, 4, 9, 9, 5]
    assert row["response_mask"] == [1, 1, 0, 0, 1]
    assert row["rollout_log_probs"] == [-0.5, -0.5, 0.0, 0.0, -0.5]


def test_a_call_whose_prompt_is_another_follows_without_tokens_between(tmp_path: Path) -> None:
    (row,) = rows_of([rollout(tmp_path / "a.jsonl", ([1, 2], [3, 4]), ([1, 2, 9, 9, 9], [5]))])
    assert row["token_ids"] == [3, 4, 5]
    assert row["response_mask"] == [1, 1, 1]


def test_a_masked_sample_has_mask_0_throughout(tmp_path: Path) -> None:
    (row,) = rows_of([rollout(tmp_path / "a.jsonl", ([1], [2, 3]), mask_sample=True)])
    assert row["response_mask"] == [0, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"generation_token_ids": [1]}, "generation_log_probs is not a list"),
        ({"generation_token_ids": [1], "generation_log_probs": []}, "generation_log_probs has 0 values"),
        ({"generation_token_ids": [1], "generation_log_probs": [0.0]}, "prompt_token_ids is not a list"),
        ({"generation_token_ids": "1"}, "generation_token_ids is not a list"),
        (5, "output is not a list of objects"),
    ],
)
def test_a_call_of_another_kind_is_named_with_its_line(tmp_path: Path, call: Any, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"responses_create_params": {}, "response": {"output": [call]}}))
    with pytest.raises(DataError, match=f"line 1: {message}"):
        rows_of([path])
