"""verl's tq_batch.pt: the skip manager's file of TransferQueue, rollout only, with jagged rows of prompt and response.

Beside the tensors stand one object a row, each in a shell of tensordict's own, and `keys`, {uid}_{session}_{index}.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.data_proto import ForeignNames
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.padded import check_kind, totals, types_of
from rlcorr_cli.layouts.pickled import Inert
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.tensordicts import JAGGED_TENSORS, TENSORDICTS, Jagged, fields, tensors
from rlcorr_cli.layouts.tensors import NUMPY_GLOBALS, Array, scalar
from rlcorr_cli.layouts.torch_files import opened, read_torch
from rlcorr_cli.layouts.values import HINT, as_text, as_whole
from rlcorr_cli.layouts.verl import FIELDS, REWARDS, ROLLOUT_ONLY, over_response

STACK = "tensordict.tensorclass.NonTensorStack"
SHELL = "tensordict.tensorclass.NonTensorData"
ALLOWED = frozenset((*TENSORDICTS, *JAGGED_TENSORS, *NUMPY_GLOBALS, STACK, SHELL))
Rows = Array | Jagged


def recognise(start: FileStart) -> str | None:
    """By the first key and the TensorDict behind it."""
    if start.words[:1] != ("tensordict",) or "tensordict._reductions" not in " ".join(start.words[1:3]):
        return None
    return "torch.save of tensordict, tags, keys, global_steps"


def open_batch(paths: Sequence[str]) -> OpenedDump:
    """One file."""
    (path,) = paths
    foreign = ForeignNames()
    file = read_torch(opened(path), ALLOWED, foreign)
    if not isinstance(file.value, dict) or "tensordict" not in file.value:
        raise DataError("it holds no batch of verl's skip manager.", HINT)
    batch = file.value["tensordict"]
    read = tensors(file, batch, (*FIELDS, *REWARDS))
    tokens = over_response(read)
    n_rows = _n_rows(tokens)
    values = _values(file.value, fields(batch), read, n_rows)

    def samples() -> Iterator[Sample]:
        parts = zip(*tokens.values(), strict=True)
        for row, arrays in enumerate(parts):
            yield {**dict(zip(tokens, arrays, strict=True)), **{name: column[row] for name, column in values.items()}}

    return OpenedDump(
        columns=(*tokens, *values),
        samples=samples,
        types=types_of({name: _flat(rows) for name, rows in tokens.items()}),
        notes=foreign.notes,
        missing_policy_hint="" if "old_log_probs" in tokens else ROLLOUT_ONLY,
    )


def _n_rows(tokens: Mapping[str, Rows]) -> int:
    """How many rows there are; a DataError where the tensors do not agree on them."""
    n_rows = len(_rows(tokens["response_mask"]))
    for name, rows in tokens.items():
        if len(_rows(rows)) != n_rows:
            raise DataError(f"its {name} has {len(rows):,} rows, its response_mask {n_rows:,}.", HINT)
        check_kind(name, _flat(rows))
    return n_rows


def _rows(rows: Rows) -> Rows:
    if not isinstance(rows, Jagged) and rows.ndim != 2:
        raise DataError(f"its tensors have the shape {rows.shape}, not that of a batch of rows.", HINT)
    return rows


def _flat(rows: Rows) -> Array:
    return rows.values if isinstance(rows, Jagged) else rows


def _values(
    top: Mapping[Any, Any], inert: Mapping[str, Any], read: Mapping[str, Rows], n_rows: int
) -> dict[str, list[Any]]:
    """What is one value a row."""
    values: dict[str, list[Any]] = {}
    reward = next((read[name] for name in REWARDS if name in read), None)
    if reward is not None:
        values["reward"] = totals(_rows(reward))
    for name, column in (("uid", "group_id"), ("data_source", "source")):
        if name in inert:
            values[column] = [as_text(value) for value in _objects(inert[name], n_rows)]
    steps: tuple[tuple[str, str], ...] = (
        ("min_global_steps", "policy_version"),
        ("max_global_steps", "policy_version_end"),
    )
    tags = _listed(top.get("tags"))
    for name, column in steps:
        if any(isinstance(tag, dict) and name in tag for tag in tags):
            values[column] = [as_whole(tag.get(name)) if isinstance(tag, dict) else None for tag in tags]
    keys = _listed(top.get("keys"))
    if keys:
        values["sample_id"] = [as_text(key) for key in keys]
    step = as_whole(top.get("global_steps"))
    if step is not None:
        values["step"] = [step] * n_rows
    for name, column in values.items():
        if len(column) != n_rows:
            raise DataError(f"its {name} has {len(column):,} values for {n_rows:,} rows.", HINT)
    return values


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any, n_rows: int) -> list[Any]:
    """One object a row, out of its shell; of a single shell the same for all."""
    state = value.state if isinstance(value, Inert) else None
    if isinstance(state, dict) and value.name == STACK:
        return [_unshelled(shell) for shell in _listed(state.get("tensordicts"))]
    return [_unshelled(value)] * n_rows


def _unshelled(shell: Any) -> Any:
    state = shell.state if isinstance(shell, Inert) and shell.name == SHELL else None
    held = state.get("non_tensordict") if isinstance(state, dict) else None
    return scalar(held.get("data")) if isinstance(held, dict) else None
