"""verl's own rollout-correction helper over a dump, in padded batches.

    python tests/benchmarks/peer_verl.py SITE FILE

SITE holds verl as `pip install --no-deps --target` left it.  The helper (verl/trainer/ppo/rollout_corr_helper.py) and
the masked means it calls (verl/utils/torch_functional.py) are verl's files, unchanged.  What they import and never
use in this work is stubbed: tensordict, transformers, verl's devices and configs, and the packages' __init__ files,
which load ray and more.  DataProto, which only wraps the weights, is stubbed as a plain dict, at no cost to verl.

Prints JSON: seconds (decode, padding, helper; imports excluded) and the first batch's metrics.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

BATCH_ROWS = 128
READ_ROWS = 16 * BATCH_ROWS  # about a row group: pyarrow's default of 65,536 rows reads five times slower
COLUMNS = ("old_log_probs", "rollout_log_probs", "response_mask")
PACKAGES = ("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo")
STUBS: dict[str, dict[str, Any]] = {
    "tensordict": {"TensorDict": object},
    "transformers": {"PreTrainedTokenizer": object},
    "verl.utils.device": {"get_device_name": None, "get_torch_device": None},
    "verl.protocol": {"DataProto": type("DataProto", (), {"from_dict": staticmethod(lambda tensors: tensors)})},
    "verl.trainer.config.algorithm": {"RolloutCorrectionConfig": dict},
    "verl.workers.config.actor": {"PolicyLossConfig": dict},
}

Helper = Callable[..., tuple[Any, Tensor, dict[str, float]]]


def load_helper(site: Path) -> Helper:
    """verl's compute_rollout_correction_and_rejection_mask."""
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(site.joinpath(*name.split(".")))]
        sys.modules[name] = package
    for name, contents in STUBS.items():
        stub = ModuleType(name)
        vars(stub).update(contents)
        sys.modules[name] = stub
    from verl.trainer.ppo import rollout_corr_helper  # verl is read from a checkout

    return rollout_corr_helper.compute_rollout_correction_and_rejection_mask


def padded_batches(path: str) -> Iterator[dict[str, Tensor]]:
    """BATCH_ROWS rows at a time, each column [rows, longest], zeros after each row's end."""
    for records in pq.ParquetFile(path).iter_batches(READ_ROWS, columns=list(COLUMNS)):
        for first in range(0, records.num_rows, BATCH_ROWS):
            cut = records.slice(first, BATCH_ROWS)
            yield {name: pad(cut.column(name)) for name in COLUMNS}


def pad(lists: pa.ListArray) -> Tensor:
    """Without a loop over rows, which is kind to the peer.  Masks become int64, verl's own type for them."""
    lengths = lists.value_lengths().to_numpy()
    values = lists.flatten().to_numpy()
    wide = np.zeros((len(lengths), int(lengths.max())), np.int64 if values.dtype.kind == "i" else values.dtype)
    wide[np.arange(wide.shape[1]) < lengths[:, None]] = values
    return torch.from_numpy(wide)


def measure(helper: Helper, path: str) -> dict[str, Any]:
    """Token-level truncated IS at 2.0, over the whole dump."""
    metrics: list[dict[str, float]] = []
    started = time.perf_counter()
    for batch in padded_batches(path):
        old, rollout, mask = (batch[name] for name in COLUMNS)
        metrics.append(helper(old, rollout, mask, rollout_is="token", rollout_is_threshold=2.0)[2])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "first": {key.removeprefix("rollout_corr/"): v for key, v in metrics[0].items()}}


if __name__ == "__main__":
    print(json.dumps(measure(load_helper(Path(sys.argv[1])), sys.argv[2])))
