"""A flat model without weights, as small models are: no token is sure of itself, and few have log-prob 0.

The logits of each place are normal, with a deviation drawn for it; training adds noise of 0.01.  Samples of a prompt
begin at one place, so that their first tokens share their distribution.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ROWS, LENGTH, VOCABULARY, SAMPLES = 48, 96, 1000, 6
Logits = NDArray[np.float64]


def flat_dump(
    *,
    top_p: float = 1.0,
    min_p: float = 0.0,
    top_k: int = 0,
    temperature: float = 1.0,
    softcap: float = 0.0,
    padded: bool = False,
    swapped: bool = False,
    seed: int = 0,
) -> pa.Table:
    """A dump whose rollout was sampled by some settings, and whose training has a soft-cap or padding rows."""
    rng = np.random.default_rng(seed)
    rollout, train, ids = [], [], []
    first = np.zeros(VOCABULARY)
    for row in range(ROWS):
        scale = rng.uniform(1.0, 3.2, (LENGTH, 1))
        logits = rng.normal(size=(LENGTH, VOCABULARY)) * scale
        first = logits[0] if row % SAMPLES == 0 else first
        logits[0] = first
        sampled = _cut(_normalised(logits / temperature), top_p, min_p, top_k)
        token = (sampled + rng.gumbel(size=sampled.shape)).argmax(-1)
        trained = softcap * np.tanh(logits / softcap) if softcap else logits
        if padded:
            trained = np.concatenate([trained, rng.normal(size=(LENGTH, 64)) * scale], -1)
        trained = _normalised(trained + rng.normal(size=trained.shape) * 0.01)
        at = np.arange(LENGTH)
        rollout.append(sampled[at, token].astype(np.float32))
        train.append(trained[at, token].astype(np.float32))
        ids.append(token)
    if swapped:
        rollout, train = train, rollout
    columns: dict[str, Any] = {
        "group_id": [f"g{row // SAMPLES}" for row in range(ROWS)],
        "token_ids": [each.tolist() for each in ids],
        "rollout_log_probs": pa.array([each.tolist() for each in rollout], pa.list_(pa.float32())),
        "old_log_probs": pa.array([each.tolist() for each in train], pa.list_(pa.float32())),
        "reward": rng.normal(size=ROWS),
    }
    return pa.table(columns)


def _cut(log_probs: Logits, top_p: float, min_p: float, top_k: int) -> Logits:
    """Without the tokens that sampling rules out."""
    if min_p:
        log_probs = np.where(log_probs < log_probs.max(-1, keepdims=True) + np.log(min_p), -np.inf, log_probs)
    if top_k:
        least = np.sort(log_probs, -1)[:, -top_k, None]
        log_probs = np.where(log_probs < least, -np.inf, log_probs)
    if top_p < 1:
        order = np.argsort(-log_probs, -1)
        mass = np.take_along_axis(np.exp(log_probs), order, -1)
        kept = np.take_along_axis(log_probs, order, -1)
        cut = np.empty_like(log_probs)
        np.put_along_axis(cut, order, np.where(np.cumsum(mass, -1) - mass >= top_p, -np.inf, kept), -1)
        log_probs = cut
    return _normalised(log_probs)


def _normalised(logits: Logits) -> Logits:
    held = logits - logits.max(-1, keepdims=True)
    return held - np.log(np.exp(held).sum(-1, keepdims=True))
