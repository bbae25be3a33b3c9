"""miles: slime's files with more in them, what its loss saw, and the columns of its dashboard.

policy_loss_debug/rank_{rank}_call_{call}.pt has three policies of a micro batch, over the response, without tokens; its
old_log_probs are the trainer's before the update and train_log_probs those in the loss.  A sequence has no id there but
its place in the micro batch, which comes again in every file: sample_id is rank.call.place.  The dashboard's Parquet
knows nothing of remove_sample.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.io.as_numpy import as_numpy
from rlcorr_cli.io.containers.parquet import parquet_file
from rlcorr_cli.io.containers.tensors import TENSORS, is_tensor
from rlcorr_cli.io.containers.torch_files import TorchFile, opened, read_torch
from rlcorr_cli.io.layouts.canonical import OTHER
from rlcorr_cli.io.layouts.entries import mapping, sequence, whole
from rlcorr_cli.io.layouts.head import Head
from rlcorr_cli.io.layouts.layout import Layout, Opened, Sample
from rlcorr_cli.io.layouts.slime import LEFT_OUT, open_unit
from rlcorr_cli.io.layouts.slime_files import SlimeFile, unite

IN_LOSS = {
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "current_log_probs": "train_log_probs",
    "advantages": "advantages",
    "response_mask": "local_loss_mask",
}
DASHBOARD = ("sample_index", "response_length", "total_length", "tokens", "loss_mask", "rollout_log_probs")
DASHBOARD_NAME = re.compile(r"rollout_(?:eval_)?(\d{1,18})\.[^/]*$")
LISTS = {"tokens": "token_ids", "loss_mask": "response_mask", "rollout_log_probs": "rollout_log_probs"}
DASHBOARD_TYPES = {"rollout_log_probs": pa.list_(pa.float32()), "token_ids": pa.list_(pa.int32())}
IGNORES_REMOVED = "miles' dashboard does not tell of remove_sample: sequences that training left out count."
DASHBOARD_LACKS = (
    "The dashboard's columns are of the rollout alone. Name rollout_data/{id}.pt and train_data/{id}_{rank}.pt, which "
    "--dump-details has written beside it."
)
BATCH = 64
"""Rows of the dashboard's that are read at once."""


def recognise(head: Head) -> str | None:
    """By the first keys of its pickle and what only miles adds to them, or by a trajectory's keys."""
    file = SlimeFile(head)
    return file.sign if file.kind and file.of_miles else None


def recognise_policy_loss(head: Head) -> str | None:
    """By the first keys of its pickle."""
    keys = ("rank", "call", "samples")
    return f"torch file, keys {', '.join(keys)}" if head.words[:3] == keys else None


def recognise_dashboard(head: Head) -> str | None:
    """By its columns, in their order; only a file that is called as miles calls it is opened for them."""
    named = DASHBOARD_NAME.search(head.path)
    return f"columns {', '.join(DASHBOARD)}" if named and head.columns == DASHBOARD else None


def open_policy_loss(paths: Sequence[str]) -> Opened:
    """A micro batch as one rank's loss saw it."""
    (path,) = paths
    file = read_torch(opened(path), TENSORS)
    value = mapping(file.value, "its pickle")
    rank, call = whole(value, "rank"), whole(value, "call")
    samples = [mapping(sample, f"sample {i}") for i, sample in enumerate(sequence(value, "samples"))]
    columns = [name for name, key in IN_LOSS.items() if any(sample.get(key) is not None for sample in samples)]

    def rows() -> Iterator[Sample]:
        about = {"worker": rank, "call": call}
        for number, sample in enumerate(samples):
            yield {**about, "sample_id": f"{rank}.{call}.{number}", **_in_loss(file, sample, number)}

    log_probs = {name: pa.list_(pa.float32()) for name in IN_LOSS if name != "response_mask"}
    return Opened(
        columns=[*columns, "sample_id", "worker", "call"], samples=rows, types={**log_probs, "call": pa.int64()}
    )


def _in_loss(file: TorchFile, sample: dict[Any, Any], number: int) -> dict[str, Any]:
    length = whole(sample, "response_length", f"sample {number}")
    values: dict[str, Any] = {}
    for name, key in IN_LOSS.items():
        if sample.get(key) is None:
            continue
        if not is_tensor(sample[key]):
            raise DataError(f"{key} of sample {number} is no tensor.", OTHER)
        values[name] = file.array(sample[key])
        if values[name].shape != (length,):
            raise DataError(
                f"sample {number} has {values[name].size:,} {key} for a response of {length:,} tokens.",
                "It is a slice of context parallelism, whose place its file does not tell; read train_data instead.",
            )
    return values


def open_dashboard(paths: Sequence[str]) -> Opened:
    """A step's columns for the dashboard."""
    (path,) = paths
    with parquet_file(path) as file:
        absent = [name for name in DASHBOARD if name not in file.schema_arrow.names]
    if absent:
        raise DataError(f"it has no column {absent[0]}, which miles' dashboard has.", OTHER)
    step = DASHBOARD_NAME.search(path)
    columns = ["rollout_log_probs", "response_mask", "token_ids", *(("step",) if step else ()), "sample_id"]

    def rows() -> Iterator[Sample]:
        with parquet_file(path) as file:
            for batch in file.iter_batches(BATCH, columns=list(DASHBOARD), use_threads=False):
                for row in _dashboard_rows(batch):
                    yield {**row, "step": int(step[1]) if step else None}

    return Opened(columns=columns, samples=rows, types=DASHBOARD_TYPES, notes=(IGNORES_REMOVED,), lacks=DASHBOARD_LACKS)


def _dashboard_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    flat = {key: _flat(batch.column(key), key) for key in LISTS}
    for i, (index, length) in enumerate(zip(*(batch.column(key).to_pylist() for key in DASHBOARD[:2]), strict=True)):
        row: dict[str, Any] = {"sample_id": index}
        for key, name in LISTS.items():
            values, offsets, valid = flat[key]
            row[name] = values[offsets[i] : offsets[i + 1]] if valid[i] else None
        tokens = row["token_ids"]
        if not isinstance(length, int) or tokens is None or not 0 <= length <= len(tokens):
            raise DataError(f"a response_length is {length}, and its tokens are fewer, or none.", OTHER)
        row["token_ids"] = tokens[len(tokens) - length :]
        if row["response_mask"] is None:
            row["response_mask"] = np.ones(length, np.int8)
        yield row


def _flat(lists: pa.Array, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values of lists, where each begins and ends, and which are not null."""
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise DataError(f"its {key} is {lists.type}, no list.", OTHER)
    floats = pa.types.is_floating(lists.type.value_type)
    if not floats and (lists.values.null_count or not pa.types.is_integer(lists.type.value_type)):
        raise DataError(f"its {key} hold nulls, or something else than numbers.", OTHER)
    values = as_numpy(lists.values, np.nan if floats else None)
    return values, as_numpy(lists.offsets), as_numpy(lists.is_valid())


def _united_dashboard(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Each alone; evaluations only where there is nothing else."""
    trained = [path for path in paths if not re.search(r"rollout_eval_[^/]*$", path)]
    return [(path,) for path in trained or paths]


LAYOUT = Layout(
    name="miles",
    title="miles' rollout_data/{id}.pt and train_data/{id}_{rank}.pt",
    recognise=recognise,
    open=open_unit,
    unite=unite,
    left_out=LEFT_OUT,
)
POLICY_LOSS = Layout(
    name="miles-policy-loss",
    title="miles' policy_loss_debug/rank_{rank}_call_{call}.pt",
    recognise=recognise_policy_loss,
    open=open_policy_loss,
)
DASHBOARD_LAYOUT = Layout(
    name="miles-dashboard",
    title="miles' dashboard_columns/rollout_{id}.parquet",
    recognise=recognise_dashboard,
    open=open_dashboard,
    unite=_united_dashboard,
    left_out="evaluations are read only where no others are named.",
)
