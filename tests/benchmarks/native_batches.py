"""Batches of padded tensors for native.py: a step of SkyRL, verl and ROLL, and what unpickling it alone takes."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from native_decoding import unpickle, unzip
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[2]))  # a script sees its own folder alone

from tests.layouts import batches


class Sampled(Protocol):
    """One sequence, as native.py draws it."""

    prompt: list[int]
    tokens: list[int]
    rollout: list[float]
    trained: list[float]


Write = Callable[[Path, Sequence[Any]], None]
Decode = Callable[[Path], None]


def arrays(sequences: Sequence[Sampled]) -> dict[str, NDArray[Any]]:
    """The sequences as the arrays that `batches` writes."""
    rollout = np.array([sequence.rollout for sequence in sequences], np.float32)
    tokens = np.array([[*sequence.prompt, *sequence.tokens] for sequence in sequences])
    return {
        "tokens": tokens,
        "attention": np.ones_like(tokens),
        "mask": np.ones(rollout.shape, np.int64),
        "rollout": rollout,
        "old": np.array([sequence.trained for sequence in sequences], np.float32),
        "ref": rollout,
        "advantages": np.full_like(rollout, 0.5),
    }


def _case(
    name: str, made: Callable[[dict[str, NDArray[Any]]], bytes], decode: Decode = unpickle
) -> tuple[Write, Decode]:
    return lambda folder, sequences: (folder / name).write_bytes(made(arrays(sequences))) and None, decode


CASES: dict[str, tuple[Write, Decode]] = {
    "roll": _case("step_000001.pkl", lambda batch: batches.roll(batches.plain(batches.roll_tensors(batch)))),
    "skyrl": _case("global_step_1_training_input.pkl", batches.skyrl),
    "verl": _case("batch.dp", lambda batch: batches.verl(batches.consolidated(batches.verl_tensors(batch)))),
    "verl-tq": _case("tq_batch.pt", lambda batch: batches.verl_tq(batches.verl_tensors(batch)), unzip),
}
"""--format -> how native.py writes a step and decodes it."""
