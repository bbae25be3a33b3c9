"""What is sent to a worker, and what comes back, survives the way there: it is pickled, and then does the same."""

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.written import Target
from rlcorr_cli.runs.analyze import MeasureShard, opened, provenance_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import BudgetCandidates, BudgetTotals, search_budgets
from rlcorr_cli.runs.filter_passes import filter_work
from rlcorr_cli.runs.inspect import InspectShard
from rlcorr_cli.runs.reading import ShardReading
from rlcorr_cli.totals.earlier_readings import crossing

N = 40


def sent(value: Any) -> Any:
    """The value as another process would have it."""
    return pickle.loads(pickle.dumps(value))


def row(i: int) -> dict[str, Any]:
    """Every tenth is bad."""
    top = 0.5 if i % 10 == 9 else -0.5
    return {
        "sample_id": f"s{i}",
        "rollout_log_probs": [top, -1.0 - i / 7],
        "old_log_probs": [-0.25, -1.0 - i / 9],
        "response_mask": [1, 1],
    }


@dataclass(frozen=True)
class Case:
    """A dump on disk under a plan."""

    dump: Dump
    chosen: ChosenPlan
    observation: Observation

    @property
    def shard(self) -> Shard:
        return self.dump.shards[0]

    def reading(self) -> ShardReading:
        return ShardReading.of(self.dump, Computing("cpu", 16))


@pytest.fixture(params=["parquet", "jsonl"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    path = tmp_path / f"d.{request.param}"
    rows = [row(i) for i in range(N)]
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    chosen = ChosenPlan(plan=preset("m2po").plan)
    bad_rows = BadRowPolicy(action="quarantine", max_fraction=1.0)
    dump = opened(ReadRequest(paths=(str(path),), bad_rows=bad_rows), chosen)
    return Case(dump, chosen, Observation(plans=(chosen.plan,), pictures=True))


def works(case: Case) -> Iterator[Callable[[Shard], Any]]:
    """One of each kind that is sent."""
    plan = case.chosen.plan
    totals = BudgetTotals(reading=case.reading(), plan=plan)
    yield totals
    bounds = {budget.name: budget.mean_below for budget in plan.budgets}
    crossings = {key: crossing(total, bounds[key.budget]) for key, total in totals(case.shard).value.items()}
    yield BudgetCandidates(reading=case.reading(), plan=plan, crossings=crossings)
    budget_bounds = search_budgets(case.dump, plan, Computing("cpu")).bounds
    provenance = provenance_of(case.dump, case.observation, budget_bounds)
    yield MeasureShard(
        reading=case.reading(), observation=case.observation, budget_bounds=budget_bounds, provenance=provenance
    )
    yield InspectShard(reading=case.reading())
    target, computing = Target(path=Path("out.parquet")), Computing("cpu", 16)
    yield filter_work(case.dump, case.chosen, target, computing=computing, budget_bounds=budget_bounds, writes=True)


def plain(result: Any) -> Any:
    """What a worker made, used up if it streams, as bytes to compare."""
    return pickle.dumps(sent(list(result) if isinstance(result, Iterator) else result))


def test_work_that_was_sent_does_what_it_does_here(case: Case) -> None:
    kinds = list(works(case))
    assert len({type(work) for work in kinds}) == 5
    for work in kinds:
        there, shard = sent(work), sent(case.shard)  # before it runs here: a reading remembers the ids it met
        assert plain(there(shard)) == plain(work(case.shard)), type(work)
