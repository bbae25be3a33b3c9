"""miles: slime's files with more in them, and what its loss saw; `miles_dashboard` has its dashboard's columns.

policy_loss_debug/rank_{rank}_call_{call}.pt has three policies of a micro batch, over the response, without tokens; its
old_log_probs are the trainer's before the update and train_log_probs those in the loss.  A sequence has no id there but
its place in the micro batch, which comes again in every file: sample_id is rank.call.place.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.slime_files import SlimeFile
from rlcorr_cli.layouts.tensors import TENSORS, is_tensor
from rlcorr_cli.layouts.torch_files import TorchFile, opened, read_torch
from rlcorr_cli.layouts.values import HINT, length, mapping, sequence

IN_LOSS = {
    "rollout_log_probs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "current_log_probs": "train_log_probs",
    "advantages": "advantages",
    "response_mask": "local_loss_mask",
}


def recognise(start: FileStart) -> str | None:
    """By the first keys of its pickle and what only miles adds to them, or by a trajectory's keys."""
    file = SlimeFile(start)
    return file.sign if file.kind and file.of_miles else None


def recognise_policy_loss(start: FileStart) -> str | None:
    """By the first keys of its pickle."""
    keys = ("rank", "call", "samples")
    return f"torch file, keys {', '.join(keys)}" if start.words[:3] == keys else None


def open_policy_loss(paths: Sequence[str]) -> OpenedDump:
    """A micro batch as one rank's loss saw it."""
    (path,) = paths
    file = read_torch(opened(path), TENSORS)
    value = mapping(file.value, "its pickle")
    rank, call = length(value, "rank"), length(value, "call")
    samples = [mapping(sample, f"sample {i}") for i, sample in enumerate(sequence(value, "samples"))]
    columns = [name for name, key in IN_LOSS.items() if any(sample.get(key) is not None for sample in samples)]

    def rows() -> Iterator[Sample]:
        about = {"worker": rank, "call": call}
        for number, sample in enumerate(samples):
            yield {**about, "sample_id": f"{rank}.{call}.{number}", **_in_loss(file, sample, number)}

    log_probs = {name: pa.list_(pa.float32()) for name in IN_LOSS if name != "response_mask"}
    return OpenedDump(
        columns=[*columns, "sample_id", "worker", "call"], samples=rows, types={**log_probs, "call": pa.int64()}
    )


def _in_loss(file: TorchFile, sample: dict[Any, Any], number: int) -> dict[str, Any]:
    n_tokens = length(sample, "response_length", f"sample {number}")
    values: dict[str, Any] = {}
    for name, key in IN_LOSS.items():
        if sample.get(key) is None:
            continue
        if not is_tensor(sample[key]):
            raise DataError(f"{key} of sample {number} is not a tensor.", HINT)
        values[name] = file.array(sample[key])
        if values[name].shape != (n_tokens,):
            raise DataError(
                f"sample {number} has {values[name].size:,} {key} for a response of {n_tokens:,} tokens.",
                "It is a slice of context parallelism, whose place its file does not say; read train_data instead.",
            )
    return values
