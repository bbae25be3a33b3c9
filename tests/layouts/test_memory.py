"""Batches in memory: each form gives the rows of its file, or those of its columns by name.

The classes stand for the frameworks' own: they have the attributes by which a batch is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcorr_cli import analyze, correct, inspect
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.tables import in_memory
from tests.layouts import batches
from tests.layouts.native_rows import rows_of

ARRAYS = batches.arrays()
LENGTHS = (3, 5, 4)
PROMPT = 2
OF_FILES = ("source_file", "source_row")


@dataclass
class DataProto:
    batch: Any
    non_tensor_batch: dict[str, Any]
    meta_info: dict[str, Any] = field(default_factory=dict)


class TensorDict:
    """Neither a mapping nor a dict."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values, self.batch_size = values, [len(ARRAYS["mask"])]

    def keys(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, name: str) -> Any:
        return self._values[name]


class TrainingInputBatch(dict[str, Any]):
    def __init__(self, values: dict[str, Any], **metadata: Any) -> None:
        super().__init__(values)
        self.metadata = metadata


def tensors(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values) for name, values in arrays.items()}


def verl() -> dict[str, Any]:
    more = {"prompts": ARRAYS["tokens"][:, :PROMPT], "input_ids": ARRAYS["tokens"]}
    attention = ARRAYS["attention"].copy()
    attention[1, -2:] = 0  # a shorter response
    attention[0, 0] = 0  # a shorter prompt
    return {**batches.verl_tensors(ARRAYS), **more, "attention_mask": attention}


OBJECTS = {"uid": ["a", "a", "b"], "index": [7, 8, 9], "data_source": ["math", None, "code"]}


def as_objects(values: list[Any]) -> Any:
    return np.array(values, object)


def table(batch: Any) -> list[dict[str, Any]]:
    held = in_memory(batch)
    assert held is not None
    return held.table.to_pylist()


def without_files(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in OF_FILES} for row in rows]


def test_verls_batch_gives_the_rows_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "batch.dp").write_bytes(
        batches.verl(
            batches.in_numpy({name: value for name, value in verl().items() if name in batches.verl_tensors(ARRAYS)}),
            {name: batches.objects(values) for name, values in OBJECTS.items()},
        )
    )
    right = without_files(rows_of([tmp_path / "batch.dp"]))
    held = DataProto(
        TensorDict(tensors(verl())), {name: as_objects(v) for name, v in OBJECTS.items()}, {"global_steps": 7}
    )
    rows = table(held)
    prompts = [row.pop("prompt_token_ids") for row in rows]
    assert rows == right
    assert [len(row["token_ids"]) for row in rows] == [5, 3, 5]
    assert prompts == [ARRAYS["tokens"][0, 1:2].tolist(), *ARRAYS["tokens"][1:, :2].tolist()]
    assert analyze(held).whole.values == pytest.approx(analyze(tmp_path / "batch.dp").whole.values, nan_ok=True)


def test_a_tensordict_of_nested_tensors_gives_their_rows() -> None:
    names = ("input_ids", "responses", "response_mask", "rollout_log_probs", "old_log_probs")
    cut = {
        name: torch.nested.nested_tensor(
            [torch.tensor(row[:n]) for row, n in zip(verl()[name], LENGTHS, strict=True)], layout=torch.jagged
        )
        for name in names
    }
    rows = table(TensorDict({**cut, "uid": as_objects(["a", "a", "b"])}))
    assert [len(row["rollout_log_probs"]) for row in rows] == [*LENGTHS]
    assert rows[2]["old_log_probs"] == ARRAYS["old"][2, :4].tolist()
    assert [row["group_id"] for row in rows] == ["a", "a", "b"]


def test_skyrls_batch_gives_the_rows_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "global_step_9_training_input.pkl"
    path.write_bytes(batches.skyrl(ARRAYS, {"pad_size": 1, "policy_prompt_boundaries": [(0, 1), (1, 2)]}))
    values = {
        "sequences": ARRAYS["tokens"],
        "attention_mask": ARRAYS["attention"],
        "response_mask": np.ones_like(ARRAYS["mask"]),
        "loss_mask": ARRAYS["mask"].astype(np.float32),
        "rollout_logprobs": ARRAYS["rollout"],
        "action_log_probs": ARRAYS["old"],
        "base_action_log_probs": ARRAYS["ref"],
        "advantages": ARRAYS["advantages"],
    }
    held = TrainingInputBatch(
        {**tensors(values), "values": None}, pad_size=1, policy_prompt_boundaries=[(0, 1), (1, 2)], global_step=9
    )
    rows = table(held)
    assert [row.pop("prompt_token_ids") for row in rows] == ARRAYS["tokens"][:2, :PROMPT].tolist()
    right = [{**row, "group_id": row["group_id"][2:]} for row in without_files(rows_of([path]))]
    assert [{**row, "step": 9} for row in rows] == right
    uids = table(TrainingInputBatch(tensors(values), uids=["x", "x", "y"]))
    assert [row["group_id"] for row in uids] == ["x", "x", "y"]


def test_rolls_batch_gives_the_rows_of_its_file(tmp_path: Path) -> None:
    of_roll = batches.roll_tensors(ARRAYS)
    of_roll["old_log_probs"] = of_roll["infer_logprobs"] - np.float32(0.25)
    objects = {"group_ids": [0, 0, 1], "env_ids": [0, 1, 2], "episode_scores": [1.0, 0.5, 0.0]}
    path = tmp_path / "step_000003.pkl"
    path.write_bytes(batches.roll(batches.plain(of_roll), {n: batches.objects(v) for n, v in objects.items()}))
    of_prompts = np.zeros_like(ARRAYS["tokens"])
    of_prompts[:, :PROMPT] = 1
    held = DataProto(tensors({**of_roll, "prompt_mask": of_prompts}), {n: as_objects(v) for n, v in objects.items()})
    rows = table(held)
    assert [row.pop("prompt_token_ids") for row in rows] == ARRAYS["tokens"][:, :PROMPT].tolist()
    right = [{**row, "group_id": row["group_id"][2:]} for row in without_files(rows_of([path]))]
    assert [{**row, "step": 3} for row in rows] == right


def columns() -> dict[str, list[Any]]:
    """The rows of a batch by the names of this package, each as long as it is."""
    names = {"rollout_log_probs": "rollout", "old_log_probs": "old", "response_mask": "mask"}
    return {
        canonical: [row[:n].tolist() for row, n in zip(ARRAYS[name], LENGTHS, strict=True)]
        for canonical, name in names.items()
    }


def test_packed_tensors_are_cut_where_their_sequences_end() -> None:
    packed = {name: torch.tensor([value for row in rows for value in row])[None] for name, rows in columns().items()}
    packed["cu_seqlens"] = torch.tensor([0, 3, 8, 12], dtype=torch.int32)
    held = {**packed, "reward": torch.tensor([1.0, 0.0, 0.5]), "max_seqlen": [5, 5, 5]}
    right = analyze({**columns(), "reward": [1.0, 0.0, 0.5]})
    assert analyze(held).whole.values == pytest.approx(right.whole.values, nan_ok=True)
    assert [len(row["rollout_log_probs"]) for row in table(held)] == [*LENGTHS]
    weights = correct(held, preset="token_is").column("rollout_is_weights").to_pylist()
    assert [len(row) for row in weights] == [*LENGTHS]


@pytest.mark.parametrize("bounds", [[1, 3], [0, 3, 2], [[0, 3]], [0.0, 3.0], []])
def test_bounds_that_are_none_are_refused(bounds: list[Any]) -> None:
    with pytest.raises(DataError, match="cu_seqlens of the batch does not tell where its sequences end"):
        analyze({**columns(), "cu_seqlens": torch.tensor(bounds)})


def test_a_list_of_objects_is_known_by_what_they_hold() -> None:
    @dataclass
    class Sample:
        rollout_log_probs: list[float]
        old_log_probs: torch.Tensor
        loss_mask: list[int]
        metadata: dict[str, int] = field(default_factory=dict)

    rows = zip(*columns().values(), strict=True)
    samples = [Sample(rollout, torch.tensor(old), mask) for rollout, old, mask in rows]
    assert analyze(samples).whole.values == pytest.approx(analyze(columns()).whole.values, nan_ok=True)


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
        analyze({**tensors(verl()), name: value})


def test_what_a_batch_is_read_as_is_said() -> None:
    (note,) = (note for note in inspect(tensors(verl())).notes if "verl" in note)
    assert note == "<table in memory>: read as verl, a DataProto (keys input_ids, responses, response_mask)."
