"""TRL's batch in memory, as GRPOTrainer's `_generate_and_score_completions` returns it and its loss takes it.

completion_ids and what goes with them are padded on the right, completion_mask tells how far; tool_mask is 0 for tokens
of tools.  sampling_per_token_logps are vLLM's, there with `vllm_importance_sampling_correction`;
old_per_token_logps the trainer's before updates, there wherever the former are.  num_items_in_batch is no column.
"""

from collections.abc import Mapping
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import BatchLayout

KEYS = ("prompt_ids", "completion_ids", "completion_mask")
COLUMNS = {
    "sampling_per_token_logps": "rollout_log_probs",
    "old_per_token_logps": "old_log_probs",
    "per_token_logps": "current_log_probs",
    "ref_per_token_logps": "ref_log_probs",
    "completion_ids": "token_ids",
}
"""Theirs -> canonical; the rest goes by its own name."""
NO_ENGINE = (
    "TRL keeps the engine's with use_vllm and vllm_importance_sampling_correction; without vLLM the trainer samples "
    "itself, and there is nothing to compare."
)


def columns(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch's columns, the two masks in one."""
    if batch.get("sampling_per_token_logps") is None:
        raise DataError("The batch of TRL's has no sampling_per_token_logps.", NO_ENGINE)
    n_rows = len(batch["completion_ids"])
    present = {name: values for name, values in batch.items() if _is_column(values, n_rows)}
    mask, of_tools = present.pop("completion_mask"), present.pop("tool_mask", None)
    named = {COLUMNS.get(name, name): values for name, values in present.items()}
    return {**named, "response_mask": mask if of_tools is None else mask * of_tools}


def _is_column(values: Any, n_rows: int) -> bool:
    """Whether it is [B] or [B, T]: a batch of pictures holds other shapes, too."""
    shape: tuple[int, ...] = tuple(getattr(values, "shape", ()))
    return len(shape) in (1, 2) and shape[:1] == (n_rows,)


BATCH = BatchLayout(title="a batch of GRPOTrainer", keys=KEYS, columns=columns)
