"""verl's batches: DataProto of `save_to_disk` or of the skip manager's gen_batch.dp.

Tensors are over the response, padded at its end; its length is that of attention_mask behind the prompt.  response_mask
is 0 on a tool's tokens.  In bypass mode old_log_probs are a copy of rollout_log_probs, and no policy.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.data_proto import DataProto, read_data_proto
from rlcorr_cli.layouts.layout import OpenedDump
from rlcorr_cli.layouts.padded import Padded, checked, is_copy, spans, totals
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import HINT, as_text, as_whole

Tensor = TypeVar("Tensor")
CLASS = "verl.protocol.DataProto"
FIELDS = {
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "ref_log_prob": "ref_log_probs",
    "response_mask": "response_mask",
    "responses": "token_ids",
    "advantages": "advantages",
}
"""verl's name of a tensor over the response -> canonical column."""
REWARDS = ("rm_scores", "token_level_scores")
"""Rewards by token, of which the first that is there is summed."""
OBJECTS = {
    "uid": ("group_id", as_text),
    "index": ("sample_id", as_text),
    "data_source": ("source", as_text),
    "min_global_steps": ("policy_version", as_whole),
    "max_global_steps": ("policy_version_end", as_whole),
}
SAVE = "Call batch.save_to_disk(PATH) in the trainer after old_log_probs are computed, and name that file."
ROLLOUT_ONLY = f"The batch was written before the trainer computed old_log_probs. {SAVE}"
BYPASS = (
    "old_log_probs is a copy of rollout_log_probs: in bypass mode the trainer computes none. Train with "
    "algorithm.rollout_correction.bypass_mode=false to have them computed."
)
NO_ROLLOUT = "Train with actor_rollout_ref.rollout.calculate_log_probs=true to have them kept."


def recognise(start: FileStart) -> str | None:
    """By the class that the pickle names first."""
    if start.first_bytes[:1] == b"\x80" and " ".join(start.words[:2]).startswith("verl.protocol DataProto"):
        return f"a pickle of {CLASS}"
    return None


def open_batch(paths: Sequence[str]) -> OpenedDump:
    """One file with a batch."""
    (path,) = paths
    proto = read_data_proto(path, CLASS, ("_io.BytesIO",), (*FIELDS, *REWARDS, "attention_mask"))
    tokens = over_response(proto.tensors)
    lacks = "" if "old_log_probs" in checked(tokens) else ROLLOUT_ONLY
    if not lacks and is_copy(tokens):
        del tokens["old_log_probs"]
        lacks = BYPASS
    mask = tokens["response_mask"]
    ends = _lengths(proto, *mask.shape) if "attention_mask" in proto.tensors else spans(mask)[1]
    batch = Padded(tokens=tokens, starts=np.zeros_like(ends), ends=ends, values=_values(path, proto, len(mask)))
    return OpenedDump(
        columns=batch.columns, samples=batch.samples, types=batch.types, notes=proto.notes, missing_policy_hint=lacks
    )


def over_response(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors over the response by canonical column; a DataError without those that all rows need."""
    tokens = {column: tensors[name] for name, column in FIELDS.items() if name in tensors}
    if "response_mask" not in tokens or "token_ids" not in tokens:
        raise DataError("its batch has no responses or no response_mask.", HINT)
    if "rollout_log_probs" not in tokens:
        raise DataError("its batch has no rollout_log_probs.", NO_ROLLOUT)
    return tokens


def _lengths(proto: DataProto, n_rows: int, width: int) -> Any:
    """Tokens of each response, a tool's among them."""
    attention = proto.tensors["attention_mask"]
    if (
        attention.ndim != 2
        or len(attention) != n_rows
        or attention.shape[1] < width
        or attention.dtype.kind not in "biu"
    ):
        raise DataError(f"its attention_mask has the shape {attention.shape}, for {n_rows:,} rows.", HINT)
    return np.count_nonzero(attention[:, attention.shape[1] - width :], axis=1).astype(np.int64)


def _values(path: str, proto: DataProto, n_rows: int) -> dict[str, list[Any]]:
    """What is one value a row."""
    values: dict[str, list[Any]] = {}
    reward = next((proto.tensors[name] for name in REWARDS if name in proto.tensors), None)
    if reward is not None:
        if reward.ndim != 2 or len(reward) != n_rows or reward.dtype.kind not in "biuf":
            raise DataError(f"its rewards have the shape {reward.shape}, for {n_rows:,} rows.", HINT)
        values["reward"] = totals(reward)
    for name, (column, plain) in OBJECTS.items():
        objects = proto.objects(name, n_rows)
        if objects is not None:
            values[column] = [plain(value) for value in objects]
    step = as_whole(proto.meta.get("global_steps"))
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if step is None and folder.isdecimal() and len(folder) < 19:
        step = int(folder)  # the skip manager's folder of a step
    if step is not None:
        values["step"] = [step] * n_rows
    return values
