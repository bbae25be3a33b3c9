"""measure(): the one place where io and core meet.

Shards go through an engine; each becomes a small Measured, and Measureds add.  What the totals mean (groups, batch
means, metrics, notes) is `report.py`'s.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rlcorr_cli.batch import GroupKey, Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.core.observe import Observation, layout_of, observe
from rlcorr_cli.engine import LocalEngine
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.readers import read
from rlcorr_cli.summary import Layout, Replicates, Summary

Progress = Callable[[int, int], None]
"""Called after each shard with its tokens and bytes."""


@dataclass(frozen=True)
class Measured:
    """Totals of any number of shards: summaries by leaf key, bootstrap replicates, rows per input path."""

    leaves: Mapping[GroupKey, Summary] = field(default_factory=dict[GroupKey, Summary])
    replicates: Replicates | None = None
    rows: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: "Measured") -> "Measured":
        leaves = dict(self.leaves)
        for key, summary in other.leaves.items():
            leaves[key] = leaves[key] + summary if key in leaves else summary
        replicates = self.replicates
        if replicates is None or other.replicates is None:
            replicates = replicates or other.replicates
        else:
            replicates = replicates + other.replicates
        return Measured(leaves, replicates, dict(Counter(self.rows) + Counter(other.rows)))


@dataclass(frozen=True)
class Computing:
    """Where and in what portions to compute.  batch_tokens: None for the device's default."""

    device: str = "auto"
    threads: int = 1
    batch_tokens: int | None = None


def measure(
    dump: Dump, observation: Observation, computing: Computing, progress: Progress | None = None
) -> tuple[Measured, Layout]:
    """Stream the whole dump once; flat memory.  Returns its totals and their layout."""
    device = devices.resolve(computing.device)
    batch_tokens = computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type]
    engine = LocalEngine(computing.threads)

    def work(shard: Shard) -> Measured:
        result = Measured()
        with devices.worker(device):
            for batch in read(dump, shard, batch_tokens):
                engine.check()
                observed = observe(batch, observation, device)
                result = result + Measured(observed.groups, observed.replicates, {shard.path: batch.n_rows})
        return result

    total = Measured()
    for shard, result in zip(dump.shards, engine.map(dump.shards, work), strict=True):
        total = total + result
        if progress is not None:
            progress(int(sum(s.sums[s.layout.sums.index("tokens")] for s in result.leaves.values())), shard.n_bytes)
    return total, layout_of(observation)
