"""slime's and miles' files, put together so that any of their values can be another."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.layouts.crafted import dumped, tensor, torch_bytes

TOKENS, LOG_PROBS, MASK = tensor("5", "Long", (5,)), tensor("3", "Float", (3,)), tensor("i", "Int", (3,))
STORAGES = {"5": b"\1\0\0\0\0\0\0\0" * 5, "3": b"\0\0\0\xbf" * 3, "i": b"\1\0\0\0" * 3, "m": b"\0\0\x80\x3f" * 3}


def file(value: Any) -> bytes:
    """A file of torch's with that pickle."""
    return torch_bytes(dumped(value, 2), STORAGES)


def rollout(top: Mapping[str, Any] | None = None, more: Sequence[Any] = (), **fields: Any) -> bytes:
    """A rollout file of one sequence, and of more."""
    sample = {
        "group_index": 0,
        "index": 7,
        "tokens": [1, 2, 3, 4, 5],
        "response_length": 3,
        "reward": 1.0,
        "loss_mask": [1, 1, 1],
        "weight_versions": ["1"],
        "rollout_log_probs": [-0.5, -0.5, -0.5],
        "remove_sample": False,
        "status": "completed",
        "metadata": {},
    }
    return file({"rollout_id": 2, "samples": [{**sample, **fields}, *more], **(top or {})})


SEQUENCE = {
    "tokens": TOKENS,
    "response_lengths": 3,
    "total_lengths": 5,
    "rewards": 0.5,
    "loss_masks": MASK,
    "rollout_log_probs": LOG_PROBS,
    "log_probs": LOG_PROBS,
    "advantages": LOG_PROBS,
}


def step(top: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """slime's training file of a step, of one sequence."""
    sample = {**SEQUENCE, "sample_index": 7, "data_parallel_rank": 0, **fields}
    return file({"format_version": 2, "rollout_id": 2, "rank": 0, "samples": [sample], **(top or {})})


def rank(top: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """A rank's training file of one sequence."""
    columns = {key: [value] for key, value in {**SEQUENCE, "sample_indices": 7, **fields}.items()}
    return file({"rollout_id": 2, "rank": 0, "rollout_data": columns, **(top or {})})


def policy_loss(top: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """What a micro batch of one sequence was in miles' loss."""
    sample = {
        "index": 0,
        "total_length": 5,
        "response_length": 3,
        "train_log_probs": LOG_PROBS,
        "old_log_probs": LOG_PROBS,
        "advantages": LOG_PROBS,
        "local_loss_mask": tensor("m", "Float", (3,)),
        "rollout_log_probs": LOG_PROBS,
    }
    return file({"rank": 0, "call": 0, "samples": [{**sample, **fields}], **(top or {})})
