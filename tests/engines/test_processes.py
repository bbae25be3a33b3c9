"""Work in other processes gives what it gives in threads: an engine decides only where it runs."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain import assert_same_totals, plain

from rlcorr_cli.engines.in_order import ThreadEngine
from rlcorr_cli.engines.processes import ProcessEngine
from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.written import Target
from rlcorr_cli.runs.analyze import measure, opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.filter_passes import FilteredRows, filter_work, filtered_rows
from rlcorr_cli.runs.inspect import InspectShard
from rlcorr_cli.runs.reading import Reading, ShardReading
from rlcorr_cli.totals.measured import Measured

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import warm as warm

R = TypeVar("R")
N = 60
BATCH_TOKENS = 64


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    with closing(ProcessEngine(2)) as engine:
        yield engine


@pytest.fixture
def processes(engine: ProcessEngine, warm: None) -> ProcessEngine:
    return engine


def row(i: int, rng: np.random.Generator) -> dict[str, Any]:
    """Every fifteenth is bad."""
    rollout = -rng.exponential(1.0, rng.integers(0, 30))
    old = np.minimum(rollout + rng.normal(0, 0.2, len(rollout)), 0)
    if i % 15 == 14:
        rollout = np.append(rollout, 0.5)
        old = np.append(old, -0.5)
    return {
        "rollout_log_probs": rollout.tolist(),
        "old_log_probs": old.tolist(),
        "response_mask": rng.integers(0, 2, len(rollout)).tolist() if i % 15 != 14 else [1] * len(rollout),
        "reward": float(rng.normal()),
        "step": int(i) // 20,
        "prompt": f"p{i}",
    }


@pytest.fixture(params=["parquet", "jsonl"])
def dump(request: pytest.FixtureRequest, tmp_path: Path) -> Dump:
    rng = np.random.default_rng(7)
    for part in range(3):
        rows, path = [row(part * N + i, rng) for i in range(N)], tmp_path / f"{part}.{request.param}"
        if request.param == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(values) + "\n" for values in rows))
    bad_rows = BadRowPolicy(action="quarantine", max_fraction=1.0)
    chosen = ChosenPlan(plan=preset("geo_rs").plan)
    return opened(ReadRequest(paths=(str(tmp_path),), group_by=("step",), bad_rows=bad_rows), chosen)


def process_of(shard: Shard) -> int:
    return os.getpid()


def test_the_work_is_done_in_other_processes(dump: Dump, processes: ProcessEngine) -> None:
    assert os.getpid() not in set(processes.map(dump.shards, process_of))


def computings(processes: ProcessEngine) -> tuple[Computing, Computing]:
    return Computing("cpu", BATCH_TOKENS, ThreadEngine(2)), Computing("cpu", BATCH_TOKENS, processes)


def assert_same(there: Measured, here: Measured) -> None:
    """Counts exactly, sums to their last digits."""
    assert there.rows == here.rows
    assert_same_totals(there.totals, here.totals, rtol=1e-12)
    assert there.totals is not None
    assert here.totals is not None
    sums, others = here.totals.tables["sum"].values, there.totals.tables["sum"].values
    counts = sums == np.rint(sums)
    assert counts.sum() > 2
    assert others[counts].tolist() == sums[counts].tolist()
    assert plain(there.whole) == plain(here.whole)


def test_processes_measure_what_threads_measure(dump: Dump, processes: ProcessEngine) -> None:
    observation = Observation(plans=(preset("geo_rs").plan,), pictures=True)
    results, logs = [], []
    for computing in computings(processes):
        reading = Reading.alone(dump, computing)
        results.append(measure(reading, observation, bounds={}))
        logs.append(reading.log.counts)
    here, there = results
    assert_same(there, here)
    assert sum(here.rows.values()) == 3 * (N - N // 15)
    assert logs[0] == logs[1]
    assert logs[0].rows == {"above_zero": 3 * (N // 15)}


def written(rows: FilteredRows) -> list[dict[str, Any]]:
    assert rows.written is not None
    return rows.written.as_objects()


def test_processes_filter_the_same_rows(dump: Dump, processes: ProcessEngine) -> None:
    chosen = ChosenPlan(plan=preset("geo_rs").plan)
    results: list[list[FilteredRows]] = []
    for computing in computings(processes):
        work = filter_work(
            dump, chosen, Target(path=Path("out.parquet")), computing=computing, budget_bounds={}, writes=True
        )
        results.append(list(filtered_rows(Reading.alone(dump, computing), work)))
    here, there = results
    assert [written(batch) for batch in there] == [written(batch) for batch in here]
    kept = sum(len(written(batch)) for batch in here)
    assert 0 < kept < 3 * (N - N // 15)
    for one, other in zip(there, here, strict=True):
        assert one.stays.tolist() == other.stays.tolist()
        assert one.rejected == other.rejected
        assert_same(one.measured, other.measured)


def inspected(dump: Dump, processes: ProcessEngine) -> list[list[Any]]:
    """By threads, and by processes."""
    results: list[list[Any]] = []
    for computing in computings(processes):
        reading = Reading.alone(dump, computing)
        work = InspectShard(reading=ShardReading.of(dump, computing))
        results.append([(shard.path, inspection) for shard, inspection in reading.each(work)])
        results[-1].append(reading.log.counts)
    return results


def test_processes_inspect_what_threads_inspect(dump: Dump, processes: ProcessEngine) -> None:
    here, there = inspected(dump, processes)
    assert here == there


def test_a_worker_that_has_nothing_imported_inspects_what_threads_inspect(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"rollout_log_probs": [-1.0], "old_log_probs": [-1.5]}\n')
    dump = opened(ReadRequest(paths=(str(tmp_path),)), ChosenPlan(plan=preset("token_is").plan))
    with closing(ProcessEngine(1)) as engine:
        here, there = inspected(dump, engine)
    assert here == there


def test_an_id_in_two_files_is_found_by_processes_too(tmp_path: Path, processes: ProcessEngine) -> None:
    line = b'{"rollout_log_probs": [-1.0], "old_log_probs": [-1.5], "sample_id": "s7"}\n'
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(line)
    plan = preset("token_is").plan
    dump = opened(ReadRequest(paths=(str(tmp_path),)), ChosenPlan(plan=plan))
    for computing in computings(processes):
        with pytest.raises(DataError, match=r"sample_id s7 is there twice"):
            measure(Reading.alone(dump, computing), Observation(plans=(plan,)), bounds={})
