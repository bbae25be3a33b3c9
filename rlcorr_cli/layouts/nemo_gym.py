"""NeMo-Gym's rollouts: one conversation a line, with the token ids and log-probs of each call of the model.

Each call's prompt_token_ids is all that went before, so that what lies between the end of a call and its beginning is
a tool's answer or the template's words, mask 0.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.layouts.json_rows import has_key, made_of_rows
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import aligned, floats, inner, integers, number, objects, text

KEYS = ("responses_create_params", "response")
COLUMNS = ("rollout_log_probs", "response_mask", "token_ids", "reward", "group_id", "sample_id", "source")
ENGINE_ONLY = (
    "NeMo-Gym collects rollouts and trains nothing. NeMo-RL, which trains on them, writes train_data_step{N}.jsonl "
    "with both policies unless env.should_log_nemo_gym_responses is true."
)
NOTES = (
    "A row holds all calls of a conversation; tokens between them have mask 0.",
    "Conversations without a call that has token ids give no row.",
    "Where a call's prompt is not what went before it, its tokens follow the call before without any between.",
)
MASKED = "Rows with mask_sample have mask 0."


def recognise(start: FileStart) -> str | None:
    """By the keys of the first row; a batch API's response has a body instead of output."""
    response = start.row.get("response")
    is_rollout = "responses_create_params" in start.row and isinstance(response, dict) and "output" in response
    return f"keys {', '.join(KEYS)} with output" if is_rollout else None


def open_rollouts(paths: Sequence[str]) -> OpenedDump:
    """One file of conversations."""
    (path,) = paths

    def samples() -> Iterator[Sample]:
        return made_of_rows(path, _samples)

    notes = (*NOTES, MASKED) if has_key(path, "mask_sample") else NOTES
    return OpenedDump(columns=COLUMNS, samples=samples, notes=notes, missing_policy_hint=ENGINE_ONLY)


def _samples(row: dict[str, Any], place: int) -> Iterator[Sample]:
    calls = [item for item in objects(inner(row, "response"), "output") if item.get("generation_token_ids")]
    if not calls:
        return
    tokens: list[NDArray[np.int64]] = []
    log_probs: list[NDArray[Any]] = []
    masks: list[NDArray[np.int8]] = []
    before = np.empty(0, np.int64)
    for call in calls:
        generated, values = integers(call, "generation_token_ids"), floats(call, "generation_log_probs")
        n_generated = aligned(generation_token_ids=generated, generation_log_probs=values)
        prompt = integers(call, "prompt_token_ids")
        between = prompt[len(before) :] if tokens and np.array_equal(prompt[: len(before)], before) else prompt[:0]
        tokens += [between, generated]
        log_probs += [np.zeros(len(between)), values]
        masks += [np.zeros(len(between), np.int8), np.ones(n_generated, np.int8)]
        before = np.concatenate([prompt, generated])
    mask = np.concatenate(masks)
    yield {
        "rollout_log_probs": np.concatenate(log_probs),
        "response_mask": mask * 0 if row.get("mask_sample") else mask,
        "token_ids": np.concatenate(tokens),
        "reward": number(row, "reward"),
        "group_id": text(row, "_ng_task_index"),
        "sample_id": text(row, "_ng_rollout_index"),
        "source": text(inner(row, "agent_ref"), "name"),
    }
