"""miles' own files: what its loss saw, and its dashboard's columns.  Its rollout and training files are `slime`'s.

policy_loss_debug/rank_{rank}_call_{call}.pt has three policies of a micro batch, over the response, without tokens; its
old_log_probs are the trainer's before the update and train_log_probs those in the loss.  A sequence has no id there but
its place in the micro batch, which comes again in every file: sample_id is rank.call.place.

dashboard_columns/rollout_{id}.parquet has a rollout's columns, which know nothing of remove_sample.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.files.arrow_files import parquet_file
from rlcorr_cli.layouts.layout import OpenedDump, Sample, each_alone
from rlcorr_cli.layouts.recognise import DASHBOARD_COLUMNS, DASHBOARD_NAME
from rlcorr_cli.layouts.tensors import TENSORS, Array, is_tensor
from rlcorr_cli.layouts.torch_files import opened, read_torch
from rlcorr_cli.layouts.values import HINT, length, mapping, rows_of_lists, sequence

IN_LOSS = {
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "current_log_probs": "train_log_probs",
    "advantages": "advantages",
    "response_mask": "local_loss_mask",
}
OF_A_SLICE = "It is a slice of context parallelism, whose place its file does not say; read train_data instead."


def open_policy_loss(paths: Sequence[str]) -> OpenedDump:
    """A micro batch as one rank's loss saw it."""
    (path,) = paths
    file = read_torch(opened(path), TENSORS)
    value = mapping(file.value, "its pickle")
    rank, call = length(value, "rank"), length(value, "call")
    samples = [mapping(sample, f"sample {i}") for i, sample in enumerate(sequence(value, "samples"))]
    columns = [name for name, key in IN_LOSS.items() if any(sample.get(key) is not None for sample in samples)]

    def rows() -> Iterator[Sample]:
        for number, sample in enumerate(samples):
            lists: dict[str, Array] = {}
            n_tokens = length(sample, "response_length", f"sample {number}")
            for name, key in IN_LOSS.items():
                if sample.get(key) is None:
                    continue
                if not is_tensor(sample[key]):
                    raise DataError(f"{key} of sample {number} is not a tensor.", HINT)
                lists[name] = file.array(sample[key])
                if lists[name].shape != (n_tokens,):
                    what = f"sample {number} has {lists[name].size:,} {key} for a response of {n_tokens:,} tokens."
                    raise DataError(what, OF_A_SLICE)
            yield {"worker": rank, "call": call, "sample_id": f"{rank}.{call}.{number}", **lists}

    log_probs = {name: pa.list_(pa.float32()) for name in IN_LOSS if name != "response_mask"}
    return OpenedDump(
        columns=[*columns, "sample_id", "worker", "call"], samples=rows, types={**log_probs, "call": pa.int64()}
    )


LISTS = {"token_ids": "tokens", "response_mask": "loss_mask", "rollout_log_probs": "rollout_log_probs"}
DASHBOARD_TYPES = {"rollout_log_probs": pa.list_(pa.float32()), "token_ids": pa.list_(pa.int32())}
IGNORES_REMOVED = "miles' dashboard does not record remove_sample: sequences that training left out count."
ROLLOUT_ALONE = (
    "The dashboard's columns are of the rollout alone. Name rollout_data/{id}.pt and train_data/{id}_{rank}.pt, which "
    "--dump-details has written beside it, unless there is --no-dump-train-data."
)
DASHBOARD_ROWS = 64
"""Rows of the dashboard's that are read at once."""


def open_dashboard(paths: Sequence[str]) -> OpenedDump:
    """A step's columns for the dashboard."""
    (path,) = paths
    with parquet_file(path) as file:
        absent = [name for name in DASHBOARD_COLUMNS if name not in file.schema_arrow.names]
    if absent:
        raise DataError(f"it has no column {absent[0]}, which miles' dashboard has.", HINT)
    step = DASHBOARD_NAME.search(path)
    columns = ["rollout_log_probs", "response_mask", "token_ids", *(("step",) if step else ()), "sample_id"]

    def rows() -> Iterator[Sample]:
        with parquet_file(path) as file:
            for batch in file.iter_batches(DASHBOARD_ROWS, columns=list(DASHBOARD_COLUMNS), use_threads=False):
                for row in _rows(batch):
                    yield {**row, "step": int(step[1]) if step else None}

    return OpenedDump(
        columns=columns,
        samples=rows,
        types=DASHBOARD_TYPES,
        notes=(IGNORES_REMOVED,),
        missing_policy_hint=ROLLOUT_ALONE,
    )


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    indices, lengths = (batch.column(key).to_pylist() for key in DASHBOARD_COLUMNS[:2])
    for index, n_tokens, lists in zip(indices, lengths, rows_of_lists(batch, LISTS.values()), strict=True):
        row: dict[str, Any] = {"sample_id": index, **{name: lists[key] for name, key in LISTS.items()}}
        tokens = row["token_ids"]
        if not isinstance(n_tokens, int) or tokens is None or not 0 <= n_tokens <= len(tokens):
            raise DataError(f"a response_length is {n_tokens}, and its tokens are fewer, or none.", HINT)
        row["token_ids"] = tokens[len(tokens) - n_tokens :]
        if row["response_mask"] is None:
            row["response_mask"] = np.ones(n_tokens, np.int8)
        yield row


def dashboards(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Each alone; evaluations only where there is nothing else."""
    trained = [path for path in paths if not re.search(r"rollout_eval_[^/]*$", path)]
    return each_alone(trained or paths)
