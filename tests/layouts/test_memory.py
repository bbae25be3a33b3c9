"""Batches in memory: each form gives the rows of its file, or those of its columns by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlcorr_cli import analyze, correct, inspect
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.tables import in_memory
from tests.layouts import batches, trainers
from tests.layouts.native_rows import rows_of
from tests.layouts.trainers import ARRAYS, LENGTHS, PROMPT, DataProto, NonTensorStack, TensorDict, tensors

OF_FILES = ("source_file", "source_row")


def table(batch: Any) -> list[dict[str, Any]]:
    held = in_memory(batch)
    assert held is not None
    return held.table.to_pylist()


def without_files(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in OF_FILES} for row in rows]


def test_verls_batch_gives_the_rows_of_its_file(tmp_path: Path) -> None:
    named = {name: trainers.verl_arrays()[name] for name in batches.verl_tensors(ARRAYS)}
    objects = {name: batches.objects(values) for name, values in trainers.OBJECTS.items()}
    (tmp_path / "batch.dp").write_bytes(batches.verl(batches.in_numpy(named), objects))
    rows = table(trainers.verl())
    prompts = [row.pop("prompt_token_ids") for row in rows]
    assert rows == without_files(rows_of([tmp_path / "batch.dp"]))
    assert [len(row["token_ids"]) for row in rows] == [5, 3, 5]
    assert prompts == [ARRAYS["tokens"][0, 1:2].tolist(), *ARRAYS["tokens"][1:, :2].tolist()]
    right = analyze(tmp_path / "batch.dp").whole.values
    assert analyze(trainers.verl()).whole.values == pytest.approx(right, nan_ok=True)


def test_a_tensordict_of_nested_tensors_gives_their_rows() -> None:
    names = ("input_ids", "responses", "response_mask", "rollout_log_probs", "old_log_probs")

    def cut(name: str) -> torch.Tensor:
        rows = zip(trainers.verl_arrays()[name], LENGTHS, strict=True)
        return torch.nested.nested_tensor([torch.tensor(row[:n]) for row, n in rows], layout=torch.jagged)

    rows = table(TensorDict({**{name: cut(name) for name in names}, "uid": NonTensorStack(["a", "a", "b"])}))
    assert [len(row["rollout_log_probs"]) for row in rows] == [*LENGTHS]
    assert rows[2]["old_log_probs"] == ARRAYS["old"][2, :4].tolist()
    assert [row["group_id"] for row in rows] == ["a", "a", "b"]


def test_skyrls_batch_gives_the_rows_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "global_step_9_training_input.pkl"
    path.write_bytes(batches.skyrl(ARRAYS, {"pad_size": 1, "policy_prompt_boundaries": [(0, 1), (1, 2)]}))
    held = trainers.skyrl(pad_size=1, policy_prompt_boundaries=[(0, 1), (1, 2)])
    rows = table(held)
    assert [row.pop("prompt_token_ids") for row in rows] == ARRAYS["tokens"][:2, :PROMPT].tolist()
    right = [{**row, "group_id": row["group_id"][2:]} for row in without_files(rows_of([path]))]
    assert [{**row, "step": 9} for row in rows] == right
    uids = table(trainers.skyrl(uids=["x", "x", "y"]))
    assert [row["group_id"] for row in uids] == ["x", "x", "y"]


def test_rolls_batch_gives_the_rows_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "step_000003.pkl"
    objects = {name: batches.objects(values) for name, values in trainers.OF_ROLL.items()}
    path.write_bytes(batches.roll(batches.plain(trainers.roll_arrays()), objects))
    rows = table(trainers.roll())
    assert [row.pop("prompt_token_ids") for row in rows] == ARRAYS["tokens"][:, :PROMPT].tolist()
    right = [{**row, "group_id": row["group_id"][2:]} for row in without_files(rows_of([path]))]
    assert [{**row, "step": 3} for row in rows] == right


def test_packed_tensors_are_cut_where_their_sequences_end() -> None:
    held = {**trainers.packed(), "max_seqlen": [5, 5, 5]}
    right = analyze({**trainers.ragged(), "reward": [1.0, 0.0, 0.5]})
    assert analyze(held).whole.values == pytest.approx(right.whole.values, nan_ok=True)
    assert [len(row["rollout_log_probs"]) for row in table(held)] == [*LENGTHS]
    weights = correct(held, preset="token_is").column("rollout_is_weights").to_pylist()
    assert [len(row) for row in weights] == [*LENGTHS]


@pytest.mark.parametrize("bounds", [[1, 3], [0, 3, 2], [[0, 3]], [0.0, 3.0], []])
def test_bounds_that_are_none_are_refused(bounds: list[Any]) -> None:
    with pytest.raises(DataError, match="cu_seqlens of the batch does not tell where its sequences end"):
        analyze({**trainers.ragged(), "cu_seqlens": torch.tensor(bounds)})


def test_a_list_of_objects_is_known_by_what_they_hold() -> None:
    right = analyze(trainers.ragged()).whole.values
    assert analyze(trainers.samples()).whole.values == pytest.approx(right, nan_ok=True)


def test_an_unknown_batch_says_what_it_holds_and_what_is_wanted() -> None:
    batch = DataProto({"ids": torch.ones(2, 3), "logits": torch.ones(2, 3)}, {})
    for unknown, kind in ((batch, "A batch of DataProto"), ([batch], "A list of DataProto")):
        with pytest.raises(DataError) as caught:
            analyze(unknown)
        assert caught.value.message == f"{kind} is of no trainer that is known; it holds ids, logits."
        assert "Give a mapping of rollout_log_probs, old_log_probs and response_mask." in caught.value.hint


@pytest.mark.parametrize("value", [5, object(), [object()], lambda: 5, {"a": 1}.items])
def test_what_is_no_batch_is_told_by_its_kind(value: Any) -> None:
    with pytest.raises(UsageError, match="dumps should be a path, a list of paths or a table"):
        analyze(value)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("rollout_log_probs", None, "no rollout_log_probs"),
        ("rollout_log_probs", torch.ones(3), "rollout_log_probs is not a tensor of rows and tokens"),
        ("rollout_log_probs", torch.ones(3, 4), r"rollout_log_probs has the shape \(3, 4\)"),
        ("response_mask", torch.full((3, 5), 2), "response_mask holds 2 to 2"),
        ("attention_mask", torch.ones(2, 7), r"attention_mask has the shape \(2, 7\)"),
    ],
)
def test_what_is_wrong_in_a_trainers_batch_is_said_of_it(name: str, value: Any, what: str) -> None:
    with pytest.raises(DataError, match=f"The batch in memory, read as verl, a DataProto: its .*{what}|has no {what}"):
        analyze({**tensors(trainers.verl_arrays()), name: value})


def test_what_a_batch_is_read_as_is_said() -> None:
    (note,) = (note for note in inspect(tensors(trainers.verl_arrays())).notes if "verl" in note)
    assert note == "<table in memory>: read as verl, a DataProto (keys input_ids, responses, response_mask)."
