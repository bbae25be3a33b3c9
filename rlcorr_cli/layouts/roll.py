"""ROLL's step_{N}.pkl of rollout_mock: a pickled DataProto of the rollout, before the trainer scored it.

Environments are numbered in training and in validation, so the folder of a file (train, val) is a column beside the id.
Tensors are over T tokens of prompt and response; log-probs have T - 1, entry t for token t + 1.  A response runs from
the first to the last token of response_mask, with a tool's tokens between them at 0.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.data_proto import DataProto, read_data_proto
from rlcorr_cli.layouts.layout import OpenedDump
from rlcorr_cli.layouts.padded import Padded, checked, spans
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.tensors import Array
from rlcorr_cli.layouts.values import HINT, as_number, as_text

CLASS = "roll.distributed.scheduler.protocol.DataProto"
SHIFTED = {
    "infer_logprobs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
    "advantages": "advantages",
}
"""ROLL's name of a tensor of T - 1 columns -> canonical column."""
FIELDS = {"response_mask": "response_mask", "input_ids": "token_ids"}
OBJECTS = {
    "episode_scores": ("reward", as_number),
    "group_ids": ("group_id", as_text),
    "env_ids": ("sample_id", as_text),
    "tags": ("source", as_text),
}
SPLITS = ("train", "val")
ROLLOUT_ONLY = (
    "rollout_mock dumps the rollout before the trainer scores it. Call batch.save_to_disk(PATH) in the pipeline after "
    "old_log_probs are computed, and name that file."
)
NO_ROLLOUT = "Let the engine return log-probs, so that infer_logprobs is in the batch."
ELSEWHERE = "Dump it again without the transfer backend that keeps tensors in other processes."


def recognise(start: FileStart) -> str | None:
    """By the class that the pickle names first."""
    words = " ".join(start.words[:2]) if start.first_bytes[:1] == b"\x80" else ""
    return f"a pickle of {CLASS}" if words.startswith("roll.distributed.scheduler.protocol DataProto") else None


def open_step(paths: Sequence[str]) -> OpenedDump:
    """One step's file."""
    (path,) = paths
    proto = read_data_proto(path, CLASS, ("_io.BytesIO",), (*SHIFTED, *FIELDS))
    if len(proto.state) > 3 and proto.state[2] is not None:
        raise DataError("its tensors are not in it but in the memory of other processes.", ELSEWHERE)
    tensors = proto.tensors
    if not all(name in tensors for name in FIELDS):
        raise DataError("its batch has no input_ids or no response_mask.", HINT)
    if "infer_logprobs" not in tensors:
        raise DataError("its batch has no infer_logprobs.", NO_ROLLOUT)
    tokens = {column: tensors[name] for name, column in FIELDS.items()}
    shape = tokens["response_mask"].shape
    tokens |= {column: _lined_up(tensors[name], shape) for name, column in SHIFTED.items() if name in tensors}
    starts, ends = spans(checked(tokens)["response_mask"])
    batch = Padded(tokens=tokens, starts=starts, ends=ends, values=_values(path, proto, shape[0]))
    return OpenedDump(
        columns=batch.columns,
        samples=batch.samples,
        types=batch.types,
        notes=proto.notes,
        missing_policy_hint="" if "old_log_probs" in tokens else ROLLOUT_ONLY,
    )


def _lined_up(values: Array, shape: tuple[int, ...]) -> Array:
    """T - 1 columns as T, 0.0 for the first token, which nothing predicts."""
    if values.ndim == len(shape) == 2 and values.shape[1] + 1 == shape[1]:
        return np.pad(values, ((0, 0), (1, 0)))
    return values


def _values(path: str, proto: DataProto, n_rows: int) -> dict[str, list[Any]]:
    """What is one value a row; step and split are in the file's name and folder alone.

    Groups are numbered anew at each step, so a group is known by its step, too.
    """
    values: dict[str, list[Any]] = {}
    for name, (column, plain) in OBJECTS.items():
        objects = proto.objects(name, n_rows)
        if objects is not None:
            values[column] = [plain(value) for value in objects]
    step = re.search(r"step_(\d{1,18})", os.path.basename(path))
    if step:
        values["step"] = [int(step[1])] * n_rows
        if "group_id" in values:
            values["group_id"] = [group and f"{int(step[1])}/{group}" for group in values["group_id"]]
    folder = os.path.basename(os.path.dirname(path))
    if folder in SPLITS:
        values["split"] = [folder] * n_rows
    return values
