"""The columns of `compare` against slow loops, against `analyze`, and in any split of the rows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, strategies as st
from made import batch, bounds, dumps, library, metrics, simulated
from oracle import Row

from rlcorr_cli.measure.arrays import host, product
from rlcorr_cli.measure.comparison import ComparedPlans
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.metrics.comparison import compared_intervals, compared_values
from rlcorr_cli.plans.plan import Bounds, Mode, Plan, Rejection, Weighting, veto
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.totals.comparison import COMPARISON, ComparedTotals, normalized
from rlcorr_cli.totals.view import Values

pytestmark = pytest.mark.usefixtures("every_library")

SHARED = (
    Plan(),
    Plan(weighting=Weighting("token", Bounds(None, 1.02))),
    Plan(
        weighting=Weighting("token", Bounds(0.97, 1.03), "zero"),
        rejections=(Rejection("k3", "seq_mean", Bounds(None, 0.002)),),
    ),
    Plan(
        weighting=Weighting("sequence", Bounds(None, 1.1)),
        rejections=(Rejection("ratio", "token", Bounds(0.97, 1.03)),),
    ),
    Plan(weighting=Weighting("geometric", Bounds(0.99, 1.01))),
    Plan(rejections=(Rejection("ratio", "seq_mean", Bounds(0.999, 1.001)), veto(0.9))),
    Plan(rejections=(Rejection("ratio", "token", Bounds(1.5, 2.0)),)),
    Plan(weighting=Weighting("token", Bounds(None, 1.05), normalize="batch")),
    PRESETS["prime_ipo"].plan,
    PRESETS["prime_dppo"].plan,
    PRESETS["roll_topr"].plan,
    PRESETS["m2po"].plan,
    PRESETS["areal_kl_k3"].plan,
)


def compared(rows: Sequence[Row], plans: Sequence[Plan], *, has_advantages: bool = True) -> list[Values]:
    """The columns of each plan, all measured in one go."""
    one = batch(rows, plans[0].mode)
    if not has_advantages:
        one = replace(one, advantages=None)
    observation = Observation(plans=tuple(plans), seed=None, compares=True)
    limits: Any = {name: of for plan in plans for name, of in bounds(one, plan).items()}
    whole = normalized(observe(one, observation, library(), limits).totals, plans).whole
    return [compared_values(ComparedTotals.of(whole, plan, 0)) for plan in plans]


def assert_equal(values: Values, expected: dict[str, float | None], plan: Plan) -> None:
    wrong = {name: (values[name], value) for name, value in expected.items() if not same(name, values[name], value)}
    assert not wrong, plan
    assert values.keys() == expected.keys()


def same(name: str, value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    # A standard error is the root of a difference of sums, which keeps half of their digits near zero.
    return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-7 if name == "shift_se" else 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_every_column_is_that_of_slow_loops(seed: int) -> None:
    rows = simulated(60, seed=seed, mean=-0.001 * seed, std=0.02)
    for plan, values in zip(SHARED, compared(rows, SHARED), strict=True):
        assert_equal(values, oracle.comparison(rows, plan.to_dict()), plan)


SPARING = (
    Plan(weighting=Weighting("token", Bounds(0.8, 1.2)), rejections=(Rejection("ratio", "token", Bounds(0.7, 1.3)),)),
    Plan(weighting=Weighting("token", Bounds(0.5, 1.25), "zero")),
    Plan(rejections=(Rejection("k2", "token", Bounds(None, 0.02)),)),
    Plan(rejections=(Rejection("ratio", "token", Bounds(0.8, 1.2), gate="positive"),)),
    PRESETS["prime_ipo"].plan,
    PRESETS["prime_dppo"].plan,
)
TAKING = (
    Plan(weighting=Weighting("token", Bounds(None, 1.05))),
    Plan(weighting=Weighting("token", gate="positive")),
    Plan(rejections=(Rejection("abs_log_ratio", "token", Bounds(0.05, 0.3)),)),
    Plan(rejections=(Rejection("binary_kl", "token", Bounds(None, 5.0)),)),
    Plan(weighting=Weighting("token", Bounds(0.5, 2.0), of="drift")),
    PRESETS["m2po"].plan,
)


def test_what_spares_tokens_near_0_is_told_from_what_takes_them() -> None:
    assert [bool(ComparedPlans.of([plan]).taking_near) for plan in SPARING] == [False] * len(SPARING)
    assert [bool(ComparedPlans.of([plan]).taking_near) for plan in TAKING] == [True] * len(TAKING)


@pytest.mark.parametrize("std", [0.01, 0.1, 1.0])
def test_tokens_near_0_and_far_from_it_are_summed_as_by_slow_loops(std: float) -> None:
    rows, plans = simulated(60, seed=11, std=std), (*SPARING, *TAKING)
    for plan, values in zip(plans, compared(rows, plans), strict=True):
        assert_equal(values, oracle.comparison(rows, plan.to_dict()), plan)


@pytest.mark.parametrize("mode", ["decoupled", "bypass"])
def test_a_mode_takes_its_own_policies(mode: Mode) -> None:
    rows = [replace(row, current=None) for row in simulated(40, seed=9)]
    plans = [replace(plan, mode=mode, loss=loss) for plan in SHARED[:6] for loss in ("ppo_clip", "reinforce")]
    plans = list({plan.id: plan for plan in plans}.values())
    for plan, values in zip(plans, compared(rows, plans), strict=True):
        assert_equal(values, oracle.comparison(rows, plan.to_dict()), plan)


def test_bypass_ppo_weights_by_its_own_ratio() -> None:
    ppo = Plan(mode="bypass", weighting=Weighting("sequence", Bounds(None, 2.0)))
    ratio = Plan(mode="bypass", loss="reinforce", weighting=Weighting("token"))
    of_ppo, of_ratio = compared(simulated(40, seed=3), (ppo, ratio))
    assert of_ppo == of_ratio
    assert of_ppo["info"] == of_ppo["worth"]


@given(dumps(), st.booleans())
def test_ragged_and_far_rows_too(rows: list[Row], has_advantages: bool) -> None:
    if not any(any(row.mask) for row in rows):
        return
    lacking = {"advantages"} if not has_advantages else set[str]()
    lacking |= {"current_log_probs"} if any(row.current is None for row in rows) else set[str]()
    plans = [plan for plan in SHARED if lacking.isdisjoint(plan.needs)]
    for plan, values in zip(plans, compared(rows, plans, has_advantages=has_advantages), strict=True):
        expected = oracle.comparison(rows, plan.to_dict(), has_advantages)
        wrong = {
            name: (values[name], value)
            for name, value in expected.items()
            # Of weights beyond 1e100 squares leave float64, and both say so in their own way.
            if name not in ("shift", "shift_se") and not same(name, values[name], value)
        }
        assert not wrong, plan


def test_plans_are_as_single_analyses_of_them() -> None:
    rows = simulated(80, seed=5, std=0.02)
    for plan, values in zip(SHARED, compared(rows, SHARED), strict=True):
        alone = metrics(rows, plan)
        if plan.rules and (plan.weighting is None or plan.weighting.outside != "zero"):
            assert same("k3_left", values["k3_left"], alone["kept_k3_kl"])
            n_tokens = sum(sum(row.mask) for row in rows)
            assert values["kept"] == pytest.approx((alone["kept_tokens"] or 0) / n_tokens, rel=1e-12)
        if plan.weighting is not None:
            assert values["ess"] == pytest.approx(alone["rollout_is_eff_sample_size"], rel=1e-9)


def test_a_plan_is_the_same_alone_and_among_others() -> None:
    rows = simulated(50, seed=6, std=0.02)
    for plan, values in zip(SHARED, compared(rows, SHARED), strict=True):
        assert values == compared(rows, [plan])[0], plan


def test_totals_of_parts_add_up() -> None:
    rows = simulated(60, seed=8, std=0.02)
    plans = SHARED[:7]
    observation = Observation(plans=plans, seed=0, compares=True)
    whole, *parts = (observe(batch(part), observation, library()) for part in (rows, rows[:11], rows[11:12], rows[12:]))
    added = sum((part.totals for part in parts[1:]), start=parts[0].totals).whole
    at_once = whole.totals.whole
    for plan in plans:
        values, expected = (compared_values(ComparedTotals.of(each, plan, 0)) for each in (added, at_once))
        assert_equal(values, expected, plan)
    draws = parts[0].replicates[COMPARISON] + parts[1].replicates[COMPARISON] + parts[2].replicates[COMPARISON]
    np.testing.assert_allclose(draws.sums.values, whole.replicates[COMPARISON].sums.values, rtol=1e-9, atol=1e-9)


def test_intervals_hold_the_value_and_are_of_columns_made_of_sums() -> None:
    rows = simulated(200, seed=2, std=0.1)
    plans = (SHARED[2], SHARED[3])
    observation = Observation(plans=plans, seed=0, compares=True)
    measured = observe(batch(rows), observation, library())
    whole = measured.totals.whole
    for plan in plans:
        values = compared_values(ComparedTotals.of(whole, plan, 0))
        ends = compared_intervals(values, measured.replicates[COMPARISON], measured.replicates[plan.mode], plan)
        rejects = {"kept", "kept_sequence_fraction"} if (values["kept"] or 0) < 1 else set[str]()
        assert ends.keys() == {"info", "worth", "length", "ess"} | rejects
        assert all(low <= (values[name] or 0) <= high for name, (low, high) in ends.items()), (plan, ends)


def test_nothing_kept_is_no_info_and_no_other_number() -> None:
    rejects_all = Plan(rejections=(Rejection("ratio", "token", Bounds(50.0, 60.0)),))
    (values,) = compared(simulated(40, seed=1), [rejects_all])
    assert (values["kept"], values["info"], values["worth"]) == (0.0, 0.0, 0.0)
    assert [values[name] for name in ("shift", "length", "k3_left", "top_1pct", "ess")] == [None] * 5


def test_a_dropped_outlier_leaves_no_trace_in_what_is_kept() -> None:
    rows = simulated(40, seed=4, std=0.02)
    rows[3].train[0], rows[3].rollout[0], rows[3].mask[0] = -0.1, -60.0, 1  # rho of 1e26
    plan = Plan(weighting=Weighting("token", Bounds(0.5, 2.0), "zero"))
    (values,) = compared(rows, [plan])
    assert_equal(values, oracle.comparison(rows, plan.to_dict()), plan)
    assert (values["k3_left"] or 1.0) < 1e-3


@np.errstate(invalid="ignore")
def test_what_is_dropped_takes_infinite_factors_with_it() -> None:
    for infinite, expected in ((math.inf, [0.0, 0.0, math.inf, 6.0]), (1e300, [0.0, 0.0, 1e300, 6.0])):
        values, factors = (np.array(of) for of in ([0.0, infinite, 1.0, 2.0], [infinite, 0.0, infinite, 3.0]))
        assert host(product(library().put(values), library().put(factors))).tolist() == expected
