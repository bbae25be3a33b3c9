"""Weights and rejections, computed on paper."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made import CPU, batch, bounds as budget_bounds, edges, metrics, row, simulated
from oracle import Row

from rlcorr_cli.measure.correct import Corrected, correct
from rlcorr_cli.measure.decisions import decide_batch
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.plan import Bounds, Budget, Outside, Plan, Rejection, Scope, Weighting, WeightScope, veto

LN2 = math.log(2.0)
OPEN = Bounds()


def corrected(rows: list[Row], plan: Plan) -> Corrected:
    return correct(Tokens.of(batch(rows), CPU), plan)


def kept(rows: list[Row], *rejections: Rejection, **plan: Any) -> list[bool]:
    verdict = corrected(rows, Plan(rejections=rejections, **plan)).keep
    assert verdict is not None
    return verdict.tolist()


def applied(
    rows: list[Row], scope: WeightScope, bounds: Bounds = OPEN, outside: Outside = "clamp", **plan: Any
) -> list[float]:
    weighted = corrected(rows, Plan(weighting=Weighting(scope, bounds, outside), **plan)).weighted
    assert weighted is not None
    return [round(w, 12) for w in weighted.applied.tolist()]


THREE = [row([LN2, -LN2, 2 * LN2]), row([-LN2])]
"""Ratios 2, 1/2, 4 and 1/2: products 4 and 1/2."""


def test_token_weight_is_the_ratio() -> None:
    assert applied(THREE, "token") == [2.0, 0.5, 4.0, 0.5]


def test_sequence_weight_is_the_product() -> None:
    assert applied(THREE, "sequence") == [4.0, 0.5]


def test_geometric_weight_is_e_to_the_mean() -> None:
    assert applied(THREE, "geometric") == [round(4 ** (1 / 3), 12), 0.5]


def test_clamp_zero_and_cap_outside_the_bounds() -> None:
    bounds = Bounds(0.75, 3.0)
    assert applied(THREE, "token", bounds, "clamp") == [2.0, 0.75, 3.0, 0.75]
    assert applied(THREE, "token", bounds, "zero") == [2.0, 0.0, 0.0, 0.0]
    assert applied(THREE, "token", bounds, "cap") == [2.0, 0.5, 3.0, 0.5]


@pytest.mark.parametrize(("scope", "expected"), [("token", [2.0, 0.5, 2.0, 0.5]), ("sequence", [2.0, 0.5])])
def test_high_alone_clamps_from_above(scope: WeightScope, expected: list[float]) -> None:
    assert applied(THREE, scope, Bounds(None, 2.0)) == expected


@pytest.mark.parametrize("outside", ["clamp", "zero", "cap"])
def test_bounds_of_weights_are_inclusive(outside: Outside) -> None:
    assert applied([row([0.0])], "token", Bounds(1.0, 1.0), outside) == [1.0]


@pytest.mark.parametrize("scope", ["token", "sequence", "geometric"])
def test_limit_acts_before_exp(scope: WeightScope) -> None:
    found = applied([row([30.0]), row([-30.0])], scope)
    assert found == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-3, abs=1e-12)


def test_sequence_weight_limits_the_sum_and_not_each_token() -> None:
    # 15 - 12 = 3 is below the limit of 5 though both tokens are beyond it.
    assert applied([row([15.0, -12.0])], "sequence", log_ratio_limit=5.0) == [round(math.exp(3), 12)]


@pytest.mark.parametrize(("limit_on", "product"), [("reduced", math.exp(3)), ("token", 1.0)])
def test_limit_on_the_sum_or_on_each_token(limit_on: str, product: float) -> None:
    # Reduced: lim(15 - 12) = 3.  Token: lim(15) + lim(-12) = 5 - 5 = 0.
    low, high = product * 0.99, product * 1.01
    rejection = Rejection("ratio", "seq_sum", Bounds(low, high))
    assert kept([row([15.0, -12.0])], rejection, log_ratio_limit=5.0, limit_on=limit_on) == [True, True]
    other = Rejection("ratio", "seq_sum", Bounds(None, low))
    assert kept([row([15.0, -12.0])], other, log_ratio_limit=5.0, limit_on=limit_on) == [False, False]


def test_no_limit_lets_a_ratio_of_e_30_through() -> None:
    rejection = Rejection("ratio", "token", Bounds(None, math.exp(25)))
    assert kept([row([30.0])], rejection, log_ratio_limit=20.0) == [True]
    assert kept([row([30.0])], rejection, log_ratio_limit=None) == [False]


def test_veto_rejects_whole_sequence() -> None:
    rows = [row([0.0, math.log(0.5e-4), 0.0]), row([0.0, math.log(2e-4)])]
    assert kept(rows, veto(1e-4)) == [False, False, False, True, True]


def test_veto_sees_unlimited_tokens() -> None:
    assert kept([row([-30.0])], veto(1e-12)) == [False]


def test_token_rejection_clears_only_its_tokens() -> None:
    assert kept(THREE, Rejection("ratio", "token", Bounds(0.4, 3.0))) == [True, True, False, True]


@pytest.mark.parametrize(
    ("scope", "inside"), [("seq_sum", 4.0), ("seq_mean", 4 ** (1 / 3)), ("seq_max", 4.0), ("seq_min", 0.5)]
)
def test_sequence_rejection_keeps_or_clears_whole_sequences(scope: Scope, inside: float) -> None:
    just = Bounds(inside * 0.999, inside * 1.001)
    first, second = [True] * 3, [inside == 0.5]
    assert kept(THREE, Rejection("ratio", scope, just)) == first + second
    above = Bounds(inside * 1.001, None)
    assert kept(THREE, Rejection("ratio", scope, above))[:3] == [False] * 3


@pytest.mark.parametrize(
    ("scope", "value"), [("token", 3.0), ("seq_sum", 3.0), ("seq_mean", 3.0), ("seq_max", 3.0), ("seq_min", 3.0)]
)
def test_bounds_of_rejections_are_inclusive(scope: Scope, value: float) -> None:
    rows = [row([-3.0], probs=[0.0])]
    assert kept(rows, Rejection("k1", scope, Bounds(value, value))) == [True]
    assert kept(rows, Rejection("k1", scope, Bounds(value + 1e-9, None))) == [False]
    assert kept(rows, Rejection("k1", scope, Bounds(None, value - 1e-9))) == [False]


@pytest.mark.parametrize("scope", ["token", "seq_sum", "seq_mean", "seq_max", "seq_min"])
def test_a_ratio_is_never_below_a_bound_of_0(scope: Scope) -> None:
    rows = [row([-800.0], probs=[0.0]), row([LN2])]
    assert kept(rows, Rejection("ratio", scope, Bounds(0.0, 1.5)), log_ratio_limit=None) == [True, False]


def test_k1_is_minus_l_and_log_ratio_is_l() -> None:
    rows = [row([0.3]), row([-0.3])]
    assert kept(rows, Rejection("k1", "token", Bounds(0.0, None))) == [False, True]
    assert kept(rows, Rejection("log_ratio", "token", Bounds(0.0, None))) == [True, False]


def test_k1_seq_max_is_of_the_smallest_ratio() -> None:
    rows = [row([0.3, -0.2]), row([0.3, -0.1])]
    assert kept(rows, Rejection("k1", "seq_max", Bounds(None, 0.15))) == [False, False, True, True]


def test_prob_gap_is_a_difference_of_probabilities() -> None:
    # e^a - e^b = 0.5 - 0.25.
    rows = [row([LN2], probs=[math.log(0.5)])]
    assert kept(rows, Rejection("prob_gap", "token", Bounds(0.2499999, 0.2500001))) == [True]


def test_abs_prob_gap_has_no_sign_and_a_mean_of_its_own() -> None:
    rows = [row([LN2, -LN2], probs=[math.log(0.5)] * 2)]  # gaps of 1/4 and -1/4
    assert kept(rows, Rejection("abs_prob_gap", "token", Bounds(0.2499999, 0.2500001))) == [True, True]
    assert kept(rows, Rejection("abs_prob_gap", "seq_mean", Bounds(None, 0.2))) == [False, False]
    assert kept(rows, Rejection("prob_gap", "seq_mean", Bounds(None, 0.2))) == [True, True]


def test_binary_kl_is_the_larger_of_both_directions() -> None:
    # p = 1/2, q = 1/4: KL(p || q) = ln 2 / 2 + ln(2/3) / 2 = 0.143841; KL(q || p) = -ln 2 / 4 + 3/4 ln(3/2) = 0.130812.
    rows = [row([LN2], probs=[math.log(0.5)]), row([-LN2], probs=[math.log(0.5)])]
    assert kept(rows, Rejection("binary_kl", "token", Bounds(0.14384, 0.14385))) == [True, True]
    assert kept(rows, Rejection("binary_kl_forward", "token", Bounds(0.13081, 0.13082))) == [True, False]
    # The other way round the rollout's is the larger one.
    assert kept(rows, Rejection("binary_kl_signed", "token", Bounds(0.13081, 0.13082))) == [True, False]
    assert kept(rows, Rejection("binary_kl_signed", "token", Bounds(-0.14385, -0.14384))) == [False, True]


def test_binary_kl_of_equal_policies_is_0_but_where_float32_rounds_a_probability_to_1() -> None:
    rows = [row([0.0, 0.0], probs=[-1.0, -1e-9])]
    assert kept(rows, Rejection("binary_kl", "token", Bounds(None, 0.0))) == [True, True]
    assert kept(rows, Rejection("binary_kl_float32", "token", Bounds(None, 1e9))) == [True, False]


def test_ratio_gap_is_the_distance_of_a_ratio_from_1() -> None:
    rows = [row([LN2, -LN2])]
    assert kept(rows, Rejection("ratio_gap", "token", Bounds(0.75, 1.25))) == [True, False]


def test_an_onward_gate_takes_the_tokens_that_move_further_off() -> None:
    # Mean |rho - 1| = 0.75 with l > 0 on the first token and < 0 on the second.
    rows = [row([LN2, -LN2], advantages=[1.0, 1.0]), row([LN2, -LN2], advantages=[-1.0, 0.0])]
    vaco = Rejection("ratio_gap", "seq_mean", Bounds(None, 0.7), gate="onward")
    assert kept(rows, vaco) == [False, True, True, True]
    assert kept(rows, Rejection("ratio_gap", "seq_mean", Bounds(None, 0.8), gate="onward")) == [True] * 4


def test_a_gate_on_tokens_takes_single_ones_of_a_sequence() -> None:
    rows = [row([-0.5, -0.5], advantages=[-1.0, 3.0]), row([0.5, 0.5], advantages=[-1.0, -1.0])]
    assert kept(rows, Rejection("k1", "seq_mean", Bounds(None, 0.1), gate="negative", gate_on="token")) == [
        *(False, True),
        *(True, True),
    ]
    # The sequence's own advantage, 1, opens nothing.
    assert kept(rows, Rejection("k1", "seq_mean", Bounds(None, 0.1), gate="negative")) == [True] * 4


def test_a_limit_that_comes_first_holds_for_weights_and_extremes() -> None:
    rows = [row([3.0, -1.0])]
    first: dict[str, Any] = {"log_ratio_limit": 1.0, "limit_on": "first"}
    assert applied(rows, "geometric", **first) == [1.0]
    assert applied(rows, "geometric", log_ratio_limit=1.0) == [round(math.e, 12)]
    assert kept(rows, Rejection("ratio", "seq_max", Bounds(None, 3.0)), **first) == [True, True]


def test_seq_mean_of_k3_is_the_mean_over_tokens() -> None:
    # (1 - ln 2 + 0) / 2 = 0.1534.
    rows = [row([LN2, 0.0])]
    assert kept(rows, Rejection("k3", "seq_mean", Bounds(0.1534, 0.1535))) == [True, True]


def test_rejections_are_anded_on_the_original_mask() -> None:
    # Cutting the token of ratio 4 first would bring the product from 4 to 1 and keep the rest.
    token, product = Rejection("ratio", "token", Bounds(None, 3.0)), Rejection("ratio", "seq_sum", Bounds(0.9, 1.1))
    assert kept(THREE, token) == [True, True, False, True]
    assert kept(THREE, token, product) == kept(THREE, product, token) == [False] * 4


def test_rejection_changes_no_weight_and_weighting_no_mask() -> None:
    rejection, weighting = Rejection("ratio", "token", Bounds(None, 3.0)), Weighting("token", Bounds(None, 2.0))
    both = corrected(THREE, Plan(weighting=weighting, rejections=(rejection,)))
    assert both.weighted is not None
    assert both.weighted.applied.tolist() == pytest.approx(applied(THREE, "token", Bounds(None, 2.0)))
    assert both.keep is not None
    assert both.keep.tolist() == kept(THREE, rejection)


@pytest.mark.parametrize("scope", ["token", "sequence"])
def test_infinite_weights_are_zero_before_the_bounds_where_a_plan_says_so(scope: WeightScope) -> None:
    """By hand: float32 ends at e^88.72; a low bound lifts the 0 that nan_to_num leaves, a gate makes it 1."""
    rows = [row([88.8]), row([800.0]), row([88.7]), row([LN2])]
    for bounds, expected in (
        (OPEN, [0.0, 0.0, math.exp(88.7), 2.0]),
        (Bounds(None, 3.0), [0.0, 0.0, 3.0, 2.0]),
        (Bounds(0.5, 3.0), [0.5, 0.5, 3.0, 2.0]),
    ):
        weighting = Weighting(scope, bounds, infinite="zero")
        weighted = corrected(rows, Plan(weighting=weighting, log_ratio_limit=None)).weighted
        assert weighted is not None
        assert weighted.applied.tolist() == pytest.approx(expected, rel=1e-12)
        clamped = applied(rows, scope, bounds, log_ratio_limit=None)
        assert clamped[:2] == ([3.0, 3.0] if bounds.high else [round(math.exp(88.8), 12), math.inf])


def test_masked_tokens_count_for_nothing() -> None:
    masked = [row([LN2, 25.0, -LN2, 2 * LN2], mask=[1, 0, 1, 1]), row([-9.0], mask=[0]), row([-LN2])]
    assert applied(masked, "sequence") == applied(THREE, "sequence")


@pytest.mark.parametrize("scope", ["sequence", "geometric"])
@given(log_ratios=st.lists(st.floats(-25, 25), min_size=1, max_size=12))
def test_sequence_weights_of_one_token_sequences_are_token_weights(scope: WeightScope, log_ratios: list[float]) -> None:
    rows, bounds = [row([x]) for x in log_ratios], Bounds(0.5, 2.0)
    assert applied(rows, scope, bounds) == pytest.approx(applied(rows, "token", bounds), rel=1e-12)


@pytest.mark.parametrize("scope", ["seq_sum", "seq_mean"])
@given(log_ratios=st.lists(st.floats(-25, 25), min_size=1, max_size=12))
def test_sequence_rejection_of_one_token_sequences_is_token_rejection(scope: Scope, log_ratios: list[float]) -> None:
    rows = [row([x]) for x in log_ratios]
    for statistic, bounds in (("ratio", Bounds(0.5, 2.0)), ("k3", Bounds(None, 0.3)), ("k1", Bounds(-0.5, 0.5))):
        assert kept(rows, Rejection(statistic, scope, bounds)) == kept(rows, Rejection(statistic, "token", bounds))


def test_metrics_keep_digits_at_l_1e_9() -> None:
    rows = [row([1e-9], probs=[0.0])]
    found = metrics(rows, Plan(weighting=Weighting("token")))
    assert found["chi2_token"] == pytest.approx(2e-9, rel=1e-8)
    assert found["prob_abs_diff_mean"] == pytest.approx(1e-9, rel=1e-8)
    assert found["rollout_is_mean"] == 1 + rows[0].train[0] - rows[0].rollout[0]


@pytest.mark.parametrize("rows", [edges(), simulated(40, seed=5, std=0.3), [row([]), row([])]], ids=len)
def test_what_is_decided_unmeasured_is_what_is_decided_beside_measuring(rows: list[Row]) -> None:
    plan = Plan(
        weighting=Weighting("token", Bounds(None, 1.02)),
        rejections=(Rejection("ratio", "token", Bounds(0.8, 1.2)),),
        budgets=(Budget(0.01),),
    )
    made = batch(rows)
    limits = budget_bounds(made, plan)
    alone = decide_batch(made, plan, CPU, limits)
    observation = Observation(plans=(plan,), seed=None)
    beside = observe(made, observation, CPU, limits, decides=True).decision
    assert beside is not None
    for name in ("weights", "keep", "n_valid", "n_kept", "row_weights"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(beside, name), err_msg=name)
    assert {name: taken.tolist() for name, taken in alone.rejected.items()} == {
        name: taken.tolist() for name, taken in beside.rejected.items()
    }
