"""Core compute on one device, with the batch already there.

    python tests/benchmarks/core.py [--device cuda] [--tokens 50000000]

Times `observe` of one big batch whose float32 log-probs lie on the device.  To leave the copy out, the one function
that copies (`Device.floats` in rlcorr_cli.measure.arrays) is replaced by one that only widens what is there already, as
the real one does after its copy.  What the host does in `observe` (hashes and draws of the bootstrap, folding) counts.

Prints JSON: seconds (median), seconds without the bootstrap, bytes (two float32 per token), and the device's copy
bandwidth in bytes per second, read and written.  {"device": null} where there is no such device.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from make_dump import Rows, row_groups
from numpy.typing import NDArray

from rlcorr_cli.measure.arrays import Array, Device
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.reading.batch import Batch

PRESET = "decoupled_token_is"
MEAN_TOKENS = 1009
COPY_BYTES = 1 << 30
REPEATS = 7


def build(n_tokens: int) -> Batch:
    """One batch of about n_tokens tokens, nothing masked."""
    groups = list(row_groups(max(1, n_tokens // MEAN_TOKENS)))
    lengths = _join(groups, "lengths")
    n_rows = len(lengths)
    return Batch(
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        old_logp=_join(groups, "train"),
        rollout_logp=_join(groups, "rollout"),
        current_logp=None,
        advantages=None,
        n_masked=np.zeros(n_rows, np.int64),
        reward=_join(groups, "reward").astype(np.float64),
        group_index=np.zeros(n_rows, np.int32),
        group_keys=((None,),),
    )


def measure(batch: Batch, plan: Plan, device: Device) -> dict[str, Any]:
    """The numbers of the module's docstring."""
    resident = {id(values): device.put(values) for values in (batch.old_logp, batch.rollout_logp)}

    def widen(_: Device, values: NDArray[Any]) -> Array:
        there = resident.get(id(values))
        return device.put(values).double() if there is None else there.double()

    with patch.object(Device, "floats", widen):
        seconds = median_seconds(lambda: observe(batch, Observation(plans=(plan,)), device), device)
        plain = median_seconds(lambda: observe(batch, Observation(plans=(plan,), seed=None), device), device)
    return {
        "device": torch.cuda.get_device_name(device.in_library) if device.type == "cuda" else device.type,
        "seconds": seconds,
        "seconds_without_bootstrap": plain,
        "tokens": batch.n_tokens,
        "bytes": 2 * 4 * batch.n_tokens,
        "copy_bandwidth": copy_bandwidth(device),
    }


def copy_bandwidth(device: Device) -> float:
    """Bytes read and written per second by a copy of a big tensor."""
    source = torch.zeros(COPY_BYTES // 4, device=device.in_library)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / median_seconds(lambda: target.copy_(source), device)


def median_seconds(work: Callable[[], object], device: Device) -> float:
    """Of REPEATS runs, after one that warms up."""
    return statistics.median([_seconds(work, device) for _ in range(REPEATS + 1)][1:])


def _seconds(work: Callable[[], object], device: Device) -> float:
    _synchronize(device)
    started = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - started


def _synchronize(device: Device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device.in_library)


def _join(groups: list[Rows], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(rows, name) for rows in groups])


def main() -> None:
    """Print the measurement, or that there is no such device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1; torch: torch on a CPU, which tries the path")
    parser.add_argument("--tokens", type=int, default=50_000_000)
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print(json.dumps({"device": None}))
        return
    print(json.dumps(measure(build(args.tokens), PRESETS[PRESET].plan, Device(args.device))))


if __name__ == "__main__":
    main()
