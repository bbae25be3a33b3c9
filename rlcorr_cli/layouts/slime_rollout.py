"""Rollout files of slime and miles: `samples` of dicts, each a prompt and response with the engine's log-probs.

Tokens are the prompt's and the response's, everything else is the response's alone.  A mask that is null counts every
token; remove_sample takes a sequence out of training only after the file was written, so its mask is 0 here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import Sample
from rlcorr_cli.layouts.tensors import NUMPY_GLOBALS, TENSORS, Array
from rlcorr_cli.layouts.torch_files import TorchFile, opened, read_torch
from rlcorr_cli.layouts.values import HINT, as_number, as_text, as_version, length, mapping, numbers, sequence

ALLOWED = (*TENSORS, *NUMPY_GLOBALS, "miles.utils.types.AdapterRef", "miles.utils.types.RewardSpec")
SOURCES = "source_name", "data_source"
"""The keys of a sample's metadata that tell where its prompt is from: slime's, miles'."""
COLUMNS = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "rollout_ids",
    "policy_version",
    "policy_version_end",
    "source",
    "status",
    "remove_sample",
)
TYPES = {"status": pa.string(), "remove_sample": pa.bool_()}
REMOVED = "sequences with remove_sample were kept from training; their mask is 0 here."
REWARDS = "its rewards are dicts, of which the run's own options choose a key; none is read."


@dataclass(frozen=True)
class RolloutFile:
    """One of them, in memory."""

    path: str
    step: int
    samples: list[dict[Any, Any]]
    file: TorchFile

    def rows(self) -> Iterator[Sample]:
        """Its sequences, in order."""
        for number, sample in enumerate(self.samples):
            tokens, what = self.tokens(number), f"sample {number}"
            n_tokens = length(sample, "response_length", what)
            if n_tokens > len(tokens):
                raise DataError(f"{what} has {len(tokens):,} tokens and a response of {n_tokens:,}.", HINT)
            yield {
                **self.about(number),
                "rollout_log_probs": self.log_probs(number),
                "response_mask": self._mask(number, n_tokens),
                "token_ids": tokens[len(tokens) - n_tokens :],
            }

    def tokens(self, number: int) -> Array:
        """The prompt's and the response's tokens of a sequence."""
        return numbers(self.samples[number].get("tokens"), f"tokens of sample {number}", self.file, are_whole=True)

    def log_probs(self, number: int) -> Array | None:
        """The engine's log-probs of a sequence; none where it gave none, as of an empty response."""
        values = self.samples[number].get("rollout_log_probs")
        if values is None:
            return None if self.samples[number].get("response_length") else np.empty(0)
        return numbers(values, f"rollout_log_probs of sample {number}", self.file)

    def _mask(self, number: int, n_tokens: int) -> Array:
        sample = self.samples[number]
        if sample.get("remove_sample") is True:
            return np.zeros(n_tokens, np.int8)
        mask = sample.get("loss_mask")
        if mask is None:
            return np.ones(n_tokens, np.int8)
        return numbers(mask, f"loss_mask of sample {number}", self.file, are_whole=True)

    def about(self, number: int) -> dict[str, Any]:
        """What is told of a sequence beside its tokens."""
        sample = self.samples[number]
        versions = sample.get("weight_versions")
        versions = versions if isinstance(versions, list) and versions else [None]
        metadata = sample.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return {
            "reward": as_number(sample.get("reward")),
            "step": self.step,
            "group_id": as_text(sample.get("group_index")),
            "sample_id": as_text(sample.get("index")),
            "rollout_ids": as_text(sample.get("rollout_id")),
            "policy_version": as_version(versions[0]),
            "policy_version_end": as_version(versions[-1]),
            "source": next((metadata[key] for key in SOURCES if isinstance(metadata.get(key), str)), None),
            "status": as_text(sample.get("status")),
            "remove_sample": sample.get("remove_sample") is True,
        }

    def columns(self) -> list[str]:
        """Of COLUMNS those that some sequence has."""
        log_probs = any(sample.get("rollout_log_probs") is not None for sample in self.samples)
        filled = {name for i in range(len(self.samples)) for name, value in self.about(i).items() if value is not None}
        always = {"response_mask", "token_ids", "step", "sample_id", *(("rollout_log_probs",) if log_probs else ())}
        return [name for name in COLUMNS if name in filled | always or not self.samples]

    def notes(self) -> tuple[str, ...]:
        """What is special about its sequences."""
        removed = any(sample.get("remove_sample") is True for sample in self.samples)
        dicts = any(isinstance(sample.get("reward"), dict) for sample in self.samples)
        return (*((REMOVED,) if removed else ()), *((REWARDS,) if dicts else ()))


def read_rollout(path: str) -> RolloutFile:
    """The file, whole: its lists lie in one pickle."""
    file = read_torch(opened(path), ALLOWED)
    value = mapping(file.value, "its pickle")
    samples = [mapping(sample, f"sample {i}") for i, sample in enumerate(sequence(value, "samples"))]
    return RolloutFile(path, length(value, "rollout_id"), samples, file)
