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
from rlcorr_cli.measure.arrays import CPU, Device
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.pipeline.analyze import MeasureShard, opened, provenance_of
from rlcorr_cli.pipeline.budget_search import BudgetCandidates, BudgetTotals, search_budgets
from rlcorr_cli.pipeline.filter_passes import filter_work
from rlcorr_cli.pipeline.inspect import InspectShard
from rlcorr_cli.pipeline.scan import Computing, ShardNotes, ShardReading
from rlcorr_cli.pipeline.scan import Computing, ShardReading
from rlcorr_cli.places import Place
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.bad_rows import BadRowCounts, BadRowPolicy, FirstBadRow
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.reading.row_places import resolved
from rlcorr_cli.reading.whole_rows import ArrowRows
from rlcorr_cli.report.filtered import Target
from rlcorr_cli.totals.budget_search import crossing

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
    bad_rows = BadRowPolicy("quarantine", max_fraction=1.0)
    dump = opened(ReadRequest(paths=(str(path),), bad_rows=bad_rows), chosen)
    return Case(dump, chosen, Observation(plans=(chosen.plan,), pictures=True))


def works(case: Case) -> Iterator[Callable[[Shard], Any]]:
    """One of each kind that is sent."""
    plan = case.chosen.plan
    totals = BudgetTotals(case.reading(), plan)
    yield totals
    bounds = {budget.name: budget.mean_below for budget in plan.budgets}
    crossings = {key: crossing(total, bounds[key.budget]) for key, total in totals(case.shard).value.items()}
    yield BudgetCandidates(case.reading(), plan, crossings)
    budget_bounds = search_budgets(case.dump, plan, Computing("cpu")).bounds
    provenance = provenance_of(case.dump, case.observation, budget_bounds)
    yield MeasureShard(
        reading=case.reading(), observation=case.observation, budget_bounds=budget_bounds, provenance=provenance
    )
    yield InspectShard(reading=case.reading(), n_worst=3, by="k3")
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


def test_sent_work_sets_the_same_rows_aside(case: Case) -> None:
    work = InspectShard(reading=case.reading(), n_worst=2, by="k3")
    result = sent(sent(work)(case.shard))
    counts = sum((set_aside.counts for set_aside in result.beside.set_aside), BadRowCounts())
    assert counts.rows == {"above_zero": N // 10}
    assert result.value.n_rows == N - N // 10
    assert len(result.value.tokens) == 2
    place = resolved(counts.first["above_zero"].place)
    assert place.text.endswith("row 9 (0-based)" if place.unit == "row" else "line 10")


def test_ids_that_were_met_are_sent_along(case: Case) -> None:
    reading, beside = case.reading(), ShardNotes()
    n_first = sum(rows.batch.n_rows for rows in reading.sound_rows(case.shard, beside))
    known = sent(beside).met
    assert n_first == N - N // 10 == len(known)
    assert not list(sent(replace(reading, known=known)).sound_rows(case.shard, ShardNotes()))


def test_a_decision_and_what_a_dump_is_read_by_are_plain_values(case: Case) -> None:
    assert sent(case.dump.reader) == case.dump.reader
    assert sent(case.dump.shards) == case.dump.shards
    assert sent(case.dump.sources) == case.dump.sources
    (rows,) = (rows for rows in case.reading().sound_rows(case.shard, ShardNotes()) if rows.places[0].number in (0, 1))
    budget_bounds = search_budgets(case.dump, case.chosen.plan, Computing("cpu")).bounds
    decision = observe(rows.batch, case.observation, case.reading().device, budget_bounds, decides=True).decision
    assert decision is not None
    assert sent(decision).n_kept.tolist() == decision.n_kept.tolist()
    assert sent(rows.places)[1] == rows.places[1]


def test_counts_of_bad_rows_add_after_they_were_sent() -> None:
    early = BadRowCounts({"sentinel": 1}, {"sentinel": FirstBadRow(Place("a.jsonl", "line", 3), "x is -9999")})
    late = BadRowCounts({"sentinel": 2}, {"sentinel": FirstBadRow(Place("b.jsonl", "line", 1), "y is -9999")}, 4)
    total = sent(early) + sent(late)
    assert total == early + late
    assert total.to_dict() == {"sentinel": {"rows": 3, "first": "a.jsonl, line 3: x is -9999"}}
    assert total.cleared == 4


def test_a_line_of_a_range_is_counted_from_the_files_start(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"{}\n\n{}\n{}\n{}\n")
    place = Place(str(path), "line", 2, start=7)  # of the range that begins with the fourth line
    assert resolved(sent(place)) == Place(str(path), "line", 5)
    assert resolved(place).text == f"{path}, line 5"


def test_a_few_rows_of_a_table_are_sent_without_the_others() -> None:
    table = pa.table({"lists": [[float(i)] * 50 for i in range(1000)], "text": [f"{i}" * 20 for i in range(1000)]})
    few = ArrowRows(table).part(500, 510)
    sent = pickle.dumps(few)
    assert len(sent) < 10_000
    assert pickle.loads(sent).table.equals(few.table)


def test_a_device_that_was_used_is_sent_to_workers() -> None:
    for device in (CPU, Device("torch")):
        assert device.xp.exp is not None
        assert pickle.loads(pickle.dumps(device)) == device
