"""What a driver does for each shard of a very large dump, simulated: recorded results of real shards, folded again and
again under other names, as they arrive from workers.

    python tests/benchmarks/many_shards.py [DUMP] [--shards N] [--dir DIR]

Prints bytes on the wire and milliseconds of the driver per shard, and its memory on the way: so when the driver becomes
the limit, and at how many shards a second.
"""

import argparse
import pickle
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from figures import Bench, default_directory

from rlcorr_cli.engines.in_order import OneResult
from rlcorr_cli.engines.processes import outcomes, packed, unpacked
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.runs.analyze import MeasureShard, opened, provenance_of, sampling_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import ShardReading, ShardResult
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.provenance import ShardId
from rlcorr_cli.totals.totals import ROWS
from rlcorr_cli.totals.view import diagnostics_block

RECORDED = 32


def recorded(dump: Dump, chosen: ChosenPlan) -> tuple[bytes, list[Shard], list[bytes]]:
    """The work as it is sent, some shards, and what comes back of each."""
    observation = Observation(plans=(chosen.plan,), seed=0)
    work = MeasureShard(
        reading=replace(ShardReading.of(dump, Computing("cpu")), state=None),
        observation=observation,
        budget_bounds={},
        provenance=provenance_of(dump, observation, {}),
        sampling=sampling_of(dump),
    )
    payload, shards = packed(OneResult(work)), list(islice(dump.shards, RECORDED))
    return payload, shards, [next(outcomes(payload, shard)) for shard in shards]


def arriving(messages: list[bytes], n: int) -> Iterator[Measured]:
    """What the driver makes of n messages, each of a shard of its own."""
    for i in range(n):
        result: ShardResult[Measured] = unpacked(messages[i % len(messages)])
        shard = ShardId(f"s3://bucket/run/step={i // 64}/part-{i:06d}.parquet", (0, 1))
        rows = sum(result.value.rows.values()) or _total(result.value, ROWS)
        yield replace(result.value, covered=frozenset({shard}), rows={shard.path: rows})


def _total(measured: Measured, name: str) -> int:
    """A sum over all groups."""
    return 0 if measured.totals is None else int(measured.totals.sum(name).sum())


def peak() -> float:
    """MB of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    """Record, fold, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", nargs="?", type=Path, help="of which shards are recorded; W1 without")
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, default=default_directory())
    asked = parser.parse_args()
    path = asked.dump or Bench(asked.dir, 1, "cpu", 0).dump("W1")
    chosen = ChosenPlan(plan=preset("decoupled_token_is").plan)
    dump = opened(ReadRequest(paths=(str(path),)), chosen)
    payload, shards, messages = recorded(dump, chosen)
    tokens = sum(
        _total(unpacked(message).value, f"{diagnostics_block(chosen.plan.mode)}.tokens") for message in messages
    )
    print(f"recorded: {len(shards)} shards of {tokens / len(shards):,.0f} tokens, {path.name}")
    print(f"sent to a worker: work {len(payload):,} bytes once, a shard {len(pickle.dumps(shards[0])):,} bytes")
    print(f"sent back: {statistics.median(map(len, messages)):,.0f} bytes a shard, at most {max(map(len, messages)):,}")
    gathering, started, before = MeasuredSum(), time.process_time(), peak()
    for i, part in enumerate(arriving(messages, asked.shards), 1):
        gathering.add(part)
        if i in (100, 1000, 10_000, asked.shards):
            each = (time.process_time() - started) / i
            print(f"{i:>9,} shards: {1000 * each:.2f} ms a shard, {1 / each:,.0f} a second, peak {peak():,.0f} MB")
    print(f"before the first: {before:,.0f} MB; covered at the end: {len(gathering.measured.covered):,} shards")


if __name__ == "__main__":
    main()
