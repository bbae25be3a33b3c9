"""Files of slime and miles for native.py: a step in each of them, and what decoding them alone takes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from native_decoding import load, unzip


class Sampled(Protocol):
    """One sequence, as native.py draws it."""

    prompt: list[int]
    tokens: list[int]
    rollout: list[float]
    trained: list[float]


Write = Callable[[Path, Sequence[Any]], None]
Decode = Callable[[Path], None]
N_RANKS = 4


def decode_parquet(path: Path) -> None:
    """All columns, by pyarrow on one thread."""
    pq.ParquetFile(path).read(use_threads=False)


def rollout(folder: Path, sequences: Sequence[Sampled]) -> None:
    """What the engine gave, as lists."""
    samples = [
        {
            "group_index": i // 8,
            "index": i,
            "prompt": "",
            "tokens": sequence.prompt + sequence.tokens,
            "response": "",
            "response_length": len(sequence.tokens),
            "reward": 1.0,
            "loss_mask": [1] * len(sequence.tokens),
            "weight_versions": ["1"],
            # Every float is an object of its own, as an engine's answer has it.
            "rollout_log_probs": np.array(sequence.rollout).tolist(),
            "remove_sample": False,
            "status": "completed",
            "metadata": {},
        }
        for i, sequence in enumerate(sequences)
    ]
    torch.save({"rollout_id": 1, "samples": samples}, folder / "1.pt")


def row(sequence: Sampled) -> dict[str, Any]:
    """A sequence in the trainer's columns."""
    return {
        "tokens": torch.tensor(sequence.prompt + sequence.tokens),
        "response_lengths": len(sequence.tokens),
        "total_lengths": len(sequence.prompt) + len(sequence.tokens),
        "rewards": 0.5,
        "loss_masks": torch.ones(len(sequence.tokens), dtype=torch.int32),
        "rollout_log_probs": torch.tensor(sequence.rollout),
        "log_probs": torch.tensor(sequence.trained),
        "advantages": torch.full((len(sequence.tokens),), 0.5),
        "returns": torch.full((len(sequence.tokens),), 0.5),
        "entropy": torch.tensor(sequence.trained),
    }


def step(folder: Path, sequences: Sequence[Sampled]) -> None:
    """slime's format 2."""
    samples = [
        {**row(sequence), "sample_index": i, "rollout_position": i, "data_parallel_rank": 0}
        for i, sequence in enumerate(sequences)
    ]
    torch.save({"format_version": 2, "rollout_id": 1, "rank": 0, "samples": samples, "dp_shards": []}, folder / "1.pt")


def ranks(folder: Path, sequences: Sequence[Sampled]) -> None:
    """miles, by rank."""
    for rank in range(N_RANKS):
        rows = [row(sequence) for sequence in sequences[rank::N_RANKS]]
        data: dict[str, Any] = {key: [values[key] for values in rows] for key in rows[0]}
        data["sample_indices"] = list(range(rank, len(sequences), N_RANKS))
        told = {"cp_rank": 0, "cp_size": 1, "qkv_format": "thd"}
        torch.save({"rollout_id": 1, "rank": rank, "rollout_data": data, **told}, folder / f"1_{rank}.pt")


def policy_loss(folder: Path, sequences: Sequence[Sampled]) -> None:
    """What the loss saw, in micro batches of eight."""
    for call in range(0, len(sequences), 8):
        samples: list[dict[str, Any]] = []
        for i, sequence in enumerate(sequences[call : call + 8]):
            values = {"train_log_probs": sequence.trained, "old_log_probs": sequence.trained}
            tensors = {key: torch.tensor(value) for key, value in values.items()}
            ones = torch.ones(len(sequence.tokens))
            tensors |= {
                "rollout_log_probs": torch.tensor(sequence.rollout),
                "advantages": ones,
                "local_loss_mask": ones,
            }
            samples.append({"index": i, "response_length": len(sequence.tokens), **tensors})
        torch.save({"rank": 0, "call": call // 8, "samples": samples}, folder / f"rank_0_call_{call // 8}.pt")


def dashboard(folder: Path, sequences: Sequence[Sampled]) -> None:
    """miles' columns for its dashboard."""
    columns = {
        "sample_index": pa.array(range(len(sequences)), pa.int32()),
        "response_length": pa.array([len(sequence.tokens) for sequence in sequences], pa.int32()),
        "total_length": pa.array([len(sequence.prompt + sequence.tokens) for sequence in sequences], pa.int32()),
        "tokens": pa.array([s.prompt + s.tokens for s in sequences], pa.large_list(pa.int32())),
        "loss_mask": pa.array([[1] * len(s.tokens) for s in sequences], pa.large_list(pa.int8())),
        "rollout_log_probs": pa.array([s.rollout for s in sequences], pa.large_list(pa.float32())),
    }
    pq.write_table(pa.table(columns), folder / "rollout_1.parquet", compression="zstd", row_group_size=8)


CASES: dict[str, tuple[Write, Decode] | tuple[Write, Decode, Decode]] = {
    "miles": (ranks, unzip, load),
    "miles-dashboard": (dashboard, decode_parquet),
    "miles-policy-loss": (policy_loss, unzip, load),
    "slime": (step, unzip, load),
    "slime:rollout": (rollout, unzip, load),
}
