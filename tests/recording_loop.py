"""A training loop that records, run by itself: what must not harm it is done to it by tests/test_recorder.py.

    python tests/recording_loop.py FOLDER FIRST LAST [WAY] [RANK WORLD]

It trains from FIRST to before LAST and prints the loss of its last step.  WAY: what it does in the end, or meanwhile.
"""

import multiprocessing
import sys
from typing import Any

import numpy as np
from limits import LIMIT_SECONDS

from rlcorr_cli import Recorder

ROWS, TOKENS = 32, 400


def batch(step: int, rank: int = 0) -> dict[str, Any]:
    """What a trainer holds at a step: two prompts, whose ids stand at the right of their columns."""
    random = np.random.default_rng([step, rank])
    rollout = -random.exponential(1, (ROWS, TOKENS)).astype(np.float32)
    noise = random.normal(0, 0.05, rollout.shape).astype(np.float32)
    lengths = random.integers(TOKENS // 2, TOKENS, (ROWS, 1))
    prompts = np.repeat(random.integers(1, 9, (2, 6)), ROWS // 2, axis=0)
    prompt_mask = np.ones_like(prompts)
    prompt_mask[: ROWS // 2, :2] = 0
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": np.minimum(rollout + noise, 0),
        "response_mask": (np.arange(TOKENS) < lengths).astype(np.int64),
        "advantages": random.normal(size=ROWS),
        "reward": random.random(ROWS),
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": random.integers(1, 50_000, (ROWS, TOKENS)),
    }


def loss_of(held: dict[str, Any]) -> float:
    return float(np.mean(held["rollout_log_probs"] * held["response_mask"]))


def train(recorder: Recorder, first: int, last: int, rank: int = 0) -> float:
    loss = 0.0
    for step in range(first, last):
        held = batch(step, rank)
        recorder.write(held, step=step)
        loss = loss_of(held)
        for values in held.values():
            values *= 0  # the trainer uses its memory again
    return loss


def main(folder: str, first: int, last: int, way: str, rank: int, world: int) -> None:
    ranks: dict[str, Any] = {"rank": rank, "world": world} if world > 1 else {}
    if way == "torch":
        import torch.distributed

        store = torch.distributed.FileStore(f"{folder}.store", world)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
        ranks = {}
    if way == "copies":
        ranks = {"rank": None}
    recorder = Recorder(folder, patience=60, **ranks)
    if way == "fork":
        train(recorder, first, first + 2)
        child = multiprocessing.get_context("fork").Process(target=train, args=(recorder, last, last + 2))
        child.start()
        loss = train(recorder, first + 2, last)
        child.join(LIMIT_SECONDS)
        assert child.exitcode == 0
    else:
        loss = train(recorder, first, last, rank)
    if way == "close":
        recorder.close()
    print(f"trained to {loss:.6f}", "torch" in sys.modules and way != "torch", len(recorder.lost))


if __name__ == "__main__":
    folder, first, last, *others = sys.argv[1:]
    way, rank, world = (*others, *("exit", "0", "1")[len(others) :])
    main(folder, int(first), int(last), way, int(rank), int(world))
