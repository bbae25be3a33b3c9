"""Several plans on one reading: each plan's totals are those of observing it alone."""

from dataclasses import replace

import numpy as np
import pytest
from made import CPU, batch, simulated
from plain import plain

from rlcorr_cli.measure.observe import Observation, Observed, observe
from rlcorr_cli.metrics.catalog import canonical
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.view import Numbers

THREE = batch(simulated(40, 5, std=0.3))
DECOUPLED = Plan(
    weighting=Weighting("token", Bounds(None, 1.1)), rejections=(Rejection("ratio", "token", Bounds(0.8, 1.25)),)
)
BYPASS = Plan(mode="bypass", weighting=Weighting("sequence", Bounds(0.5, 2.0), "zero"), rejections=(veto(0.5),))
OTHER = replace(DECOUPLED, rejections=())


def observed(*plans: Plan) -> Observed:
    return observe(THREE, Observation(plans=plans, seed=3), CPU)


@pytest.mark.parametrize("plans", [(DECOUPLED, BYPASS), (BYPASS, DECOUPLED, OTHER)])
def test_plans_observed_together_have_exactly_the_totals_of_each_alone(plans: tuple[Plan, ...]) -> None:
    together = observed(*plans)
    assert len(together.totals) == 2
    for plan in plans:
        alone = observed(plan)
        assert together.totals.keys == alone.totals.keys
        for merge, table in alone.totals.tables.items():
            for name in table.names:
                assert together.totals.tables[merge][name].tolist() == table[name].tolist()
        for at in range(2):
            mine, theirs = (canonical(Numbers.of_plan(seen.totals, plan, at), plan) for seen in (together, alone))
            assert mine == theirs
        assert plain(together.replicates[plan.mode]) == plain(alone.replicates[plan.mode])
        assert together.whole is not None
        assert alone.whole is not None
        assert alone.whole.tails.items() <= together.whole.tails.items()
        assert alone.whole.rows == together.whole.rows


def test_a_mode_is_diagnosed_once_for_all_its_plans() -> None:
    together = observed(DECOUPLED, OTHER, BYPASS)
    tokens = [name for name in together.totals.tables["sum"].names if name.endswith(".tokens") and "kept" not in name]
    assert tokens == ["diagnostics.decoupled.tokens", "diagnostics.bypass.tokens"]
    assert together.replicates.keys() == {"decoupled", "bypass"}


def test_a_mode_reads_its_own_diagnostics() -> None:
    totals = observed(DECOUPLED, BYPASS).totals
    assert THREE.old_logp is not None
    assert THREE.current_logp is not None
    rows = np.repeat(THREE.group_index, np.diff(THREE.offsets)) == 0
    for plan, trained in ((DECOUPLED, THREE.old_logp), (BYPASS, THREE.current_logp)):
        mean = float((THREE.rollout_logp - trained)[rows].mean())
        assert canonical(Numbers.of_plan(totals, plan, 0), plan)["kl"] == pytest.approx(mean, rel=1e-12)


def test_budgets_of_one_name_and_no_plan_at_all_are_refused() -> None:
    budgeted = Plan(budgets=(Budget(1e-4),))
    with pytest.raises(ValueError, match="name of its own"):
        Observation(plans=(budgeted, replace(budgeted, mode="bypass")))
    with pytest.raises(ValueError, match="needs a plan"):
        Observation(plans=())


def test_several_plans_neither_decide_nor_draw() -> None:
    several = Observation(plans=(DECOUPLED, BYPASS))
    with pytest.raises(ValueError, match="one plan at a time"):
        observe(THREE, several, CPU, decides=True)
    with pytest.raises(ValueError, match="one plan at a time"):
        observe(THREE, replace(several, pictures=True), CPU)
