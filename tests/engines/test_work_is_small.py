"""Work ships what its own shard needs, however many files the dump has."""

import pickle
from pathlib import Path

import pytest

from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.written import Target
from rlcorr_cli.runs.analyze import MeasureShard, opened, provenance_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.filter_passes import filter_work
from rlcorr_cli.runs.inspect import InspectShard
from rlcorr_cli.runs.reading import ShardReading

LINE = b'{"rollout_log_probs": [-1.0], "old_log_probs": [-1.5], "step": %d, "prompt": "p", "sample_id": "s%d"}\n'


def sizes(folder: Path, n_files: int) -> list[int]:
    """Bytes of each kind of work with one shard of a dump of so many files."""
    folder.mkdir()
    for i in range(n_files):
        (folder / f"part-{i:05d}.jsonl").write_bytes(LINE % (i, i))
    chosen = ChosenPlan(plan=preset("token_is").plan)
    dump = opened(ReadRequest(paths=(str(folder),)), chosen)
    assert len(dump.shards) == n_files
    reading, observation = ShardReading.of(dump, Computing("cpu")), Observation(plans=(chosen.plan,))
    provenance = provenance_of(dump, observation, {})
    works = (
        MeasureShard(reading=reading, observation=observation, budget_bounds={}, provenance=provenance),
        InspectShard(reading=reading),
        filter_work(
            dump, chosen, Target(path=Path("out.jsonl")), computing=Computing("cpu"), budget_bounds={}, writes=True
        ),
    )
    return [len(pickle.dumps((work, dump.shards[0]))) for work in works]


@pytest.mark.parametrize("n_files", [200])
def test_work_for_one_shard_does_not_grow_with_the_dump(tmp_path: Path, n_files: int) -> None:
    large, small = sizes(tmp_path / "x", n_files), sizes(tmp_path / "y", 2)
    assert max(large) < 20_000
    # The number of files may need some digits more in what counts them, and nothing else.
    assert all(abs(here - there) < 64 for here, there in zip(large, small, strict=True))
