"""The manual's training code, run: a policy trained on corrected rollouts does better than on raw ones."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from rlcorr_cli import filter
from rlcorr_cli.plans.plan import Bounds, Plan, Weighting

PAGE = Path(__file__).parents[1] / "rlcorr_cli" / "manual" / "dataset.md"
SAMPLES = PAGE.parents[2] / "sample_data"
DUMPS = {
    "smollm2_bf16.parquet": ("tokens", "advantages"),
    "smollm2_int8.parquet": ("tokens",),
    "smollm2_steps.parquet": ("tokens", "advantages"),
    "native/nemo-rl": ("tokens", "advantages"),
    "native/skyrl": ("tokens", "advantages"),
    "native/slime": ("tokens", "advantages"),
}
"""Dump -> what its batches have beside masks and weights."""
REWARDS = np.array([1.0, 0.8, 0.2, -0.5])
ROLLOUT = np.array([0.02, 0.68, 0.10, 0.20])
"""What the engine drew from: it hardly ever draws the best token."""
START = np.array([0.30, 0.25, 0.25, 0.20])
"""What the trainer starts from."""


@pytest.fixture(scope="module")
def trainer() -> dict[str, Any]:
    """What the page's code defines."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 rows of one to three tokens, drawn from ROLLOUT."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(2000):
        tokens = rng.choice(4, rng.integers(1, 4), p=ROLLOUT)
        rows.append(
            {
                "tokens": tokens.tolist(),
                "rollout_log_probs": np.log(ROLLOUT[tokens]).tolist(),
                "old_log_probs": np.log(START[tokens]).tolist(),
                "response_mask": [1] * len(tokens),
                "advantages": float(REWARDS[tokens].mean() - REWARDS @ START),
            }
        )
    path = tmp_path_factory.mktemp("training") / "rollouts.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def trained(path: Path, trainer: dict[str, Any], weigh: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """The expected reward after one pass over the data."""
    torch.manual_seed(0)
    logits = torch.tensor(np.log(START), requires_grad=True)
    for batch in trainer["loader"](path, 100):
        batch["rollout_is_weights"] = weigh(batch["rollout_is_weights"])
        log_probs = torch.log_softmax(logits, 0)[batch["tokens"]]
        # A step by hand: torch's optimizers load its compiler, which takes seconds.
        (gradient,) = torch.autograd.grad(trainer["loss"](log_probs, batch), logits)
        logits.data -= 0.5 * gradient
    return float(torch.softmax(logits.detach(), 0).numpy() @ REWARDS)


def test_training_on_weighted_rollouts_reaches_a_better_policy(
    rollouts: Path, trainer: dict[str, Any], tmp_path: Path
) -> None:
    corrected = tmp_path / "corrected.parquet"
    filter(rollouts, corrected, plan=Plan("token", Weighting("token", Bounds(None, 20.0))))
    weighted = trained(corrected, trainer, lambda weights: weights)
    raw = trained(corrected, trainer, torch.ones_like)
    assert REWARDS @ START < raw < weighted
    assert weighted - raw > 0.02


@pytest.mark.parametrize("dump", DUMPS)
def test_the_loader_reads_what_filter_writes_of_every_sample(
    dump: str, trainer: dict[str, Any], tmp_path: Path
) -> None:
    corrected = tmp_path / "corrected.parquet"
    filter(SAMPLES / dump, corrected, preset="token_is")
    rows, columns = pl.read_parquet(corrected), DUMPS[dump]
    batches = list(trainer["loader"](corrected, 3))
    assert sum(len(batch["response_mask"]) for batch in batches) == len(rows) > 3
    assert set(batches[0]) == {"response_mask", "rollout_is_weights", *columns}
    n_tokens = rows["response_mask"].list.sum().sum()
    assert sum(int(batch["response_mask"].sum()) for batch in batches) == n_tokens
    for batch in batches:
        n_rows, _ = shape = batch["response_mask"].shape
        assert all(batch[name].shape in (shape, (n_rows, 1)) for name in batch)
        assert all(batch[name].shape == shape for name in batch if name != "advantages")
        if "advantages" in batch:
            assert math.isfinite(trainer["loss"](torch.full(shape, -1.0), batch))
