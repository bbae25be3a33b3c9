"""Nothing of an engine's response is left out in silence, and lines of unfinished ones are no responses."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import analyze, convert, diagnose, filter, inspect
from rlcorr_cli.errors import DataError, UsageError
from tests.layouts import slime_made
from tests.layouts.native_rows import NATIVE, rows_of

Row = Mapping[str, Any]


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def chat(parts: Row, *, id: str = "a", finish: str | None = "stop", n: int = 1, **others: Any) -> dict[str, Any]:
    """A chat response whose choices have these lists of log-probs."""
    logprobs = {key: [{"token": "t", "logprob": v} for v in values] for key, values in parts.items()}
    choices = [{"index": i, "finish_reason": finish, "logprobs": logprobs} for i in range(n)]
    return {"id": id, "object": "chat.completion", "choices": choices, **others}


def sglang(values: Sequence[float], id: str = "a", *, finished: bool = True, **others: Any) -> dict[str, Any]:
    tokens = [[v, i, None] for i, v in enumerate(values)]
    reason = {"type": "stop"} if finished else None
    return {"text": "", "meta_info": {"id": id, "finish_reason": reason, "output_token_logprobs": tokens, **others}}


def test_reasoning_stands_before_the_answer_and_a_refusal_after_it(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [chat({"content": [-2.0], "refusal": [-3.0], "reasoning_content": [-1.0]})])
    assert [row["rollout_log_probs"] for row in rows_of([path])] == [[-1.0, -2.0, -3.0]]


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ({"logprobs": {"audio": [{"logprob": -0.5}]}}, "logprobs.audio[].logprob"),
        ({"logprobs": {"tool_calls": [{"name": "f", "tokens": [{"logprob": -1.0}]}]}}, "logprobs.tool_calls[].tokens"),
        ({"message": {"thinking": {"logprobs": [-0.5, -0.25]}}}, "message.thinking.logprobs"),
    ],
)
def test_a_response_with_log_probs_in_an_unknown_place_is_left_out_and_told(
    tmp_path: Path, where: Row, place: str
) -> None:
    odd, plain = chat({"content": [-1.0]}, id="b"), chat({"content": [-1.0]})
    for key, value in where.items():
        odd["choices"][0][key] = {**odd["choices"][0].get(key, {}), **value}
    path = lines(tmp_path / "a.jsonl", [plain, odd])
    assert [row["sample_id"] for row in rows_of([path])] == ["a/0"]
    assert any(f"1 of 2 responses left out: {place}" in note for note in inspect(str(path)).notes)
    with pytest.raises(DataError, match="none of its responses can be put in order"):
        inspect(str(lines(tmp_path / "b.jsonl", [odd])))


@pytest.mark.parametrize(
    ("n", "usage", "is_told"),
    [
        (1, {"completion_tokens": 9}, True),
        (1, {"completion_tokens": 2}, True),
        (1, {"completion_tokens": 25, "completion_tokens_details": {"reasoning_tokens": 22}}, True),
        (1, {"completion_tokens": 4}, False),  # an end token that is not listed
        (2, {"completion_tokens": 6}, False),
        (1, {"completion_tokens": 3}, False),
    ],
)
def test_another_number_of_log_probs_than_the_usage_says_is_told(
    tmp_path: Path, n: int, usage: Row, is_told: bool
) -> None:
    path = lines(tmp_path / "a.jsonl", [chat({"content": [-1.0, -2.0, -3.0]}, n=n, usage=usage)])
    assert any("than completion_tokens" in note for note in inspect(str(path)).notes) == is_told
    if n == 1:
        path = lines(tmp_path / "b.jsonl", [sglang([-1.0, -2.0, -3.0], completion_tokens=usage["completion_tokens"])])
        assert any("than completion_tokens" in note for note in inspect(str(path)).notes) == is_told


@pytest.mark.parametrize(
    "row",
    [
        *({**chat({"content": [-1.0]}), **sign} for sign in ({"done": False}, {"status": "in_progress"})),
        {**sglang([-1.0]), "finished": False},
        sglang([-1.0], status="incomplete"),
        {
            "responses_create_params": {},
            "response": {
                "status": "incomplete",
                "output": [{"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}],
            },
        },
    ],
)
def test_a_line_that_says_it_has_not_ended_is_left_out(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"is finished: .* in all"):
        inspect(str(lines(tmp_path / "a.jsonl", [row])))
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    if "response" in row:
        assert len(rows_of([lines(tmp_path / "b.jsonl", [{**row, "response": {**row["response"], **cut}}])])) == 1


def test_a_batch_of_failed_requests_says_so(tmp_path: Path) -> None:
    failed = {"custom_id": "q", "response": None, "error": {"code": "batch_expired"}}
    with pytest.raises(DataError, match="none of its 2 responses has a choice"):
        inspect(str(lines(tmp_path / "a.jsonl", [failed] * 2)))
    answered = {"custom_id": "r", "response": {"body": chat({"content": [-1.0]})}}
    notes = " ".join(inspect(str(lines(tmp_path / "b.jsonl", [failed, answered]))).notes)
    assert "1 of 2 responses left out: no choice" in notes


def test_an_end_without_log_probs_is_a_piece_of_the_line_before_it(tmp_path: Path) -> None:
    rows = [chat({"content": [-1.0]}, finish=None), {**chat({}), "id": "a"}, chat({"content": [-1.0]}, id="b")]
    with pytest.raises(DataError, match="its lines seem to be pieces"):
        rows_of([lines(tmp_path / "a.jsonl", rows)])


def test_rows_are_the_same_whether_they_are_kept_or_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [chat({"content": [-1.0, -2.0]}, id=str(i)) for i in range(5)]
    kept = rows_of([lines(tmp_path / "a.jsonl", rows)])
    monkeypatch.setattr("rlcorr_cli.layouts.json_rows.MOST_KEPT", 20)
    again = rows_of([lines(tmp_path / "b.jsonl", rows)])
    assert [row["rollout_log_probs"] for row in kept] == [row["rollout_log_probs"] for row in again] == [[-1, -2]] * 5


def test_log_probs_beside_the_choices_are_told_as_not_read(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [chat({"content": [-1.0]}, old_log_probs=[-1.0])])
    assert any("with log-probs in old_log_probs[], too" in note for note in inspect(str(path)).notes)


def grown(make: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    return [make([-1.0], "a", False), make([-1.0, -2.0], "a", False), make([-1.0, -2.0, -3.0], "a", True)]


ENGINES: dict[str, Callable[..., dict[str, Any]]] = {
    "sglang": lambda values, id, finished: sglang(values, id, finished=finished),
    "openai": lambda values, id, finished: chat({"content": values}, id=id, finish="stop" if finished else None),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_lines_of_unfinished_responses_are_counted_and_are_no_rows(tmp_path: Path, engine: str) -> None:
    make = ENGINES[engine]
    path = lines(tmp_path / "a.jsonl", [*grown(make), make([-4.0], "b", False)])
    notes = " ".join(inspect(str(path)).notes)
    assert "3 of 4 responses left out as unfinished" in notes
    assert "No finished line of 1 response: b" in notes
    written = tmp_path / "dump.parquet"
    convert(str(path), output=str(written))
    assert pq.read_table(written)["rollout_log_probs"].to_pylist() == [[-1.0, -2.0, -3.0]]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_of_unfinished_lines_alone_is_refused_with_a_line_that_makes_it_readable(
    tmp_path: Path, engine: str
) -> None:
    path = lines(tmp_path / "a.jsonl", [ENGINES[engine]([-1.0], id, False) for id in "ab"])
    with pytest.raises(DataError, match="none of its 2 responses is finished") as caught:
        inspect(str(path))
    assert len(rows_of([typed(caught.value.hint, path)])) == 2


CHUNKS = [
    {"id": id, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": None, **each}]}
    for id in "ba"
    for each in [
        {"logprobs": {"content": [], "reasoning_content": [{"logprob": -1.0}]}},
        {"logprobs": {"content": [{"logprob": -2.0}]}},
        {"logprobs": None, "finish_reason": "stop"},
    ]
]
PIECES = {
    "chunks": CHUNKS,
    "completions": [
        {
            "id": id,
            "object": "text_completion",
            "choices": [{"index": 0, "logprobs": {"token_logprobs": [v]}, "finish_reason": "stop" if v < -1 else None}],
        }
        for id in "ba"
        for v in (-1.0, -2.0)
    ],
    "sglang": [sglang([v], id, finished=v < -1) for id in "ba" for v in (-1.0, -2.0)],
}


def typed(hint: str, path: Path) -> Path:
    """The file that the line of jq in a hint makes."""
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not installed")
    line = hint[hint.index("jq -c") :].replace("dump.jsonl", str(path.with_suffix(".made.jsonl")))
    line = line.rstrip(".`").replace(" FILE ", f" {path} ").replace("` makes a line of each object", "")
    subprocess.run(line.split("`")[0], shell=True, check=True, timeout=60)
    return path.with_suffix(".made.jsonl")


@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_a_stream_are_refused_with_a_line_that_puts_them_together(tmp_path: Path, name: str) -> None:
    path = lines(tmp_path / "a.jsonl", PIECES[name])
    with pytest.raises(DataError, match=r"chunks of a stream|its lines seem to be pieces") as caught:
        rows_of([path])
    written = tmp_path / "dump.parquet"
    convert(str(typed(caught.value.hint, path)), output=str(written))
    assert pq.read_table(written)["rollout_log_probs"].to_pylist() == [[-1.0, -2.0]] * 2


def test_conversations_without_token_ids_are_counted_or_refused(tmp_path: Path) -> None:
    call = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    said = {"type": "message", "role": "assistant", "content": []}
    bare = {"responses_create_params": {}, "response": {"output": [said]}}
    path = lines(tmp_path / "a.jsonl", [bare] * 5)
    for command in (inspect, analyze):
        with pytest.raises(DataError, match="none of its 5 conversations has token ids and log-probs") as caught:
            command(str(path))
        assert "return_token_ids, logprobs" in caught.value.hint
    partly = {**bare, "response": {"output": [call, said]}}
    notes = " ".join(inspect(str(lines(tmp_path / "b.jsonl", [bare, partly]))).notes)
    assert "1 of 2 conversations left out: no call has token ids" in notes
    assert "1 of 2 conversations with a last call that has no token ids" in notes


def test_a_response_of_sglang_without_log_probs_is_left_out_and_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [sglang([-1.0]), {"error": {"message": "aborted"}}])
    assert len(rows_of([path])) == 1
    assert any("1 of 2 responses left out: they have no output_token_logprobs" in n for n in inspect(str(path)).notes)


@pytest.mark.parametrize(
    ("file", "on"), [("engines/sglang_generate.jsonl", "group_id"), ("engines/vllm_chat.jsonl", "group_id,choice")]
)
def test_what_an_engines_hint_joins_on_can_be_typed(tmp_path: Path, file: str, on: str) -> None:
    with pytest.raises(DataError) as caught:
        analyze(str(NATIVE / file))
    assert f'on="{on}"' in caught.value.hint
    n_rows = len(rows_of([NATIVE / file]))
    assert (
        convert(str(NATIVE / file), join=str(NATIVE / file), on=on, output=str(tmp_path / "a.parquet")).rows == n_rows
    )


def test_cached_tokens_of_a_response_are_columns(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    for row in (
        chat({"content": [-1.0]}, usage=usage),
        sglang([-1.0], prompt_tokens=9, cached_tokens=4, completion_tokens=1, spec_accept_length=2.5),
    ):
        (read,) = rows_of([lines(tmp_path / "a.jsonl", [row])])
        assert (read["cached_tokens"], read["total_prompt_tokens"]) == (4, 9)
    assert read["spec_accept_length"] == 2.5


TOKENS = [{"id": 5, "logprob": -0.5, "top_logprobs": []}, {"id": 6, "logprob": -0.25, "top_logprobs": []}]
FORMS: dict[str, tuple[Any, str]] = {
    "tgi": ({"generated_text": "", "details": {"prefill": [], "tokens": TOKENS}}, "details.tokens[].logprob"),
    "llama.cpp": ({"content": "", "completion_probabilities": TOKENS}, "completion_probabilities[].logprob"),
    "ollama": ({"response": "", "done": True, "logprobs": TOKENS}, "logprobs[].logprob"),
    "vllm offline": (
        {
            "prompt_logprobs": None,
            "finished": True,
            "outputs": [
                {
                    "token_ids": [7, 8],
                    "logprobs": [{"3": {"logprob": -9.0}, "7": {"logprob": -0.5}}, {"8": {"logprob": -0.25}}],
                }
            ],
        },
        "outputs[].logprobs[].{token id}.logprob",
    ),
    "harbor": ({"logprobs": [[-0.5, -0.25]], "completion_token_ids": [[1, 2]]}, "logprobs[][]"),
    "verifiers": (
        {"trajectory": [{"tokens": {"completion_ids": [1, 2], "completion_logprobs": [-0.5, -0.25]}}]},
        "trajectory[].tokens.completion_logprobs[]",
    ),
    "inspect": (
        {"samples": [{"output": {"choices": [{"logprobs": {"content": TOKENS}}]}}]},
        "samples[].output.choices[].logprobs.content[].logprob",
    ),
    "gemini": (
        {"candidates": [{"logprobsResult": {"chosenCandidates": [{"logProbability": v} for v in (-0.5, -0.25)]}}]},
        "candidates[].logprobsResult.chosenCandidates[].logProbability",
    ),
    "one document": ({"rows": [{"rollout_log_probs": [-0.5, -0.25], "id": 1}]}, "rows[].rollout_log_probs[]"),
    "several responses": (
        {"responses": [sglang([-0.5, -0.25])]},
        "responses[].meta_info.output_token_logprobs[][0]",
    ),
    "table": ({"columns": ["rollout_log_probs", "id"], "data": [[[-0.5, -0.25], "a"]], "ncols": 2}, "a table of"),
    "responses api": (
        {"object": "response", "output": [{"type": "reasoning"}, {"content": [{"logprobs": TOKENS}]}]},
        "A row for each item of output[].content[]",
    ),
    "responses api in a batch": (
        {"custom_id": "q", "response": {"body": {"output": [{"content": [{"logprobs": TOKENS}]}]}}, "error": None},
        "response.body.output[].content[].logprobs[].logprob",
    ),
    "cohere": ({"logprobs": [{"logprobs": [-0.5]}, {"logprobs": [-0.25]}]}, "logprobs[].logprobs[]"),
    "cohere 1": (
        {"generations": [{"likelihood": -0.3, "token_likelihoods": [{"likelihood": v} for v in (-0.5, -0.25)]}]},
        "generations[].token_likelihoods[].likelihood",
    ),
    "triton": ({"output_log_probs": [[-0.5, -0.25]], "cum_log_probs": [-0.75]}, "output_log_probs[][]"),
    "lmdeploy": (
        {"meta_info": {"output_token_logprobs": None}, "output_token_logprobs": [[-0.5, 5], [-0.25, 6]]},
        "output_token_logprobs[][0]",
    ),
    "one token a line": ({"token": {"logprob": -0.5}}, "token.logprob holds one number a line"),
    "array": ([{"rollout_log_probs": [-0.5, -0.25]}], "an array"),
}


@pytest.mark.parametrize("name", FORMS)
def test_log_probs_that_lie_elsewhere_are_named_with_a_line_that_makes_rows_of_them(tmp_path: Path, name: str) -> None:
    row, place = FORMS[name]
    path = lines(tmp_path / "a.jsonl", [row])
    with pytest.raises(DataError) as caught:
        inspect(str(path))
    error = f"{caught.value.message} {caught.value.hint}"
    assert place in error
    assert "did not log" not in error
    made = typed(caught.value.hint, path)
    written = tmp_path / "dump.parquet"
    convert(str(made), output=str(written))
    assert pq.read_table(written)["rollout_log_probs"].to_pylist() == [[-0.5, -0.25][: 1 if "one token" in name else 2]]


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ({"transition_scores": [-0.5]}, 'map={"rollout_log_probs": "transition_scores"}'),
        ({"prompt_logprobs": None, "logprobs": None}, "have the engine that samples return"),
        (
            {"completion_probabilities": [{"probs": [{"prob": 0.6}]}]},
            "probs[].prob holds probabilities: have the engine",
        ),
        ({"logprobs": [{"5": -0.5}]}, "logprobs[].{token id} holds numbers: write them as rollout_log_probs"),
        ({"prompt_logprobs": [-0.5], "cum_log_probs": [-0.5]}, "have the engine that samples return"),
        ({"meta_info": {"output_token_logprobs": None}, "logprobs": [-0.5]}, 'map={"rollout_log_probs": "logprobs"}'),
        ({"stop": False, "completion_probabilities": TOKENS}, "Lines with stop false hold parts of a response"),
        ({"done": False, "logprobs": TOKENS}, "Lines with done false hold parts of a response"),
        ({"rollout_log_probs": [-0.5], "trainer": {"logprobs": [-0.5]}}, "{old_log_probs: [.trainer.logprobs[]?]}"),
        ({"rollout_log_probs": [-0.5], "logprobs": TOKENS}, "the trainer did not write its log-probs"),
    ],
)
def test_only_what_holds_numbers_of_that_policy_is_offered(tmp_path: Path, row: Row, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        analyze(str(lines(tmp_path / "a.jsonl", [row])))
    assert hint in caught.value.hint


def test_nested_log_probs_of_parquet_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"details": [{"tokens": TOKENS}]}), tmp_path / "a.parquet")
    with pytest.raises(DataError) as caught:
        analyze(str(tmp_path / "a.parquet"))
    assert caught.value.hint.startswith("details.tokens[].logprob holds numbers: write them as rollout_log_probs")


def test_episodes_without_a_sampled_token_are_told_before_the_trained_policy(tmp_path: Path) -> None:
    episode = {"id": "1", "env": {}, "task": {}, "traces": [{"id": "a", "nodes": [{"parent": None}]}]}
    with pytest.raises(DataError, match="no row can be used") as caught:
        analyze(str(lines(tmp_path / "a.jsonl", [episode])))
    assert "Episodes without a sampled token give no row" in caught.value.hint


def test_a_bad_value_in_the_middle_of_a_file_is_no_last_line(tmp_path: Path) -> None:
    row = {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0]}
    with pytest.raises(DataError, match="has a string") as caught:
        analyze(str(lines(tmp_path / "a.jsonl", [row, {**row, "old_log_probs": ["x"]}, row])))
    assert "last line" not in caught.value.hint


SPEC_INFO = {"spec_accept_token_num": 3, "spec_draft_token_num": 4, "spec_verify_ct": 2, "completion_token_num": 5}


@pytest.mark.parametrize("make", ["rollout", "step", "rank"])
def test_slimes_facts_of_cache_and_speculation_are_columns(tmp_path: Path, make: str) -> None:
    told = {
        "prefix_cache_info": {"cached_tokens": 4, "total_prompt_tokens": 9},
        "spec_info": SPEC_INFO,
    }
    path = tmp_path / "2.pt"
    path.write_bytes(getattr(slime_made, make)(**told))
    (row,) = rows_of([path])
    assert (row["cached_tokens"], row["total_prompt_tokens"]) == (4, 9)
    assert (row["spec_accept_rate"], row["spec_accept_length"]) == (0.75, 2.5)


def test_a_sequence_without_drafts_has_no_facts_of_speculation(tmp_path: Path) -> None:
    path = tmp_path / "2.pt"
    path.write_bytes(slime_made.rollout(spec_info=dict.fromkeys(SPEC_INFO, 0)))
    (row,) = rows_of([path])
    assert row.get("spec_accept_rate") is row.get("spec_accept_length") is None


def test_facts_of_cache_and_speculation_go_through_filter(tmp_path: Path) -> None:
    rows = [
        {"rollout_log_probs": [-1.0], "old_log_probs": [-1.0], "cached_tokens": 4, "spec_accept_length": 2.5},
        {"rollout_log_probs": [-1.0], "old_log_probs": [-1.5], "cached_tokens": None, "spec_accept_length": None},
    ]
    dump, written = lines(tmp_path / "a.jsonl", rows), tmp_path / "b.parquet"
    filter(str(dump), output=str(written), preset="token_is")
    assert pq.read_table(written, columns=["cached_tokens", "spec_accept_length"]).to_pylist() == [
        {name: row[name] for name in ("cached_tokens", "spec_accept_length")} for row in rows
    ]


def test_prime_rls_entropies_and_masks_are_columns() -> None:
    row = rows_of([NATIVE / "prime-rl/token_exports/step_7/rank_0.jsonl"])[0]
    assert len(row["entropies"]) == len(row["is_masked"]) == len(row["rollout_log_probs"])


def test_cached_tokens_are_looked_at_by_default(tmp_path: Path) -> None:
    table = pq.read_table("sample_data/smollm2_bf16.parquet")
    path = tmp_path / "a.parquet"
    cached = pa.array([700 * (i % 2) for i in range(len(table))])
    pq.write_table(table.append_column("cached_tokens", cached), path)
    assert "cached_tokens" in json.dumps(diagnose(str(path)).to_dict())


def test_tokens_and_prompts_of_other_names_can_be_mapped(tmp_path: Path) -> None:
    table = pq.read_table("sample_data/smollm2_bf16.parquet").drop_columns(["group_id"])
    names = {"response_token_ids": "output_ids", "prompt": "question"}
    path, written = tmp_path / "a.parquet", tmp_path / "dump.parquet"
    pq.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), path)
    assert names.items() <= inspect(str(path), map=names).columns.items()
    convert(str(path), map=names, output=str(written))
    assert {*names} <= {*pq.read_schema(written).names}
    with pytest.raises(UsageError, match="unknown name 'token_ids'") as caught:
        inspect(str(path), map={"token_ids": "output_ids"})
    assert "response_token_ids" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        inspect(str(path), map={"old_logprobs": "old_log_probs"})
    assert caught.value.hint.startswith("Leave it out")


def test_server_sent_events_are_named_with_a_line_that_gives_their_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(": ping\n\nevent: message\n" + "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS))
    with pytest.raises(DataError, match="is a stream of server-sent events") as caught:
        analyze(str(path))
    line = caught.value.hint.split("`")[1].replace("chunks.jsonl", str(tmp_path / "b.jsonl"))
    subprocess.run(line.replace(" FILE ", f" {path} "), shell=True, check=True, timeout=60)
    with pytest.raises(DataError, match="these are chunks of a stream"):
        analyze(str(tmp_path / "b.jsonl"))
