"""Batches in memory as trainers hold them.  The classes stand for the frameworks' own: they have the attributes by
which a batch is known."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tests.layouts import batches

ARRAYS = batches.arrays()
LENGTHS = (3, 5, 4)
"""Of the responses, where a batch is ragged or packed."""
PROMPT = 2
"""Columns of prompts, before the response's."""
OBJECTS = {"uid": ["a", "a", "b"], "index": [7, 8, 9], "data_source": ["math", None, "code"]}


@dataclass
class DataProto:
    """verl's and ROLL's."""

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


@dataclass
class NonTensorStack:
    """A TensorDict's list of what is no tensor: it can be detached as one, and gives no array."""

    values: list[Any]
    dtype: None = None

    def detach(self) -> "NonTensorStack":
        return self

    cpu = detach

    def tolist(self) -> list[Any]:
        return self.values

    numpy = tolist


class TrainingInputBatch(dict[str, Any]):
    """SkyRL's."""

    def __init__(self, values: dict[str, Any], **metadata: Any) -> None:
        super().__init__(values)
        self.metadata = metadata


@dataclass
class Sample:
    """A row of nobody's."""

    rollout_log_probs: list[float]
    old_log_probs: torch.Tensor
    loss_mask: list[int]
    prompt: str = "Why?"
    metadata: dict[str, int] = field(default_factory=dict)


def tensors(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values) for name, values in arrays.items()}


def as_objects(values: list[Any]) -> Any:
    return np.array(values, object)


def verl_arrays() -> dict[str, Any]:
    """One response is two tokens shorter, and one prompt has one token less."""
    attention = ARRAYS["attention"].copy()
    attention[1, -2:] = attention[0, 0] = 0
    more = {"prompts": ARRAYS["tokens"][:, :PROMPT], "input_ids": ARRAYS["tokens"], "attention_mask": attention}
    return {**batches.verl_tensors(ARRAYS), **more}


def verl() -> DataProto:
    objects = {name: as_objects(values) for name, values in OBJECTS.items()}
    return DataProto(TensorDict(tensors(verl_arrays())), objects, {"global_steps": 7})


def skyrl(**metadata: Any) -> TrainingInputBatch:
    values = {**batches.skyrl_tensors(ARRAYS), "attention_mask": ARRAYS["attention"]}
    return TrainingInputBatch({**tensors(values), "values": None}, **metadata)


OF_ROLL = {"group_ids": [0, 0, 1], "env_ids": [0, 1, 2], "episode_scores": [1.0, 0.5, 0.0]}


def roll_arrays() -> dict[str, Any]:
    of_roll = batches.roll_tensors(ARRAYS)
    of_roll["old_log_probs"] = of_roll["infer_logprobs"] - np.float32(0.25)
    return of_roll


def roll() -> DataProto:
    of_prompts = np.zeros_like(ARRAYS["tokens"])
    of_prompts[:, :PROMPT] = 1
    objects = {name: as_objects(values) for name, values in OF_ROLL.items()}
    return DataProto(tensors({**roll_arrays(), "prompt_mask": of_prompts}), objects)


def trl() -> dict[str, Any]:
    return {
        "prompt_ids": torch.tensor([[0, 5], [0, 5], [6, 7]]),
        "prompt_mask": torch.tensor([[0, 1], [0, 1], [1, 1]]),
        "completion_ids": torch.tensor(ARRAYS["tokens"][:, PROMPT:]),
        "completion_mask": torch.tensor(ARRAYS["mask"]),
        "sampling_per_token_logps": torch.tensor(ARRAYS["rollout"]),
        "old_per_token_logps": torch.tensor(ARRAYS["old"]),
        "advantages": torch.tensor([1.0, -1.0, 0.0]),
        "num_items_in_batch": torch.tensor(12),
    }


CANONICAL = {"rollout_log_probs": "rollout", "old_log_probs": "old", "response_mask": "mask"}


def ragged() -> dict[str, list[Any]]:
    """Rows by the names of this package, each as long as it is."""
    return {
        canonical: [row[:n].tolist() for row, n in zip(ARRAYS[name], LENGTHS, strict=True)]
        for canonical, name in CANONICAL.items()
    }


def packed() -> dict[str, Any]:
    flat = {name: torch.tensor([value for row in rows for value in row])[None] for name, rows in ragged().items()}
    bounds = torch.tensor([0, 3, 8, 12], dtype=torch.int32)
    return {**flat, "cu_seqlens": bounds, "reward": torch.tensor([1.0, 0.0, 0.5])}


def samples() -> list[Sample]:
    rows = zip(*ragged().values(), strict=True)
    return [Sample(rollout, torch.tensor(old), mask) for rollout, old, mask in rows]
