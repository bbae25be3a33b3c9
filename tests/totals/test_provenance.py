"""Totals add only where they mean the same: one plan, one kind of settings, columns and groups, and no shard twice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.metrics.diagnostics import DiagnosticSettings
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting, veto
from rlcorr_cli.reading.request import NO_BATCH, ReadRequest
from rlcorr_cli.runs.analyze import measure, opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.reading import Reading
from rlcorr_cli.totals.measured import Measured
from rlcorr_cli.totals.provenance import Coverage, ShardId
from rlcorr_cli.totals.view import plan_block

SAMPLES = Path(__file__).parents[2] / "sample_data"
TOKEN = Plan(weighting=Weighting("token", Bounds(None, 2.0)))
CPU = Computing("cpu")


def measured(
    plan: Plan,
    dump: str = "smollm2_int8.parquet",
    *,
    thresholds: DiagnosticSettings | None = None,
    seed: int | None = None,
    pictures: bool = False,
    **request: Any,
) -> Measured:
    """A sample dump's totals, as a run has them."""
    read = ReadRequest(paths=(str(SAMPLES / dump),), **request)
    found = opened(read, ChosenPlan(plan=plan))
    observation = Observation(
        plans=(plan,),
        settings=thresholds or DiagnosticSettings(),
        seed=seed,
        pictures=pictures,
    )
    return measure(Reading.alone(found, CPU), observation, bounds=search_budgets(found, plan, CPU).bounds)


def refusal(a: Measured, b: Measured) -> str:
    with pytest.raises(UsageError) as refused:
        a + b
    return refused.value.message


def test_plans_of_other_bounds_do_not_add_though_their_names_are_equal() -> None:
    other = Plan(weighting=Weighting("token", Bounds(0.5, 9.0), "zero"))
    a, b = measured(TOKEN), measured(other, "smollm2_fp32.parquet")
    names = [
        [name.removeprefix(plan_block(plan)) for name in m.totals.tables["sum"].names]
        for m, plan in ((a, TOKEN), (b, other))
        if m.totals is not None
    ]
    assert names[0] == names[1]
    message = refusal(a, b)
    assert "weighting.low is unset in one and 0.5 in the other" in message
    assert "weighting.high is 2.0 in one and 9.0 in the other" in message
    assert "weighting.outside is clamp in one and zero in the other" in message


def test_rejections_and_budgets_are_named_by_their_own_name() -> None:
    a, b = (measured(Plan(rejections=(veto(low),))) for low in (1e-4, 1e-3))
    assert "rejections.veto.low is 0.0001 in one and 0.001 in the other" in refusal(a, b)
    a, b = (measured(Plan(budgets=(Budget(below),))) for below in (1e-4, 2e-4))
    assert "budgets.budget.mean_below is 0.0001 in one and 0.0002 in the other" in refusal(a, b)


def test_a_budget_that_came_to_another_bound_in_each_dump_does_not_add() -> None:
    plan = Plan(budgets=(Budget(1e-4),))
    assert "budget bounds" in refusal(measured(plan), measured(plan, "smollm2_fp32.parquet"))


def test_two_modes_do_not_add() -> None:
    columns = {"current_log_probs": "old_log_probs"}
    message = refusal(measured(Plan()), measured(Plan(mode="bypass"), columns=columns))
    assert "mode is decoupled in one and bypass in the other" in message


def test_two_settings_do_not_add() -> None:
    message = refusal(measured(TOKEN), measured(TOKEN, thresholds=DiagnosticSettings(extreme_ratio=1.5)))
    assert message.endswith("extreme_ratio is 2.0 in one and 1.5 in the other.")
    message = refusal(measured(TOKEN), measured(TOKEN, thresholds=DiagnosticSettings(clip_high=0.3)))
    assert message.endswith("clip_high is 0.2 in one and 0.3 in the other.")


def test_two_seeds_do_not_add() -> None:
    assert "seed is 1 in one and 2 in the other" in refusal(measured(TOKEN, seed=1), measured(TOKEN, seed=2))
    assert "seed is unset in one and 0 in the other" in refusal(measured(TOKEN), measured(TOKEN, seed=0))


def test_totals_with_pictures_do_not_add_to_totals_without() -> None:
    assert "pictures is no in one and yes in the other" in refusal(measured(TOKEN), measured(TOKEN, pictures=True))


def test_other_columns_and_groups_do_not_add() -> None:
    mapped = measured(TOKEN, columns={"old_log_probs": "rollout_log_probs", "rollout_log_probs": "old_log_probs"})
    message = refusal(measured(TOKEN), mapped)
    assert "columns.old_log_probs is old_log_probs in one and rollout_log_probs in the other" in message
    steps = measured(TOKEN, "smollm2_steps.parquet", group_by=("step",))
    assert "groups is none in one and step in the other" in refusal(measured(TOKEN, "smollm2_steps.parquet"), steps)


def test_totals_by_training_batch_do_not_add_to_those_of_one_batch() -> None:
    plan = Plan(weighting=Weighting("token", Bounds(None, 2.0), normalize="batch"))
    by_step, as_one = (measured(plan, "smollm2_steps.parquet", batch_by=column) for column in ("step", NO_BATCH))
    assert {len(key) for run in (by_step, as_one) if run.totals for key in run.totals.keys} == {1}
    assert "batch column is step in one and unset in the other" in refusal(by_step, as_one)


def test_a_plans_name_makes_no_difference() -> None:
    named = replace(TOKEN, name="ours")
    assert named.id == TOKEN.id
    together = measured(TOKEN) + measured(named, "smollm2_fp32.parquet")
    assert sum(together.rows.values()) == sum(measured(TOKEN).rows.values()) * 2


def test_equal_plans_have_one_id_and_others_another() -> None:
    assert Plan(weighting=Weighting("token", Bounds(None, 2))).id == TOKEN.id
    plans = (
        Plan(),
        Plan(mode="bypass"),
        Plan(loss="reinforce"),
        TOKEN,
        Plan(rejections=(veto(1e-4),)),
        Plan(rejections=(Rejection("ratio", "seq_min", Bounds(1e-4, None), "floor"),)),
        Plan(budgets=(Budget(0.04),)),
        Plan(log_ratio_limit=None),
    )
    assert len({plan.id for plan in plans}) == len(plans)


def test_one_file_twice_is_refused_by_its_name() -> None:
    a = measured(TOKEN)
    with pytest.raises(DataError, match=r"smollm2_int8\.parquet"):
        a + measured(TOKEN)


@pytest.mark.parametrize(
    "parts", [((0, 3), (2, 5)), ((2, 5), (0, 3)), ((0, 9), (3, 4)), (None, (0, 1)), ((1, 2), None)]
)
def test_parts_that_overlap_are_refused(parts: tuple[tuple[int, int] | None, ...]) -> None:
    a, b = (frozenset({ShardId("a.parquet", part), ShardId("c.parquet", None)}) for part in parts)
    for first in (a, a - {ShardId("c.parquet", None)}):
        covered = Coverage()
        covered.add(first)
        with pytest.raises(DataError, match=r"c\.parquet|a\.parquet" if first is a else r"a\.parquet"):
            covered.add(b)


def test_parts_that_touch_add() -> None:
    covered = Coverage()
    covered.add([ShardId("a.parquet", (0, 3)), ShardId("a.parquet", (5, 6))])
    covered.add([ShardId("a.parquet", (3, 5)), ShardId("b.parquet", (0, 3))])
    assert len(covered.shards) == 4


def test_a_run_covers_every_shard_of_its_dump() -> None:
    a = measured(TOKEN, "smollm2_fp32.parquet")
    assert {Path(shard.path).name for shard in a.covered} == {"smollm2_fp32.parquet"}
    together = a + measured(TOKEN)
    assert together.covered == a.covered | measured(TOKEN).covered
    assert together.provenance == a.provenance


def test_numbers_without_an_origin_are_refused() -> None:
    with pytest.raises(ValueError, match="of nothing"):
        Measured(totals=measured(TOKEN).totals)
