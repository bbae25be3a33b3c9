"""Batches as trainers hold them, of the same keys and shapes, made of the golden files and of the sample data."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from tests.layouts.native_rows import NATIVE

SAMPLE_DATA = NATIVE.parents[2] / "sample_data" / "smollm2_bf16.parquet"
PAD = 7
"""Columns of padding on the right."""


@dataclass
class Row:
    """A prompt and a response, with a value for each token of the response."""

    prompt: list[int]
    tokens: list[int]
    mask: list[int]
    rollout: list[float]
    old: list[float]
    advantage: float

    @property
    def canonical(self) -> dict[str, Any]:
        """As in a dump, from the first to the last token that counts."""
        valid = np.flatnonzero(self.mask)
        part = slice(valid[0], valid[-1] + 1)
        return {
            "token_ids": self.tokens[part],
            "response_mask": self.mask[part],
            "rollout_log_probs": self.rollout[part],
            "old_log_probs": self.old[part],
            "prompt_token_ids": [*self.prompt, *self.tokens[: part.start]],
        }

    def whole(self, name: str) -> list[Any]:
        """A value for each token of prompt and response, 0 for the prompt's."""
        n_prompt = len(self.prompt)
        if name == "tokens":
            return self.prompt + self.tokens
        if name == "advantages":
            return [0.0] * n_prompt + [self.advantage] * len(self.tokens)
        return [0] * n_prompt + getattr(self, name)


def rows(n_rows: int = 12) -> list[Row]:
    """Of the sample data; every third has a tool's tokens inside."""
    made = []
    for i, row in enumerate(pq.read_table(SAMPLE_DATA).slice(0, n_rows).to_pylist()):
        mask = [int(bool(valid) and (i % 3 > 0 or not 2 < k < 5)) for k, valid in enumerate(row["response_mask"])]
        mask[0] = mask[-1] = 1
        prompt = [100 + i // 4, *range(3 + i // 4 % 3)]
        lists = (row["response_token_ids"], mask, row["rollout_log_probs"], row["old_log_probs"])
        made.append(Row(prompt, *lists, advantage=i / 4 - 1))
    return made


def right_padded(of: Sequence[Row], name: str, shift: int = 0) -> torch.Tensor:
    """[B, T] over prompt and response; shift: how many tokens before its own each value stands."""
    lists = [row.whole(name) for row in of]
    width = max(map(len, lists)) + PAD
    return torch.tensor([(values + [0] * (width - len(values)))[shift:] + [0] * shift for values in lists])


def attention(of: Sequence[Row]) -> torch.Tensor:
    lengths = torch.tensor([len(row.whole("tokens")) for row in of])
    return (torch.arange(max(lengths) + PAD) < lengths[:, None]).long()


def openrlhf(of: Sequence[Row], make: Callable[..., Any] = SimpleNamespace) -> Any:
    """Experience, log-probs and mask one column short."""
    short = {"action_mask": "mask", "rollout_log_probs": "rollout", "action_log_probs": "old"}
    return make(
        sequences=right_padded(of, "tokens"),
        attention_mask=attention(of),
        **{name: right_padded(of, ours)[:, 1:] for name, ours in (short | {"advantages": "advantages"}).items()},
        rewards=torch.tensor([row.advantage for row in of]),
        prompts=["a prompt"] * len(of),
        info={},
    )


def nemo_rl(of: Sequence[Row], left_out: int = -1) -> dict[str, Any]:
    """BatchedDataDict of grpo_train; left_out: the row that sample_mask takes out."""
    names = {"input_ids": "tokens", "generation_logprobs": "rollout", "prev_logprobs": "old", "token_mask": "mask"}
    tensors = {name: right_padded(of, ours) for name, ours in (names | {"advantages": "advantages"}).items()}
    lengths = torch.tensor([len(row.whole("tokens")) for row in of])
    return {**tensors, "input_lengths": lengths, "sample_mask": (torch.arange(len(of)) != left_out).float()}


def areal(of: Sequence[Row], *, advantages: bool) -> dict[str, Any]:
    """The dict of a trajectory batch, before or after compute_advantages has moved it by one token."""
    moved = int(advantages)
    batch = {
        "input_ids": right_padded(of, "tokens"),
        "attention_mask": attention(of).bool(),
        "loss_mask": right_padded(of, "mask", moved),
        "logprobs": right_padded(of, "rollout", moved),
        "prox_logp": right_padded(of, "old", 1),
        "versions": torch.where(right_padded(of, "mask") > 0, 5, -1).int(),
        "rewards": torch.tensor([row.advantage for row in of]),
    }
    if advantages:
        batch |= {"advantages": right_padded(of, "advantages", 1), "tot_rewards": right_padded(of, "advantages", 1)}
    return batch


def ms_swift(of: Sequence[Row], make: Callable[..., Any] = dict) -> dict[str, Any]:
    """GRPOBatch and the model's inputs, over as many last columns as the longest completion and its padding take."""
    n_kept = right_padded(of, "tokens").shape[1] - min(len(row.prompt) for row in of)
    names = {"completion_mask": "mask", "rollout_per_token_logps": "rollout", "old_per_token_logps": "old"}
    kept = {name: right_padded(of, ours)[:, -n_kept:] for name, ours in (names | {"advantages": "advantages"}).items()}
    lengths = torch.tensor([len(row.whole("tokens")) for row in of])
    batch = make(
        **kept | {"completion_mask": kept["completion_mask"].bool()}, seq_lengths=lengths, truncated_mask=lengths > 0
    )
    inputs = {"input_ids": right_padded(of, "tokens"), "attention_mask": attention(of)}
    return {**(batch if isinstance(batch, dict) else vars(batch)), **inputs}


def packed(of: Sequence[Row], name: str) -> torch.Tensor:
    """[1, S]: the rows one after the other, and padding."""
    return torch.tensor([[value for row in of for value in row.whole(name)] + [0] * PAD])


def positions(of: Sequence[Row]) -> torch.Tensor:
    lengths = [*(len(row.whole("tokens")) for row in of), PAD]
    return torch.tensor([[place for length in lengths for place in range(length)]])


def prime_rl(of: Sequence[Row]) -> dict[str, Any]:
    """A TensorMicroBatch, and what the trainer's forward pass gave for it."""
    return {
        "input_ids": packed(of, "tokens"),
        "position_ids": positions(of),
        "loss_mask": packed(of, "mask").bool(),
        "inference_logprobs": packed(of, "rollout"),
        "advantages": packed(of, "advantages"),
        "trainer_logprobs": packed(of, "old"),
        "ref_logprobs": None,
        "env_names": ["math"] * packed(of, "mask").shape[1],
        "temperatures": torch.ones_like(packed(of, "rollout")),
    }


def open_instruct(of: Sequence[Row]) -> dict[str, Any]:
    """CollatedBatchData of two packs, with the log-probs that compute_logprobs gives, one token short."""
    packs = [of[: len(of) // 2], of[len(of) // 2 :]]
    names = {"query_responses": "tokens", "response_masks": "mask", "vllm_logprobs": "rollout"}
    batch = {
        name: [packed(pack, ours) for pack in packs] for name, ours in (names | {"advantages": "advantages"}).items()
    }
    old = [packed(pack, "old")[:, 1:] for pack in packs]
    return {**batch, "position_ids": [positions(pack) for pack in packs], "old_logprobs": old}


class TensorData:
    """tinker's, which is no tensor, and makes one."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_torch(self) -> torch.Tensor:
        return torch.tensor(self._values)


def tinker(of: Sequence[Row], make: Callable[[list[Any]], Any] = TensorData) -> list[dict[str, Any]]:
    """loss_fn_inputs of each Datum, all tokens but the first, and what forward_backward returned."""
    names = {"target_tokens": "tokens", "logprobs": "rollout", "mask": "mask", "advantages": "advantages"}
    return [
        {
            **{name: make(row.whole(ours)[1:]) for name, ours in names.items()},
            "training_logprobs": torch.tensor(row.whole("old")[1:]),
        }
        for row in of
    ]


class Status(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"


def slime_samples(file: str) -> Iterator[Any]:
    """Samples as slime and miles hold them, of a rollout file."""
    for sample in torch.load(NATIVE / file, weights_only=False)["samples"]:
        facts = {name: SimpleNamespace(**sample[name]) for name in ("spec_info", "prefix_cache_info")}
        yield SimpleNamespace(**sample | facts | {"status": Status(sample["status"])})


def slime_train(file: str) -> dict[str, Any]:
    """The dict of lists that a rank trains on."""
    return torch.load(NATIVE / file, map_location="cpu", weights_only=False)["rollout_data"]


def nemo_rl_file(file: str) -> dict[str, Any]:
    """The BatchedDataDict that a file of NeMo-RL was written of."""
    lines = [json.loads(line) for line in (NATIVE / file).read_text().splitlines()]
    names = {"token_ids": "input_ids", "token_loss_mask": "token_mask", "generation_logprobs": "generation_logprobs"}
    names |= {"prev_logprobs": "prev_logprobs", "advantages": "advantages"}
    batch = {ours: torch.tensor([line[theirs][0] for line in lines]) for theirs, ours in names.items()}
    return {**batch, "sample_mask": torch.tensor([line["sample_loss_mask"][0] for line in lines])}


def prime_rl_file(file: str) -> list[dict[str, Any]]:
    """The micro batches that a token export of prime-rl was written of."""
    lines = [json.loads(line) for line in (NATIVE / file).read_text().splitlines()]
    names = {"token_ids": "input_ids", "position_ids": "position_ids", "loss_mask": "loss_mask"}
    names |= {name: name for name in ("inference_logprobs", "advantages", "trainer_logprobs")}
    return [
        {ours: torch.tensor([[value for line in pack for value in line[theirs]]]) for theirs, ours in names.items()}
        for pack in ([*of] for _, of in groupby(lines, key=lambda line: line["micro_step"]))
    ]
