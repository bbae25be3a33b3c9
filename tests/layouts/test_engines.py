"""Responses of vLLM, SGLang and OpenAI, held to what their own classes write."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import analyze, inspect
from rlcorr_cli.errors import DataError
from tests.layouts.native_rows import NATIVE, agree, expected, rows_of

FOLDER = NATIVE / "engines"
RIGHT = "engines/expected.parquet"
OPENAI = (
    "vllm_chat.jsonl",
    "vllm_chat_token_ids.jsonl",
    "vllm_completions.jsonl",
    "vllm_completions_echo.jsonl",
    "vllm_run_batch.jsonl",
    "openai_chat.jsonl",
)
SGLANG = "sglang_generate.jsonl"
ECHO = FOLDER / "vllm_completions_echo.jsonl"
COLUMNS = ("rollout_log_probs", "response_mask", "token_ids", "group_id", "sample_id")
VERSIONS = ("policy_version", "policy_version_end", "policy_versions")


@pytest.mark.parametrize("name", OPENAI)
def test_a_file_gives_a_row_for_each_choice(name: str) -> None:
    agree(rows_of([FOLDER / name]), expected(RIGHT, name), *COLUMNS, "choice")


def test_sglang_gives_a_row_for_each_response_with_the_weights_of_each_token() -> None:
    agree(rows_of([FOLDER / SGLANG]), expected(RIGHT, SGLANG), *COLUMNS, *VERSIONS)


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("more", ["", ', "note": "\\ud800"', ', "time": NaN', "}"])
def test_lines_of_any_parser_give_the_same_rows(tmp_path: Path, more: str, collects: bool) -> None:
    """Half a character and NaN are read by Python's parser; whether garbage is looked for is as it was before."""
    lines = (FOLDER / SGLANG).read_text().splitlines()
    (tmp_path / SGLANG).write_text("".join(f"{line[:-1]}{more}}}\n" for line in lines))
    was_enabled = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        if more == "}":
            with pytest.raises(DataError, match="line 1 is not JSON"):
                rows_of([tmp_path / SGLANG], "sglang")
        else:
            agree(rows_of([tmp_path / SGLANG]), expected(RIGHT, SGLANG), *COLUMNS, *VERSIONS)
        assert gc.isenabled() == collects
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_a_folder_gives_each_file_of_a_kind() -> None:
    right = [row for name in sorted(OPENAI) for row in expected(RIGHT, name)]
    rows = [row for name in sorted(OPENAI) for row in rows_of([FOLDER / name])]
    agree(rows, right, *COLUMNS)
    assert [row["sample_id"] for row in rows_of([FOLDER], "openai")] == [row["sample_id"] for row in right]


def test_the_folders_of_engines_are_told_apart() -> None:
    with pytest.raises(DataError, match=r"dumps of several kinds: .*openai .*sglang"):
        rows_of([FOLDER / name for name in (*OPENAI, SGLANG)])


@pytest.mark.parametrize("name", [OPENAI[0], SGLANG])
def test_analyze_says_that_an_engine_knows_one_policy(name: str) -> None:
    with pytest.raises(DataError, match="no log-probs of a trained policy") as caught:
        analyze(str(FOLDER / name))
    assert "Score the same tokens with the trained policy" in caught.value.hint


def test_token_ids_are_a_column_only_where_a_response_has_them() -> None:
    assert "token_ids" not in rows_of([FOLDER / "openai_chat.jsonl"])[0]


def test_an_echoed_prompt_is_a_column_of_its_own() -> None:
    row = rows_of([ECHO])[0]
    assert row["prompt_log_probs"][:3] == [None, -0.5, -0.51]
    assert len(row["prompt_log_probs"]) == len(row["prompt_token_ids"]) == 46
    assert "prompt_log_probs" not in rows_of([FOLDER / "vllm_completions.jsonl"])[0]


@pytest.mark.parametrize("lacks", ["token_ids", "usage"])
def test_an_echoed_prompt_is_told_by_token_ids_or_by_usage(tmp_path: Path, lacks: str) -> None:
    response = json.loads(ECHO.read_text())
    for holder in (response, *response["choices"]):
        holder.pop(lacks, None)
    path = tmp_path / "echo.jsonl"
    path.write_text(json.dumps(response))
    assert [row["rollout_log_probs"] for row in rows_of([path])] == [
        row["rollout_log_probs"] for row in expected(RIGHT, ECHO.name)
    ]


def test_a_scored_prompt_is_read_by_the_ids_of_its_tokens(tmp_path: Path) -> None:
    scored = [None, {"7": {"logprob": -3.0}, "5": {"logprob": -1.5, "rank": 2}}]
    path = tmp_path / "scored.jsonl"
    path.write_text(json.dumps(completion([-0.25], prompt_logprobs=scored, prompt_token_ids=[4, 5])))
    (row,) = rows_of([path])
    assert row["prompt_log_probs"] == [None, -1.5]
    assert row["rollout_log_probs"] == [-0.25]


def test_the_prompt_that_sglang_scored_is_a_column_of_its_own() -> None:
    first, *_, last = rows_of([FOLDER / SGLANG])
    assert first["prompt_log_probs"][:3] == [None, -0.3, -0.31]
    assert first["prompt_token_ids"][:3] == [1, 9690, 198]
    assert last["prompt_log_probs"] is None


def completion(values: list[Any] | None, **others: Any) -> dict[str, Any]:
    logprobs = None if values is None else {"token_logprobs": values, "tokens": ["x"] * len(values)}
    choice = {"index": 0, "text": "x", "logprobs": logprobs, "finish_reason": "stop", **others}
    return {"id": "cmpl", "object": "text_completion", "choices": [choice]}


def test_responses_without_log_probs_say_what_to_ask_the_engine_for(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps(completion(None)))
    with pytest.raises(DataError, match="have no choice with log-probs") as caught:
        rows_of([path])
    assert "logprobs=true" in caught.value.hint


def test_a_choice_without_log_probs_among_others_is_kept_as_null(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    path.write_text("\n".join(json.dumps(completion(values)) for values in ([-0.5], None)))
    assert [row["rollout_log_probs"] for row in rows_of([path])] == [[-0.5], None]


def test_requests_that_failed_give_no_row_which_is_said() -> None:
    notes = inspect(str(FOLDER / "vllm_run_batch.jsonl")).notes
    assert any("failed" in note for note in notes), notes
    lines = (FOLDER / "vllm_run_batch.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["error"]
    assert {row["group_id"] for row in rows_of([FOLDER / "vllm_run_batch.jsonl"])} == {
        str(i) for i in range(len(lines) - 1)
    }


@pytest.mark.parametrize(
    ("logprobs", "message"),
    [
        ({"token_logprobs": ["a"]}, "token_logprobs is not a list of numbers"),
        ({"token_logprobs": {}}, "token_logprobs is not a list"),
        ({"content": [5]}, "content is not a list of objects"),
        ({"content": [{"logprob": "a"}]}, "logprob is not a list of numbers"),
        ([], "logprobs is not an object"),
    ],
)
def test_log_probs_of_another_kind_are_named_with_their_line(tmp_path: Path, logprobs: Any, message: str) -> None:
    response = {"id": "a", "object": "chat.completion", "choices": [{"index": 0, "logprobs": logprobs}]}
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps(completion([-0.5])) + "\n" + json.dumps(response))
    with pytest.raises(DataError, match=f"line 2: {message}"):
        rows_of([path])


@pytest.mark.parametrize(
    ("meta_info", "message"),
    [
        ({"output_token_logprobs": [[-0.5]]}, r"output_token_logprobs is not a list of \[log-prob"),
        ({"output_token_logprobs": [[-0.5, "a"]]}, "token id is not a list of whole numbers"),
        (
            {"output_token_logprobs": [], "weight_versions": [{"version": "1", "start": 0, "end": 10**12}]},
            "weight_versions has a part beyond the 0 tokens",
        ),
        ({"output_token_logprobs": [], "weight_versions": [{"version": "1"}]}, "weight_versions has a part beyond"),
    ],
)
def test_a_response_of_sglang_of_another_kind_is_refused(tmp_path: Path, meta_info: Any, message: str) -> None:
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps({"meta_info": meta_info}))
    with pytest.raises(DataError, match=f"line 1: {message}"):
        rows_of([path])


def test_weights_that_are_named_by_no_number_are_null(tmp_path: Path) -> None:
    meta_info = {"output_token_logprobs": [[-0.5, 3, None]], "weight_version": "default"}
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps({"meta_info": meta_info}))
    (row,) = rows_of([path])
    assert row["policy_version"] is None
