"""miles' dashboard_columns: a rollout's columns as Parquet, which know nothing of remove_sample.

Apart from `miles`, because every Parquet file is asked whether it is one: that must not load what reads torch files.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import HINT
from rlcorr_cli.storage.parquet_files import parquet_file

COLUMNS = ("sample_index", "response_length", "total_length", "tokens", "loss_mask", "rollout_log_probs")
NAME = re.compile(r"rollout_(?:eval_)?(\d{1,18})\.[^/]*$")
LISTS = {"tokens": "token_ids", "loss_mask": "response_mask", "rollout_log_probs": "rollout_log_probs"}
TYPES = {"rollout_log_probs": pa.list_(pa.float32()), "token_ids": pa.list_(pa.int32())}
IGNORES_REMOVED = "miles' dashboard does not record remove_sample: sequences that training left out count."
LACKS = (
    "The dashboard's columns are of the rollout alone. Name rollout_data/{id}.pt and train_data/{id}_{rank}.pt, which "
    "--dump-details has written beside it."
)
BATCH = 64
"""Rows of the dashboard's that are read at once."""


def recognise(start: FileStart) -> str | None:
    """By its columns, in their order; only a file that is called as miles calls it is opened for them."""
    named = NAME.search(start.path)
    return f"columns {', '.join(COLUMNS)}" if named and start.columns == COLUMNS else None


def open_dashboard(paths: Sequence[str]) -> OpenedDump:
    """A step's columns for the dashboard."""
    (path,) = paths
    with parquet_file(path) as file:
        absent = [name for name in COLUMNS if name not in file.schema_arrow.names]
    if absent:
        raise DataError(f"it has no column {absent[0]}, which miles' dashboard has.", HINT)
    step = NAME.search(path)
    columns = ["rollout_log_probs", "response_mask", "token_ids", *(("step",) if step else ()), "sample_id"]

    def rows() -> Iterator[Sample]:
        with parquet_file(path) as file:
            for batch in file.iter_batches(BATCH, columns=list(COLUMNS), use_threads=False):
                for row in _rows(batch):
                    yield {**row, "step": int(step[1]) if step else None}

    return OpenedDump(columns=columns, samples=rows, types=TYPES, notes=(IGNORES_REMOVED,), missing_policy_hint=LACKS)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    flat = {key: _flat(batch.column(key), key) for key in LISTS}
    for i, (index, length) in enumerate(zip(*(batch.column(key).to_pylist() for key in COLUMNS[:2]), strict=True)):
        row: dict[str, Any] = {"sample_id": index}
        for key, name in LISTS.items():
            values, offsets, valid = flat[key]
            row[name] = values[offsets[i] : offsets[i + 1]] if valid[i] else None
        tokens = row["token_ids"]
        if not isinstance(length, int) or tokens is None or not 0 <= length <= len(tokens):
            raise DataError(f"a response_length is {length}, and its tokens are fewer, or none.", HINT)
        row["token_ids"] = tokens[len(tokens) - length :]
        if row["response_mask"] is None:
            row["response_mask"] = np.ones(length, np.int8)
        yield row


def _flat(lists: pa.Array, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values of lists, where each begins and ends, and which are not null."""
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise DataError(f"its {key} is {lists.type}, not a list.", HINT)
    floats = pa.types.is_floating(lists.type.value_type)
    if not floats and (lists.values.null_count or not pa.types.is_integer(lists.type.value_type)):
        raise DataError(f"its {key} hold nulls, or something else than numbers.", HINT)
    # By DLPack, because pyarrow's own `to_numpy` imports pandas where it is installed, which takes half a second.
    values = np.from_dlpack(lists.values.fill_null(np.nan) if floats else lists.values)
    return values, np.from_dlpack(lists.offsets), np.array(lists.is_valid().to_pylist(), np.bool_)


def files_of_a_step(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Each alone; evaluations only where there is nothing else."""
    trained = [path for path in paths if not re.search(r"rollout_eval_[^/]*$", path)]
    return [(path,) for path in trained or paths]
