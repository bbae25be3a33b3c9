"""Answers of engines in every form that is read, of many sizes and orders, and without any one of their keys."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import analyze, convert, inspect
from rlcorr_cli.errors import DataError
from tests.layouts.engine_answers import FORMS, STREAMS, Draw, Right, Row, by_id, events_of, output, text_of_lines
from tests.layouts.native_rows import NATIVE, rows_of

SEEDS = range(8)


def read(path: Path) -> Right:
    rows = sorted(rows_of([path]), key=lambda row: (int(row["group_id"]), row.get("choice") or 0))
    assert all(row["response_mask"] == [1] * len(row["rollout_log_probs"]) for row in rows)
    return [(row["rollout_log_probs"], row.get("token_ids")) for row in rows]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_exactly(tmp_path: Path, form: str, seed: int) -> None:
    draw = Draw(seed)
    lines, right = FORMS[form](draw)
    path = tmp_path / "answers.jsonl"
    path.write_text(text_of_lines(draw.keys(lines)))
    assert read(path) == right
    assert not re.findall(r"\d of \d+ response.*", " ".join(inspect(str(path)).notes))


@pytest.mark.parametrize("name", ["stream.txt", "stream.jsonl", "stream.sse"])
@pytest.mark.parametrize("form", STREAMS)
def test_server_sent_events_are_read_as_the_same_lines(tmp_path: Path, form: str, name: str) -> None:
    lines, right = FORMS[form](Draw(5))
    (tmp_path / name).write_text(events_of(lines))
    assert read(tmp_path / name) == right


def written(path: Path, lines: list[Row]) -> Path:
    path.write_text(text_of_lines(lines))
    return path


@pytest.mark.parametrize("n_lines", [2, 3])
def test_lines_of_new_tokens_with_one_log_prob_are_told_from_repetitions_by_their_ids(
    tmp_path: Path, n_lines: int
) -> None:
    draw, values, ids = Draw(0), [0.0, 0.0, -0.5][:n_lines], [151_667, 198, 40][:n_lines]
    lines = [
        {
            "request_id": "r",
            "prompt_token_ids": [1],
            "outputs": [output(draw, 0, by_id(draw, [value], [token]), [token], finish)],
            "finished": finish is not None,
        }
        for value, token, finish in zip(values, ids, [*[None] * (n_lines - 1), "stop"], strict=True)
    ]
    assert read(written(tmp_path / "a.jsonl", lines)) == [(values, ids)]


def test_an_answer_without_tokens_gives_engines_without_token_ids_none(tmp_path: Path) -> None:
    answers = FORMS["ollama"](Draw(5))[0]
    rows = rows_of([written(tmp_path / "a.jsonl", [*answers, answers[0] | {"logprobs": [], "eval_count": 0}])])
    assert rows[-1]["rollout_log_probs"] == []
    assert not any("token_ids" in row for row in rows)


@pytest.mark.parametrize("form", ["tgi", "llama_cpp", "ollama", "request_output"])
def test_what_an_engines_hint_joins_on_can_be_typed(tmp_path: Path, form: str) -> None:
    path = written(tmp_path / "a.jsonl", FORMS[form](Draw(4))[0])
    with pytest.raises(DataError) as caught:
        analyze(str(path))
    assert 'on="group_id,choice"' in caught.value.hint
    joined = convert(str(path), join=str(path), on="group_id,choice", output=str(tmp_path / "b.parquet"))
    assert joined.rows == len(rows_of([path]))


@pytest.mark.parametrize("form", ["ollama_stream", "tgi_stream"])
def test_mixed_responses_without_ids_are_refused(tmp_path: Path, form: str) -> None:
    lines = FORMS[form](Draw(5))[0]
    ends = [i for i, line in enumerate(lines) if line.get("done") or line.get("generated_text")]
    lines.insert(ends[0], lines.pop(ends[0] + 1))
    with pytest.raises(DataError, match="lines of several are mixed"):
        rows_of([written(tmp_path / "a.jsonl", lines)])


@pytest.mark.parametrize("key", ["id", "index"])
def test_chunks_that_cannot_be_told_apart_are_refused(tmp_path: Path, key: str) -> None:
    lines = [without(line, (key,) if key == "id" else ("choices", key)) for line in FORMS["chat_chunks"](Draw(1))[0]]
    with pytest.raises(DataError, match="line 1: it is a piece of a stream without an id or index"):
        rows_of([written(tmp_path / "a.jsonl", lines)])


@pytest.mark.parametrize("form", STREAMS)
def test_a_stream_that_broke_off_gives_no_row_and_is_counted(tmp_path: Path, form: str) -> None:
    whole, right = FORMS[form](Draw(5))
    broken = FORMS[form](Draw(13))[0][:1]
    name = {"vllm_generate_stream": "request_id", "llama_cpp_stream": "id_slot"}.get(form, "id")
    holder = broken[0].get("meta_info", broken[0])
    if name in holder:
        holder[name] = 77 if name == "id_slot" else "broken"
    for choice in broken[0].get("choices", ()):
        choice["finish_reason"] = None
    path = written(tmp_path / "a.jsonl", [*whole, *broken])
    assert read(path) == right
    assert "left out as unfinished" in " ".join(inspect(str(path)).notes)


def test_prompt_logprobs_without_the_prompts_ids_are_told(tmp_path: Path) -> None:
    lines = FORMS["vllm_generate"](Draw(1))[0]
    lines[0]["prompt_logprobs"] = [None, {"5": {"logprob": -0.5}}]
    notes = inspect(str(written(tmp_path / "a.jsonl", lines))).notes
    assert "with prompt_logprobs that are not read" in " ".join(notes)


def test_tokens_of_djl_and_tensorrt_llm_are_read(tmp_path: Path) -> None:
    details = {"finish_reason": "length", "tokens": [{"id": 4, "text": "x", "log_prob": -0.5}]}
    djl = written(tmp_path / "a.jsonl", [{"generated_text": "x", "details": details}])
    output = {"index": 0, "token_ids": [4], "logprobs": [-0.5], "finish_reason": "stop"}
    trt = written(tmp_path / "b.jsonl", [{"prompt_token_ids": [1], "outputs": [output], "finished": True}])
    assert read(djl) == read(trt) == [([-0.5], [4])]


def test_log_probs_in_an_unknown_place_of_an_answer_are_named(tmp_path: Path) -> None:
    details = {"finish_reason": "length", "tokens": [], "drafts": [{"logprob": -0.5}]}
    path = written(tmp_path / "a.jsonl", [{"generated_text": "x", "details": details}])
    with pytest.raises(DataError, match=r"can be put in order: drafts\[\]\.logprob holds log-probs"):
        rows_of([path])


NATIVE_FILES = (
    "engines/openai_chat.jsonl",
    "engines/sglang_generate.jsonl",
    "engines/vllm_chat.jsonl",
    "engines/vllm_chat_token_ids.jsonl",
    "engines/vllm_completions.jsonl",
    "engines/vllm_completions_echo.jsonl",
    "engines/vllm_run_batch.jsonl",
    *(path.relative_to(NATIVE).as_posix() for path in NATIVE.glob("nemo-*/*.jsonl")),
    *(path.relative_to(NATIVE).as_posix() for path in NATIVE.glob("open-instruct/*rollouts*.jsonl")),
    *(path.relative_to(NATIVE).as_posix() for path in NATIVE.glob("prime-rl/token_exports/step_7/*.jsonl")),
    *(path.relative_to(NATIVE).as_posix() for path in NATIVE.glob("prime-rl/rollouts/step_7/train/*/*.jsonl")),
    "tinker-cookbook/capture/sample.jsonl",
)
MADE = {f"{form} {seed}": FORMS[form](Draw(seed))[0] for form in FORMS for seed in (2, 5)}


def places(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys of an object, those of inner ones behind theirs; lists have no place of their own."""
    for item in value if isinstance(value, list) else ():
        yield from places(item, place)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if not key.isdecimal():  # a token id
            yield (*place, key)
            yield from places(inner, (*place, key))


def without(value: Any, place: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [without(item, place) for item in value]
    if not isinstance(value, dict) or place[0] not in value:
        return value
    inner = {} if len(place) == 1 else {place[0]: without(value[place[0]], place[1:])}
    return {key: item for key, item in value.items() if key != place[0]} | inner


def measured(path: Path) -> dict[str, Any]:
    """The metrics of a dump with both policies; of another the log-probs of valid tokens, in any order of rows."""
    try:
        return dict(analyze(str(path)).to_dict()["metrics"])
    except DataError as error:
        if "no log-probs of a trained policy" not in error.message:
            raise
    rows = [
        repr([v for v, valid in zip(row["rollout_log_probs"] or [], row["response_mask"] or [], strict=True) if valid])
        for row in rows_of([path])
    ]
    return {"rows": sorted(rows)}


@pytest.mark.full
@pytest.mark.parametrize("name", [*MADE, *NATIVE_FILES])
def test_no_key_that_is_missing_changes_a_metric_in_silence(tmp_path: Path, name: str) -> None:
    """Without any one key in all lines the metrics are equal, or the file is refused, or a note names the key."""
    lines = MADE.get(name) or [json.loads(line) for line in (NATIVE / name).read_text().splitlines()]
    path = tmp_path / (f"{name}.jsonl" if name in MADE else name)
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "STABLE").touch()
    path.write_text(text_of_lines(lines))
    right = measured(path)
    for place in sorted({place for line in lines for place in places(line)}):
        path.write_text(text_of_lines([without(line, place) for line in lines]))
        try:
            found = measured(path)
            told = inspect(str(path))
        except DataError:
            continue
        is_equal = all(found.get(key) in (None, value) for key, value in right.items())
        assert is_equal or told.problems or place[-1] in " ".join(told.notes), place
