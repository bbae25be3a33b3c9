"""open-instruct's {run}_rollouts_{shard}.jsonl: the engine's log-probs of a response a line.

The file has no mask: tokens of tools stand among the response's, with a log-prob of exactly 0.0, which sampled tokens
have, too.  A response without a token is one end token, with a bare NaN.  {run}_metadata.jsonl beside them tells the
run's name and no more.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.head import Head
from rlcorr_cli.layouts.json_rows import made_of_rows
from rlcorr_cli.layouts.layout import Layout, Opened, Sample
from rlcorr_cli.layouts.values import aligned, floats, integers, number, text, whole

KEYS = ("prompt_tokens", "response_tokens", "prompt_idx", "logprobs")
METADATA_KEYS = ("run_name", "git_commit", "model_name", "timestamp")
COLUMNS = (
    "rollout_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "group_id",
    "sample_id",
    "source",
)
ENGINE_ONLY = (
    "open-instruct saves the engine's log-probs only, and has no option for the trainer's. Score the same tokens with "
    "the trained policy, and pair the two: rlcorr convert DUMP --join SCORED --on step,sample_id -o dump.parquet."
)
NOTES = (
    "The file has no mask: tokens of tools, with log-probs of exactly 0.0, count as the policy's own.",
    "A response without a token is one end token, whose log-prob is NaN.",
)


def recognise(head: Head) -> str | None:
    """By the keys of the first row."""
    keys = next((keys for keys in (KEYS, METADATA_KEYS) if all(key in head.row for key in keys)), None)
    return f"keys {', '.join(keys)}" if keys else None


def unite(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Every file of rollouts by itself, and what describes the run only where nothing else is named."""
    return [(path,) for path in paths if not _is_metadata(path)] or [(path,) for path in paths]


def open_shard(paths: Sequence[str]) -> Opened:
    """One shard of a run's rollouts."""
    import pyarrow as pa

    (path,) = paths
    if _is_metadata(path):
        raise DataError("it describes a run of open-instruct, and holds no rollouts.", "Name *_rollouts_*.jsonl.")

    def samples() -> Iterator[Sample]:
        return made_of_rows(path, _samples)

    return Opened(columns=COLUMNS, samples=samples, notes=NOTES, types={"advantages": pa.float64()}, lacks=ENGINE_ONLY)


def _is_metadata(path: str) -> bool:
    row = Head(path).row
    return all(key in row for key in METADATA_KEYS)


def _samples(row: dict[str, Any]) -> Iterator[Sample]:
    log_probs, tokens = floats(row, "logprobs"), integers(row, "response_tokens")
    n_tokens = aligned(response_tokens=tokens, logprobs=log_probs)
    step, prompt = whole(row, "step"), whole(row, "prompt_idx")
    yield {
        "rollout_log_probs": log_probs,
        "response_mask": np.ones(n_tokens, np.int8),
        "token_ids": tokens,
        "advantages": number(row, "advantage"),
        "reward": number(row, "reward"),
        "step": step,
        "group_id": None if prompt is None else f"{step}/{prompt}",
        "sample_id": text(row, "sample_idx"),
        "source": text(row, "dataset"),
    }


LAYOUT = Layout(
    name="open-instruct",
    title="open-instruct's rollouts",
    recognise=recognise,
    open=open_shard,
    unite=unite,
    left_out="it describes the run.",
)
