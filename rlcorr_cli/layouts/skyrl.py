"""SkyRL's global_step_{N}_training_input.pkl: a pickled TrainingInputBatch of both policies, of four generations.

A field is raw bytes with type and shape, a NumPy array, or a file of torch's; the oldest releases hold it twice, and
only one is looked at.  Responses lie at the right or, before 2026-03, at the left of R columns: `response_mask` says
where, and the response's tokens are the last R of `sequences`.  The mask is `loss_mask`, 0 on a tool's tokens.  Rows
that only fill the batch up are copies of the first, at the end.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import OpenedDump
from rlcorr_cli.layouts.padded import Padded, checked, spans
from rlcorr_cli.layouts.pickled import Inert, unpickle
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.tensors import NUMPY_GLOBALS, TENSORS, Array, array, of_bytes
from rlcorr_cli.layouts.torch_files import opened, read_torch
from rlcorr_cli.layouts.values import HINT, as_whole

MODULES = ("skyrl.backends.skyrl_train.training_batch", "skyrl_train.training_batch")
NAMES = ("_rebuild_tensor_batch", "TrainingInputBatch", "TensorFormat")
ALLOWED = frozenset(
    (
        *(f"{module}.{name}" for module in MODULES for name in NAMES),
        *("torch.device", "torch.storage._load_from_bytes"),
        *TENSORS,
        *NUMPY_GLOBALS,
    )
)
FIELDS = {
    "rollout_logprobs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "loss_mask": "response_mask",
    "advantages": "advantages",
}
"""SkyRL's name of a tensor over the response -> canonical column."""
NO_ROLLOUT = "Train with generator.sampling_params.logprobs=1 to have them kept."
NO_OLD = (
    "action_log_probs is empty: no forward pass of the policy ran before the update. Train with one, and with "
    "trainer.dump_data_batch=true."
)
PADDED = "Rows that only fill a batch up to its size (metadata.pad_size) are left out."


def recognise(start: FileStart) -> str | None:
    """By the first class that the pickle names."""
    first = " ".join(start.words[:2]) if start.first_bytes[:1] == b"\x80" else ""
    module = next((module for module in MODULES if first.startswith(f"{module} ")), None)
    return f"a pickle of {module}" if module else None


def open_step(paths: Sequence[str]) -> OpenedDump:
    """One step's file."""
    (path,) = paths
    fields, metadata = _batch(unpickle(opened(path), ALLOWED))
    tokens, where = _tokens(fields)
    n_rows, n_padding = len(where), as_whole(metadata.get("pad_size")) or 0
    if not 0 <= n_padding <= n_rows:
        raise DataError(f"its pad_size is {n_padding:,}, of {n_rows:,} rows.", HINT)
    n_rows -= n_padding
    starts, ends = spans(where[:n_rows])
    batch = Padded(
        tokens={column: values[:n_rows] for column, values in tokens.items()},
        starts=starts,
        ends=ends,
        values=_values(path, metadata, n_rows),
    )
    return OpenedDump(
        columns=batch.columns,
        samples=batch.samples,
        types=batch.types,
        notes=(PADDED,) if n_padding else (),
        missing_policy_hint="" if "old_log_probs" in tokens else NO_OLD,
    )


def _batch(value: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The fields and the metadata, as one of the generations holds them."""
    state = None
    if isinstance(value, Inert) and value.name.rpartition(".")[0] in MODULES:
        # Newer releases call _rebuild_tensor_batch with the class and the state.
        state = value.args[1] if len(value.args) == 2 else value.state
    fields = state.get("batch_dict") if isinstance(state, dict) else None
    metadata = state.get("metadata") if isinstance(state, dict) else None
    if not isinstance(fields, dict):
        raise DataError("it holds no TrainingInputBatch.", HINT)
    return fields, metadata if isinstance(metadata, dict) else {}


def _tokens(fields: dict[Any, Any]) -> tuple[Mapping[str, Array], Array]:
    """The tensors over the response by canonical column, and where in them each row's response is."""
    where, sequences = _field(fields, "response_mask"), _field(fields, "sequences")
    tensors = {column: _field(fields, name) for name, column in FIELDS.items()}
    tokens = {column: values for column, values in tensors.items() if values is not None}
    if where is None or sequences is None or "response_mask" not in tokens:
        raise DataError("its batch has no sequences, response_mask or loss_mask.", HINT)
    if "rollout_log_probs" not in tokens:
        raise DataError("its rollout_logprobs are empty: the engine kept none.", NO_ROLLOUT)
    fits = sequences.ndim == where.ndim == 2 and where.shape[1] <= sequences.shape[1]
    if not fits or where.shape != tokens["response_mask"].shape:
        raise DataError(f"its sequences have the shape {sequences.shape}, its response_mask {where.shape}.", HINT)
    tokens["token_ids"] = sequences[:, sequences.shape[1] - where.shape[1] :]
    return checked(tokens), where


def _field(fields: dict[Any, Any], name: str) -> Array | None:
    """One tensor; None of one that is not there, or empty."""
    value = fields.get(name)
    if value is None or isinstance(value, memoryview):
        return None if value is None else _of_torch(value)
    if not isinstance(value, dict):
        raise DataError(f"its {name} is not a tensor.", HINT)
    form = value.get("format")
    form = form.args[0] if isinstance(form, Inert) and form.args else form
    if form == "numpy":
        return of_bytes(value.get("data"), value.get("dtype"), value.get("shape"))
    if form == "torch" and isinstance(value.get("data"), memoryview):
        return _of_torch(value["data"])
    values = array(value.get("data")) if form == "numpy_view" else []
    if isinstance(values, list):
        raise DataError(f"its {name} is not a tensor.", HINT)
    return values


def _of_torch(data: memoryview) -> Array | None:
    file = read_torch(data, TENSORS)
    return None if file.value is None else file.array(file.value)


def _values(path: str, metadata: dict[Any, Any], n_rows: int) -> dict[str, list[Any]]:
    """What is one value a row: the step, of the file's name, and the prompt, whose number begins anew at each step."""
    values: dict[str, list[Any]] = {}
    step = re.search(r"global_step_(\d{1,18})", os.path.basename(path))
    if step:
        values["step"] = [int(step[1])] * n_rows
    ranges = metadata.get("policy_prompt_boundaries")
    if isinstance(ranges, list):
        values["group_id"] = _groups(ranges, n_rows, f"{int(step[1])}/" if step else "")
    return values


def _groups(ranges: list[Any], n_rows: int, of_step: str) -> list[str | None]:
    """For each row the step and the number of the range that it lies in."""
    groups: list[str | None] = [None] * n_rows
    last = 0
    for number, bounds in enumerate(ranges):
        start, end = bounds if isinstance(bounds, (tuple, list)) and len(bounds) == 2 else (None, None)
        if type(start) is not int or type(end) is not int or not last <= start <= end:
            raise DataError("its policy_prompt_boundaries are not ranges of rows.", HINT)
        last = end
        groups[start:end] = [f"{of_step}{number}"] * (min(end, n_rows) - min(start, n_rows))
    return groups
