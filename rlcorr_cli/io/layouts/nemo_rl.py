"""NeMo-RL's train_data_step{N}.jsonl: both policies over the padded prompt and response, each value in a list of one.

Mask: token_loss_mask where sample_loss_mask is not 0.  A row runs from its first to its last token of token_loss_mask,
what lies before is the prompt and after it padding.  With dynamic sampling `filtered_rewards` is the row's reward, and
`rewards` another list.  prev_logprobs of a whole file at 0.0 (force_on_policy_ratio) are no policy.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlcorr_cli.io.containers.json_rows import read_rows
from rlcorr_cli.io.layouts.head import Head
from rlcorr_cli.io.layouts.layout import Layout, Opened, Sample

KEYS = ("generation_logprobs", "prev_logprobs", "token_loss_mask")
ON_POLICY = (
    "prev_logprobs is 0.0 everywhere in its first rows: the run left them out. Train with force_on_policy_ratio off to "
    "have them written."
)
COLUMNS = (
    "rollout_log_probs",
    "old_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "sample_id",
    "source",
)
LOOKED_AT = 64
"""Rows that tell whether a file has a training policy."""


def recognise(head: Head) -> str | None:
    """By the keys of the first row."""
    return f"keys {', '.join(KEYS)}" if all(key in head.row for key in KEYS) else None


def open_step(paths: Sequence[str]) -> Opened:
    """One step's file."""
    (path,) = paths
    step = re.search(r"train_data_step(\d+)", path)
    first = [row for row, _ in zip(read_rows(path), range(LOOKED_AT), strict=False)]
    trained = any(np.any(_list(row, "prev_logprobs")) for row in first)
    dropped = {
        *(() if trained else ("old_log_probs",)),
        *(() if step else ("step",)),
        *(() if any("agent_ref" in row for row in first) else ("source",)),
    }
    number = int(step[1]) if step else None

    def samples() -> Iterator[Sample]:
        return (_sample(row, number, trained) for row in read_rows(path))

    columns = [name for name in COLUMNS if name not in dropped]
    return Opened(columns=columns, samples=samples, lacks="" if trained else ON_POLICY)


def _sample(row: dict[str, Any], step: int | None, trained: bool) -> Sample:
    mask = np.asarray(_list(row, "token_loss_mask"), np.float64)
    tokens = np.flatnonzero(mask)
    span = slice(int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else slice(0, 0)
    keeps = float(_one(row.get("sample_loss_mask"), 1.0) != 0)
    reward = row["filtered_rewards"] if "filtered_rewards" in row else row.get("rewards")
    return {
        "rollout_log_probs": _list(row, "generation_logprobs")[span],
        "old_log_probs": _list(row, "prev_logprobs")[span] if trained else None,
        "response_mask": mask[span] * keeps,
        "token_ids": _list(row, "token_ids")[span],
        "advantages": _list(row, "advantages")[span],
        "reward": _one(reward, None),
        "step": step,
        "sample_id": row.get("idx"),
        "source": _source(row.get("agent_ref")),
    }


def _list(row: dict[str, Any], key: str) -> list[Any]:
    """A list of tokens, out of its list of one."""
    (values,) = row[key]
    return values


def _one(values: Any, default: Any) -> Any:
    return values[0] if isinstance(values, list) and values else default if values is None else values


def _source(agent: Any) -> Any:
    agent = _one(agent, None)
    return agent.get("name") if isinstance(agent, dict) else agent


LAYOUT = Layout(
    name="nemo-rl",
    title="NeMo-RL's train_data_step{N}.jsonl",
    recognise=recognise,
    open=open_step,
)
