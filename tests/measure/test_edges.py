"""Numbers at the edges of float64: ratios beyond e^700, spreads near 0, plans that keep nothing of l = 0."""

import math
import operator
import warnings

import numpy as np
import pytest
from made import batch, library, metrics, row

from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.plans.plan import SCOPES, Bounds, Plan, Rejection, Scope, Weighting, WeightScope
from rlcorr_cli.totals.view import plan_block

pytestmark = pytest.mark.usefixtures("every_library")

FAR = row([999.9, -0.1, -0.2], probs=[-0.1, -1.0, -0.5])
"""A token that rollout held impossible (b = -1000) and training likely (a = -0.1)."""
NEAR = row([0.1, -0.3, 0.2], probs=[-0.7, -0.2, -1.5])


@pytest.fixture(autouse=True)
def _no_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_probability_gaps_hold_beyond_e_to_the_700() -> None:
    found = metrics([FAR, NEAR], Plan())
    pairs = [ab for r in (FAR, NEAR) for ab in zip(r.train, r.rollout, strict=True)]
    gaps = [abs(math.exp(a) - math.exp(b)) for a, b in pairs]
    assert found["prob_abs_diff_max"] == pytest.approx(math.exp(-0.1), rel=1e-12)
    assert found["prob_abs_diff_mean"] == pytest.approx(sum(gaps) / 6, rel=1e-9)
    assert found["prob_abs_diff_std"] == pytest.approx(float(np.std(gaps)), rel=1e-9)
    probs = np.exp(np.array(pairs))
    assert found["prob_pearson"] == pytest.approx(float(np.corrcoef(probs.T)[0, 1]), rel=1e-9)


@pytest.mark.parametrize("far", [999.9, -999.9, 705.0, -705.0, 4000.0])
def test_jensen_shannon_holds_beyond_e_to_the_700(far: float) -> None:
    found = metrics([row([far, 0.1])], Plan())["js_divergence"]
    near = math.log(math.cosh(0.05))
    assert found == pytest.approx((abs(far) / 2 - math.log(2) + near) / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("far", "null"),
    [(999.9, {"k3_kl", "token_mult_prob_error", "ratio_mean"}), (-999.9, {"k3_kl_reverse", "token_mult_prob_error"})],
)
def test_what_float64_cannot_hold_is_null(far: float, null: set[str]) -> None:
    found = metrics([row([far, 0.1])], Plan())
    names = ("k3_kl", "k3_kl_reverse", "token_mult_prob_error", "ratio_mean", "js_divergence")
    assert {name for name in names if found[name] is None} == null


def test_a_gap_rejection_sees_ratios_beyond_e_to_the_700() -> None:
    plan = Plan(rejections=(Rejection("prob_gap", "token", Bounds(-0.1, 0.1)),))
    decision = observe(batch([FAR]), Observation(plans=(plan,), seed=None), library(), decides=True).decision
    assert decision is not None
    assert decision.keep.tolist() == [False, True, False]


@pytest.mark.parametrize("scope", ["token", "sequence"])
def test_spread_of_weights_near_0_keeps_its_digits(scope: WeightScope) -> None:
    found = metrics([row([-16.0]), row([-18.0])], Plan(weighting=Weighting(scope, Bounds(), "clamp")))
    weights = math.exp(-16), math.exp(-18)
    half = (weights[0] - weights[1]) / 2
    assert found["rollout_is_std"] == pytest.approx(half, rel=1e-9)
    assert found["rollout_is_applied_std"] == pytest.approx(half, rel=1e-9)
    assert found["rollout_is_seq_std"] == pytest.approx(half * math.sqrt(2), rel=1e-9)


def test_spread_near_1_keeps_its_digits() -> None:
    found = metrics([row([1e-7]), row([3e-7])], Plan(weighting=Weighting("token", Bounds(), "clamp")))
    assert found["rollout_is_std"] == pytest.approx(1e-7, rel=1e-5)


def test_spread_of_what_overflows_is_null() -> None:
    plan = Plan(rejections=(Rejection("ratio", "seq_max", Bounds(None, 2.0)),))
    found = metrics([row([1000.0]), row([1000.0, 0.1])], plan)
    for end in ("mean", "max", "std"):
        assert found[f"rollout_rs_{plan.rejections[0].name}_{end}"] is None


def test_kept_columns_are_the_diagnostics_alone_where_a_plan_rejects_equal_policies() -> None:
    weighting = Weighting("token", Bounds(None, 2.0))
    usual = Plan(weighting=weighting, rejections=(Rejection("ratio", "token", Bounds(0.5, 2.0)),))
    rejects_1 = Plan(weighting=weighting, rejections=(Rejection("ratio", "token", Bounds(1.5, 2.0)),))
    kept: list[list[str]] = []
    for plan in (usual, rejects_1):
        names = observe(batch([NEAR]), Observation(plans=(plan,), seed=None), library()).totals.tables["sum"].names
        prefix = f"{plan_block(plan)}.kept."
        kept.append([name.removeprefix(prefix) for name in names if name.startswith(prefix)])
    assert kept[0] == kept[1]
    assert not any(name.startswith(("weight.", "rs.")) for name in kept[1])


def test_columns_of_one_name_do_not_join() -> None:
    with pytest.raises(ValueError, match="two columns are named a"):
        operator.or_(Columns(sums={"a": np.zeros(1)}), Columns(sums={"a": np.zeros(1), "b": np.zeros(1)}))


@pytest.mark.parametrize("scope", ["token", "seq_mean", "seq_max"])
def test_spread_of_a_statistic_that_is_1_for_equal_policies_keeps_its_digits(scope: Scope) -> None:
    plan = Plan(rejections=(Rejection("exp_abs_log_ratio", scope, Bounds(None, 2.0), "error"),))
    found = metrics([row([1e-7]), row([-3e-7])], plan)
    assert found["rollout_rs_error_std"] == pytest.approx(1e-7, rel=1e-5)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("bounds", [Bounds(None, 3.0), Bounds(0.95, None), Bounds(0.95, 8.0), Bounds(1e-4, 1.002)])
def test_as_many_units_lie_beyond_a_ratio_s_bounds_as_it_rejects(scope: Scope, bounds: Bounds) -> None:
    # Logs within rounding of a bound's, whose e^l need not lie on the same side of the bound.
    ends = [end for end in (bounds.low, bounds.high) if end]
    near = [math.log(end) + step * 2.0**-52 for end in ends for step in range(-20, 21)]
    found = metrics(
        [row([log_ratio]) for log_ratio in near], Plan(rejections=(Rejection("ratio", scope, bounds, "x"),))
    )
    beyond = [found[f"rollout_rs_x_fraction_{end}"] for end in ("low", "high")]
    assert [share is None for share in beyond] == [bounds.low is None, bounds.high is None]
    assert 0.2 < found["rollout_rs_x_masked_fraction"] < 0.8
    assert sum(filter(None, beyond)) == pytest.approx(found["rollout_rs_x_masked_fraction"], abs=1e-12)
