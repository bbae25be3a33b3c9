"""A group's key begins with its training batch for every plan, so that one reading serves plans with and without."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting
from rlcorr_cli.reading.bad_rows import BadRowCounts
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.build import report_of
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.runs.analyze import measure, opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.reading import Reading

STEPS = str(Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet")
CPU = Computing("cpu")
NORMALIZED = Plan("normalized", weighting=Weighting("token", Bounds(None, 1.5), normalize="batch"))
BUDGETED = Plan("budgeted", budgets=(Budget(1e-4),))
UNBATCHED = Plan("unbatched", rejections=(Rejection("ratio", "seq_mean", Bounds(0.999, 1.001), "geometric"),))
PLANS = (NORMALIZED, BUDGETED, UNBATCHED)


def dump_for(plan: Plan, group_by: tuple[str, ...]) -> Dump:
    return opened(ReadRequest(paths=(STEPS,), group_by=group_by), ChosenPlan(plan=plan))


def reports(dump: Dump, *plans: Plan) -> list[dict[str, Any]]:
    """Each plan's report of one reading with all of them."""
    bounds = {name: of for plan in plans for name, of in search_budgets(dump, plan, CPU).bounds.items()}
    measured = measure(Reading.alone(dump, CPU), Observation(plans=plans), bounds=bounds)
    inputs, problems = tuple(dump.inputs(measured.rows)), BadRowCounts()
    runs = [
        RunTotals(measured=measured, plan=plan, profile="canonical", inputs=inputs, notes=(), problems=problems)
        for plan in plans
    ]
    return [report_of(run).to_dict() for run in runs]


def assert_same(found: Any, expected: Any) -> None:
    """Numbers to the last digits, which the order of adding up decides."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
    if isinstance(expected, dict | list):
        names = expected if isinstance(expected, dict) else range(len(expected))
        assert len(found) == len(expected)
        for name in names:
            assert_same(found[name], expected[name])
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
    else:
        assert found == expected


@pytest.mark.parametrize("group_by", [(), ("step",), ("group_id", "step")], ids=["whole", "step", "two columns"])
def test_plans_with_and_without_batches_report_together_what_each_does_alone(group_by: tuple[str, ...]) -> None:
    assert dump_for(NORMALIZED, group_by).roles.batch == "step"
    assert dump_for(UNBATCHED, group_by).roles.batch is None
    together = reports(dump_for(NORMALIZED, group_by), *PLANS)
    alone = [reports(dump_for(plan, group_by), plan)[0] for plan in PLANS]
    assert len({json.dumps(report["metrics"]) for report in together}) == len(PLANS)
    for found, expected in zip(together, alone, strict=True):
        found["inputs"] = expected["inputs"]  # a plan without batches reads no column of them
        assert_same(found, expected)


def test_a_budget_is_not_searched_in_more_groups_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcorr_cli.totals.measured.MOST_GROUPS", 4)
    with pytest.raises(UsageError, match="over 4 groups by step, more"):
        search_budgets(dump_for(BUDGETED, ()), BUDGETED, CPU)
