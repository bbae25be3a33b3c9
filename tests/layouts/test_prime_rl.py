"""prime-rl's token export, held to files of its own exporter."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from rlcorr_cli import analyze, inspect
from rlcorr_cli.errors import DataError
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "prime-rl"
STEPS = FOLDER / "token_exports"
FILES = tuple(f"token_exports/step_{step}/rank_{rank}.jsonl" for step in (7, 8) for rank in (0, 1))
NOT_FINITE = tuple(f"nonfinite/token_exports/step_9/rank_{rank}.jsonl" for rank in (0, 1))
RIGHT = "prime-rl/expected_token_exports.parquet"
COLUMNS = (
    "rollout_log_probs",
    "current_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "step",
    "sample_id",
    "source",
    "worker",
)


@pytest.mark.parametrize("name", [*FILES, *NOT_FINITE])
def test_a_rank_gives_the_rows_that_its_trainer_held(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected(RIGHT, name), *COLUMNS)


def test_a_folder_of_steps_gives_each_rank_of_each_step() -> None:
    agree(rows_of([STEPS]), expected(RIGHT, *FILES), *COLUMNS)


def test_the_difference_of_the_policies_is_what_the_trainer_had() -> None:
    right = expected(RIGHT, *FILES)
    report = analyze(str(STEPS)).to_dict()
    n_tokens = sum(row["n_valid"] for row in right)
    assert report["counts"]["tokens"] == n_tokens
    assert report["metrics"]["kl"] == pytest.approx(-sum(row["sum_diff"] for row in right) / n_tokens, abs=1e-9)


def test_a_step_without_its_marker_is_still_being_written(tmp_path: Path) -> None:
    copytree(STEPS, tmp_path / "token_exports")
    (tmp_path / "token_exports" / "step_8" / "STABLE").unlink()
    with pytest.raises(DataError, match=r"step_8/rank_0\.jsonl: its step is still being written") as caught:
        analyze(str(tmp_path))
    assert "STABLE" in caught.value.hint
    analyze(str(tmp_path / "token_exports" / "step_7"))


def test_a_file_that_was_taken_out_of_its_step_is_read_and_said_to_have_no_marker(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.jsonl"
    path.write_bytes((FOLDER / FILES[0]).read_bytes())
    assert any("No STABLE is beside it" in note for note in inspect(str(path)).notes)
    assert not any("No STABLE is beside it" in note for note in inspect(str(FOLDER / FILES[0])).notes)


def test_values_that_were_not_finite_stay_null_and_stop_analyze() -> None:
    nulls = [row["current_log_probs"].count(None) for row in rows_of([FOLDER / NOT_FINITE[0]])]
    assert nulls == [2, 0]
    with pytest.raises(DataError, match=r"step_9/rank_0\.jsonl, row 0 .*current_log_probs\[2\] is null"):
        analyze(str(FOLDER / "nonfinite"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema_version", 2, "its schema_version is not 1"),
        ("trainer_logprobs", [0.0], "trainer_logprobs has 1 values, token_ids has 125"),
        ("trainer_logprobs", ["-1.5"] * 125, "trainer_logprobs is not a list of numbers"),
        ("inference_logprobs", None, "inference_logprobs is not a list"),
        ("inference_logprobs", [10**400] * 125, "inference_logprobs is not a list of numbers"),
        ("token_ids", [1.5] * 125, "token_ids is not a list of whole numbers"),
        ("token_ids", [2**63] * 125, "token_ids is not a list of whole numbers"),
        ("loss_mask", [None] * 125, "loss_mask is not a list of true and false"),
        ("step", 2**64, "step is not a whole number"),
        ("env_name", "\ud800", "env_name is not a string of complete characters"),
        ("env_name", {}, "env_name is not a text"),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_line(tmp_path: Path, key: str, value: Any, message: str) -> None:
    first, second, _ = (json.loads(line) for line in (FOLDER / FILES[0]).read_text().splitlines())
    path = tmp_path / "rank_0.jsonl"
    path.write_text(json.dumps(second) + "\n" + json.dumps({**first, key: value}))
    with pytest.raises(DataError, match=f"rank_0.jsonl: line 2: {message}"):
        rows_of([path])


def test_a_line_that_is_cut_off_says_that_the_file_may_still_be_written(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.jsonl"
    path.write_bytes((FOLDER / FILES[0]).read_bytes()[:-100])
    with pytest.raises(DataError, match=r"rank_0\.jsonl: line 3 is not JSON: is the file still being written"):
        rows_of([path])


def test_a_line_of_a_million_levels_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.jsonl"
    path.write_bytes((FOLDER / FILES[0]).read_bytes() + b'{"a":' + b"[" * 1_000_000)
    with pytest.raises(DataError, match="line 4 is not JSON"):
        rows_of([path])
