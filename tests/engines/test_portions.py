"""A GPU that is full: work goes on in batches of half the tokens, and says so."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from plain import plain

from rlcorr_cli.engines.in_order import ThreadEngine
from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.runs.analyze import MeasureShard, opened, provenance_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import (
    LEAST_TOKENS,
    Reading,
    ReadingNotes,
    RetriedSmaller,
    RetriedSmallerStream,
    ShardReading,
    ShardResult,
)
from rlcorr_cli.totals.measured import Measured

BF16 = Path(__file__).parents[2] / "sample_data" / "smollm2_bf16.parquet"
CHOSEN = ChosenPlan(plan=preset("geo_rs").plan)


@pytest.fixture(scope="module")
def dump() -> Dump:
    return opened(ReadRequest(paths=(str(BF16),)), CHOSEN)


def reading(dump: Dump, batch_tokens: int, *, alone: bool = True) -> ShardReading:
    """As it is on a GPU, where each shard is read by itself."""
    of_cpu = ShardReading.of(dump, Computing("cpu", batch_tokens, ThreadEngine(1)))
    assert of_cpu.state is not None
    return ShardReading(
        reader=of_cpu.reader,
        state=None if alone else of_cpu.state,
        device=of_cpu.device,
        batch_tokens=of_cpu.batch_tokens,
    )


@dataclass(frozen=True, kw_only=True)
class OnSmallGpu:
    """Work whose GPU is full in the middle of a shard where batches are larger than it."""

    work: MeasureShard
    reading: ShardReading
    gpu_tokens: int

    def __call__(self, shard: Shard) -> ShardResult[object]:
        rows = list(self.reading.sound_rows(shard, ReadingNotes()))
        assert rows
        if self.reading.batch_tokens > self.gpu_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.work(shard)


def work(dump: Dump, of: ShardReading) -> MeasureShard:
    observation = Observation(plans=(CHOSEN.plan,))
    provenance = provenance_of(dump, observation, {})
    return MeasureShard(reading=of, observation=observation, budget_bounds={}, provenance=provenance)


def test_a_shard_is_begun_anew_in_smaller_batches(dump: Dump, caplog: pytest.LogCaptureFixture) -> None:
    of_gpu = reading(dump, 4 * LEAST_TOKENS)
    small = OnSmallGpu(work=work(dump, of_gpu), reading=of_gpu, gpu_tokens=LEAST_TOKENS)
    with caplog.at_level(logging.WARNING):
        ((_, found),) = Reading.alone(dump, Computing("cpu", engine=ThreadEngine(1))).each(small)
    ((_, expected),) = Reading.alone(dump, Computing("cpu", engine=ThreadEngine(1))).each(small.work)
    assert isinstance(found, Measured)
    assert found.covered == expected.covered
    assert plain(found.whole) == plain(expected.whole)
    assert plain(found.totals) == plain(expected.totals)
    assert [record.getMessage() for record in caplog.records] == [
        f"The GPU's memory ran out at batches of {tokens} tokens: half as many are taken."
        for tokens in ("65,536", "32,768")
    ]


@pytest.mark.parametrize("alone", [True, False], ids=["too small a GPU", "rows that shards know together"])
def test_what_cannot_be_helped_is_told(dump: Dump, alone: bool) -> None:
    of_gpu = reading(dump, LEAST_TOKENS if alone else 4 * LEAST_TOKENS, alone=alone)
    small = OnSmallGpu(work=work(dump, of_gpu), reading=of_gpu, gpu_tokens=0 if alone else LEAST_TOKENS)
    with pytest.raises(DataError, match="The GPU's memory ran out") as caught:
        RetriedSmaller(small)(dump.shards[0])
    assert "--device cpu" in caught.value.hint


@dataclass(frozen=True, kw_only=True)
class StreamOnSmallGpu:
    """Work whose GPU is full before its result of that number, where batches are larger than it."""

    reading: ShardReading
    full_at: int

    def __call__(self, shard: Shard) -> Iterator[int]:
        for i in range(3):
            if i == self.full_at and self.reading.batch_tokens > LEAST_TOKENS:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            yield i


def test_a_stream_is_begun_anew_while_nothing_of_it_is_out(dump: Dump) -> None:
    of_gpu = reading(dump, 2 * LEAST_TOKENS)
    stream = RetriedSmallerStream(StreamOnSmallGpu(reading=of_gpu, full_at=0))
    assert list(stream(dump.shards[0])) == [0, 1, 2]
    results = RetriedSmallerStream(StreamOnSmallGpu(reading=of_gpu, full_at=2))(dump.shards[0])
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(DataError, match="The GPU's memory ran out"):
        next(results)


def test_each_gpu_is_seen_by_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices.visible_gpus(3) == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-8932f937,6")
    assert devices.visible_gpus(2) == ["4", "GPU-8932f937"]
    assert devices.gpus("cpu") == devices.gpus("cuda:1") == 0
