"""measure() and analyze(): the one place where io and core meet.

Shards go through an engine; each becomes a small Measured, and Measureds add.  Leaf keys are the values of the
dump's key columns: the training batch first, where weights are normalised per batch, then the groups asked for.
What the totals mean is `report.py`'s.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from rlcorr_cli.batch import GroupKey, Input, Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.core.observe import Observation, layout_of, observe
from rlcorr_cli.engine import LocalEngine
from rlcorr_cli.io.dump import Dump, Request, open_dump
from rlcorr_cli.io.readers import read
from rlcorr_cli.plan import Plan
from rlcorr_cli.profiles.profile import Profile
from rlcorr_cli.report import Grouping, Report, build
from rlcorr_cli.summary import Layout, Replicates, Summary
from rlcorr_cli.thresholds import Thresholds

NO_COLUMN = "none"
"""What --batch-by takes for: the whole dump is one batch."""

Progress = Callable[[int, int], None]
"""Called after each shard with its tokens and bytes."""

Watch = Callable[[int], AbstractContextManager[Progress]]
"""Given the bytes to come, a context around the reading that yields a Progress."""


@dataclass(frozen=True)
class Measured:
    """Totals of any number of shards: summaries by leaf key, bootstrap replicates, rows per input path."""

    leaves: Mapping[GroupKey, Summary] = field(default_factory=dict[GroupKey, Summary])
    replicates: Replicates | None = None
    rows: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: "Measured") -> "Measured":
        return gather((self, other))


def gather(parts: Iterable[Measured]) -> Measured:
    """The sum of any number of Measureds, none included; one pass, whatever the number of leaves."""
    leaves: dict[GroupKey, Summary] = {}
    replicates: Replicates | None = None
    rows: Counter[str] = Counter()
    for part in parts:
        for key, summary in part.leaves.items():
            leaves[key] = leaves[key] + summary if key in leaves else summary
        if part.replicates is not None:
            replicates = part.replicates if replicates is None else replicates + part.replicates
        rows.update(part.rows)
    return Measured(leaves, replicates, dict(rows))


@dataclass(frozen=True)
class Reading:
    """Which dump, and how its rows are read and grouped.  columns: canonical -> column."""

    paths: tuple[str, ...]
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    group_by: tuple[str, ...] = ()
    batch_by: str | None = None


@dataclass(frozen=True)
class Computing:
    """Where and in what portions to compute.  batch_tokens: None for the device's default."""

    device: str = "auto"
    threads: int = 1
    batch_tokens: int | None = None


def computing(device: str, threads: int | None, batch_tokens: int | None) -> Computing:
    """Defaults: a thread for each core this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Computing(device, threads or cores, batch_tokens)


def analyze(
    reading: Reading,
    plan: Plan,
    profile: Profile | None = None,
    thresholds: Thresholds | None = None,
    computing: Computing | None = None,
    seed: int = 0,
    notes: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> Report:
    """Measure a dump once and report it.  notes: what the plan's reader already had to say."""
    started = time.perf_counter()
    thresholds = thresholds or Thresholds()
    dump, by_batch = opened(reading, plan, profile)
    observation = Observation(plan, thresholds, dump.roles.current is not None, seed)
    with watched(dump, watch) as progress:
        measured, _ = measure(dump, observation, computing or Computing(), progress)
    found = reported(dump, reading, observation, profile, measured, by_batch, notes)
    return replace(found, seconds=time.perf_counter() - started)


def opened(reading: Reading, plan: Plan, profile: Profile | None) -> tuple[Dump, bool]:
    """The dump, and whether its first key column is the training batch."""
    batch, lead = _batch_key(reading, plan, profile)
    keys = (*batch, *reading.group_by)
    dump = open_dump(reading.paths, Request(reading.format, reading.columns, plan.mode, keys, lead))
    return dump, len(dump.roles.keys) > len(reading.group_by)


def watched(dump: Dump, watch: Watch | None) -> AbstractContextManager[Progress | None]:
    """A context around reading the dump once."""
    return watch(sum(shard.n_bytes for shard in dump.shards)) if watch else nullcontext()


def reported(
    dump: Dump,
    reading: Reading,
    observation: Observation,
    profile: Profile | None,
    measured: Measured,
    by_batch: bool,
    notes: tuple[str, ...],
) -> Report:
    """The report of a dump that has been measured."""
    plan, settings = observation.plan, _settings(observation.thresholds, observation.seed)
    said = (*dump.notes, *notes, *_batch_notes(reading, plan, dump, measured, by_batch), *settings)
    inputs = [
        Input(source.path, source.format, measured.rows.get(source.path, 0), source.n_bytes, dump.columns)
        for source in dump.sources
    ]
    grouping = Grouping(by_batch, reading.group_by)
    return build(measured.leaves, layout_of(observation), measured.replicates, grouping, plan, profile, inputs, said)


def measure(
    dump: Dump, observation: Observation, computing: Computing, progress: Progress | None = None
) -> tuple[Measured, Layout]:
    """Stream the whole dump once; flat memory.  Returns its totals and their layout."""
    device = devices.resolve(computing.device)
    batch_tokens = computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type]
    engine = LocalEngine(computing.threads)
    layout = layout_of(observation)
    tokens = layout.sums.index("tokens")

    def batches(shard: Shard) -> Iterable[Measured]:
        for batch in read(dump, shard, batch_tokens):
            engine.check()
            observed = observe(batch, observation, device)
            yield Measured(observed.groups, observed.replicates, {shard.path: batch.n_rows})

    def work(shard: Shard) -> Measured:
        with devices.worker(device):
            return gather(batches(shard))

    def results() -> Iterable[Measured]:
        for shard, result in zip(dump.shards, engine.map(dump.shards, work), strict=True):
            if progress is not None:
                progress(int(sum(leaf.sums[tokens] for leaf in result.leaves.values())), shard.n_bytes)
            yield result

    return gather(results()), layout


def _batch_key(reading: Reading, plan: Plan, profile: Profile | None) -> tuple[tuple[str, ...], str | None]:
    """The batch column to read before the groups': the one asked for, or `step` where there is one.

    A peer's function knows no steps, so with a profile the whole dump is one batch unless a column is named.
    """
    if not plan.normalizes or reading.batch_by == NO_COLUMN:
        return (), None
    if reading.batch_by is not None:
        return (reading.batch_by,), None
    return (), None if profile else "step"


def _batch_notes(reading: Reading, plan: Plan, dump: Dump, measured: Measured, by_batch: bool) -> list[str]:
    if not plan.normalizes:
        return [] if reading.batch_by is None else ["--batch-by changes nothing: the plan does not normalize weights."]
    if by_batch:
        batches = len({key[0] for key in measured.leaves})
        found = "one value" if batches == 1 else f"{batches:,} values"
        return [f"Weights are divided by the mean of their own batch: {found} of {dump.roles.keys[0]}."]
    return ["Weights are divided by the mean over the whole dump, as one batch; --batch-by COLUMN makes batches."]


def _settings(thresholds: Thresholds, seed: int | None) -> list[str]:
    """What was set away from its default and no other part of a report says."""
    default = Thresholds()
    said = (
        (thresholds.extreme_ratio != default.extreme_ratio, f"extreme ratio {thresholds.extreme_ratio:g}"),
        (thresholds.ppo_clip != default.ppo_clip, f"PPO clip {thresholds.ppo_clip:g}"),
        (bool(seed), f"bootstrap seed {seed}"),
    )
    chosen = ", ".join(words for differs, words in said if differs)
    return [f"Set by option: {chosen}."] if chosen else []
