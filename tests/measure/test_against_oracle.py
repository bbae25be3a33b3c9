"""Canonical metrics against a second implementation in slow loops (tests/oracle.py), written from the definitions.

Plans that differ in one word are measured at once on each dump that is drawn, so that most of the time goes into what
they differ in.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import get_args

import oracle
import pytest
from hypothesis import example, given, settings, strategies as st
from made import OFF, dumps, edges, metrics, metrics_of, row, simulated
from oracle import Row

from rlcorr_cli.plans.plan import (
    BUDGETABLE,
    SCOPES,
    SIGNS,
    STATISTICS,
    Bounds,
    Budget,
    Gate,
    LimitOn,
    Normalize,
    Of,
    Outside,
    Plan,
    Rejection,
    Scope,
    Weighting,
    WeightScope,
    veto,
)
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.totals.view import Values

pytestmark = pytest.mark.usefixtures("every_library")
SIGNED = ("ratio", "log_ratio", "k1", "prob_gap", "binary_kl_signed")
"""Statistics that may be negative; a ratio's bounds are chosen as logs."""
WEIGHT_SCOPES: tuple[WeightScope, ...] = get_args(WeightScope)
OUTSIDES: tuple[Outside, ...] = ("clamp", "zero")
WEIGHT_BOUNDS = (Bounds(None, 2.0), Bounds(0.5, 2.0), Bounds(0.97, 1.02), Bounds(0.98, None), Bounds())
FEW_DUMPS = settings(max_examples=settings().max_examples // 3)
"""For tests that measure dozens of plans on each dump."""
FEWER_DUMPS = settings(max_examples=settings().max_examples // 5)
"""For those that do so under each of several parameters."""


def assert_equal_to_oracle(rows: list[Row], *plans: Plan) -> None:
    """plans: measured at once; the loops are run once for all of them."""
    for plan, found in metrics_of(rows, plans).items():
        assert_oracles(found, oracle.metrics(rows, plan.to_dict()), plan)


def assert_oracles(found: Values, expected: Mapping[str, float | None], plan: Plan) -> None:
    ours = {f"rollout_rs_{r.name}_{end}" for r in plan.rules for end in ("masked_fraction", "seq_masked_fraction")}
    assert set(found) - set(expected) <= ours, plan
    assert set(expected) <= set(found), plan
    wrong = {
        name: (found[name], value)
        for name, value in expected.items()
        if not same(name, found[name], value, expected.get(name.removesuffix("_std") + "_mean"))
    }
    assert not wrong, plan


def same(name: str, found: float | None, expected: float | None, mean: float | None) -> bool:
    """mean: of what a standard deviation is taken of."""
    if expected is None or not math.isfinite(expected):
        return found is None
    if found is None:
        return False
    if name.endswith("_std") and mean is not None:
        # A variance is known to 1e-12 of the mean square about the centre, which is 1 for ratios.
        of_ratios = name.startswith("rollout_is") or (name.endswith("_ratio_std") and "log_ratio" not in name)
        centre = 1.0 if of_ratios else 0.0
        if abs(found - expected) * (found + expected) <= 1e-12 * ((mean - centre) ** 2 + expected**2):
            return True
    if name.endswith("prob_pearson"):
        # Its variances likewise: probabilities that are nearly all the same leave six digits of their correlation.
        return math.isclose(found, expected, abs_tol=1e-6)
    relative = 2.0**-7 if "log_ratio_p" in name else 1e-9
    return math.isclose(found, expected, rel_tol=relative, abs_tol=1e-8 if name.endswith("_std") else 1e-12)


def splitting(rows: list[Row], statistic: str, scope: Scope, ends: str = "both") -> Bounds:
    """Bounds between the rows' own values of a statistic, so that some are inside and some outside."""
    record = {"statistic": statistic, "scope": scope}
    found = [x for s in oracle.view(rows, [r.mask for r in rows]) for x in oracle.statistic_units(s, record, 20.0)]
    values = sorted(x for x in found if math.isfinite(x)) or [0.0]
    # Relative to a statistic that is small everywhere, such as a fourth power.
    least = 1e-6 * min(1.0, max(map(abs, values)))
    gaps = [(a + b) / 2 for a, b in pairwise(values) if b - a > least]
    low, high = (gaps[len(gaps) // 4], gaps[-1 - len(gaps) // 4]) if gaps else (values[0] - 1, values[0] + 1)
    if statistic not in SIGNED:
        low = max(low, 0.0)
    if statistic == "ratio":
        low, high = math.exp(low), math.exp(high)
    return Bounds(None if ends == "high" else low, None if ends == "low" else high)


@FEW_DUMPS
@given(rows=dumps())
@example(rows=edges())
def test_presets(rows: list[Row]) -> None:
    """All of them on each dump, as many at once as may be: so most of the time goes into what plans differ in."""
    plans = [preset.plan for preset in PRESETS.values()]
    assert len(plans) > 50
    for needs_current in (False, True):
        if needs_current:
            with_current(rows)
        for mode in sorted({plan.mode for plan in plans}):
            alike = [p for p in plans if p.mode == mode and ("current_log_probs" in p.needs) is needs_current]
            if alike:
                assert_equal_to_oracle(rows, *alike)


def with_current(rows: list[Row]) -> None:
    """Give every row the current policy, where the dump has none."""
    for one in rows:
        one.current = one.current or [a - (t % 7 - 3) / 128 - 1 / 32 + OFF for t, a in enumerate(one.train)]


@FEW_DUMPS
@given(rows=dumps(), of=st.sampled_from(["mismatch", "drift", "total"]), normalize=st.sampled_from(["none", "batch"]))
@example(rows=edges(), of="total", normalize="batch")
def test_records_that_look_at_advantages_and_drift(rows: list[Row], of: Of, normalize: Normalize) -> None:
    with_current(rows)

    def plan(scope: WeightScope, gate: Gate) -> Plan:
        rejections = (
            Rejection("k1", "seq_mean", Bounds(None, 0.01), "sequences", of=of, gate=gate),
            Rejection("prob_gap", "token", Bounds(-0.02, 0.05), "tokens", of=of, gate=gate),
        )
        weighting = Weighting(scope, Bounds(0.97, 1.02), "clamp", normalize, of=of, gate=gate)
        return Plan(weighting=weighting, rejections=rejections)

    assert_equal_to_oracle(rows, *(plan(scope, gate) for scope, gate in product(WEIGHT_SCOPES, [*SIGNS, "any"])))


@FEW_DUMPS
@given(rows=dumps(), of=st.sampled_from(["mismatch", "drift", "total"]))
@example(rows=edges(), of="total")
def test_sequences_that_lose_the_tokens_for_which_a_gate_is_open(rows: list[Row], of: Of) -> None:
    with_current(rows)

    def plan(gate: Gate, scope: Scope) -> Plan:
        rejections = (
            Rejection("k1", scope, Bounds(-0.01, 0.01), "by_token", of=of, gate=gate, gate_on="token"),
            Rejection("binary_kl", "token", Bounds(None, 1e-3), "tokens", of=of, gate="onward"),
        )
        return Plan(weighting=Weighting("token", Bounds(None, 1.02), of=of), rejections=rejections)

    assert_equal_to_oracle(rows, *(plan(gate, scope) for gate, scope in product([*SIGNS, "onward"], SCOPES)))


@FEW_DUMPS
@given(rows=dumps(), below=st.sampled_from([1e-6, 1e-3, 0.04, 1.0]), of=st.sampled_from(["mismatch", "drift", "total"]))
@example(rows=edges(), below=0.04, of="mismatch")
def test_budgets(rows: list[Row], below: float, of: Of) -> None:
    with_current(rows)
    budgets = [Budget(below, statistic, f"{statistic}_thresholds", of) for statistic in BUDGETABLE]
    assert_equal_to_oracle(rows, *(Plan(budgets=(budget,), rejections=(veto(1e-4),)) for budget in budgets))


def test_a_budget_is_kept_in_each_batch_by_dropping_some() -> None:
    rows = simulated(40, seed=5, std=0.3)
    plan = Plan(budgets=(Budget(0.04),))
    _, masks = oracle.weights_and_mask(rows, plan.to_dict())
    for batch in (0, 1):
        mine = [(row, mask) for row, mask in zip(rows, masks, strict=True) if row.batch == batch]
        left = [(a - b) ** 2 for row, mask in mine for a, b, m in zip(row.train, row.rollout, mask, strict=True) if m]
        assert 0.03 < sum(left) / len(left) < 0.04
        assert 0.5 < len(left) / sum(sum(row.mask) for row, _ in mine) < 0.95
    assert_equal_to_oracle(rows, plan)


@pytest.mark.parametrize("scope", SCOPES)
@FEWER_DUMPS
@given(rows=dumps(), ends=st.sampled_from(["both", "low", "high"]))
@example(rows=edges(), ends="both")
def test_rejections(scope: Scope, rows: list[Row], ends: str) -> None:
    rejections = [Rejection(statistic, scope, splitting(rows, statistic, scope, ends)) for statistic in STATISTICS]
    assert_equal_to_oracle(rows, *(Plan(rejections=(rejection,)) for rejection in rejections))


@FEW_DUMPS
@given(rows=dumps(), bounds=st.sampled_from(WEIGHT_BOUNDS))
@example(rows=edges(), bounds=Bounds())
@example(rows=edges(), bounds=Bounds(0.5, 2.0))
def test_weightings(rows: list[Row], bounds: Bounds) -> None:
    kinds = product(WEIGHT_SCOPES, OUTSIDES, get_args(Normalize))
    weightings = [Weighting(scope, bounds, outside, normalize) for scope, outside, normalize in kinds]
    assert_equal_to_oracle(rows, *(Plan(weighting=weighting) for weighting in weightings))


def test_equal_weights_have_no_spread_once_normalised() -> None:
    one = Row([0.0, -0.001, -0.033, -3.953125, -0.148, -0.227], [0.0, 0.0, 0.0, -4.013125, 0.0, 0.0], [1] * 6)
    one.advantages = [0.0] * 6
    found = metrics([one], Plan(weighting=Weighting("sequence", Bounds(None, 2.0), "clamp", "batch")))
    assert found["rollout_is_applied_std"] is not None
    assert found["rollout_is_applied_std"] < 1e-15


@pytest.mark.parametrize(("centre", "spread"), [(0.0, 1e-6), (0.2, 1e-3), (-19.0, 0.5), (15.0, 0.5)])
def test_the_spread_of_normalised_weights_keeps_its_digits(centre: float, spread: float) -> None:
    """Near 1 and far from it: what is summed about 1 is lost far from it, and what is summed about 0 near 1."""
    rows = [row([centre - spread, centre + spread], [-1.0, -2.0]), row([centre + spread / 2], [-1.5])]
    plan = Plan(weighting=Weighting("token", Bounds(), "clamp", "batch"))
    found, expected = metrics(rows, plan), oracle.metrics(rows, plan.to_dict())
    assert found["rollout_is_applied_std"] == pytest.approx(expected["rollout_is_applied_std"], rel=1e-7)


def test_a_spread_far_below_its_mean_is_none() -> None:
    rows = [row([-30.0], [0.0]), row([-30.0, 30.0], [0.0, -30.0])]
    plan = Plan(rejections=(Rejection("k3_reverse", "seq_sum", Bounds(None, 1.0)),))
    found, expected = metrics(rows, plan), oracle.metrics(rows, plan.to_dict())
    assert found["rollout_rs_seq_sum_k3_reverse_std"] == 0.0
    assert expected["rollout_rs_seq_sum_k3_reverse_std"] == pytest.approx(9.5)
    assert_equal_to_oracle(rows, plan)


@given(rows=dumps())
def test_weights_with_three_rejections(rows: list[Row]) -> None:
    rejections = (
        Rejection("ratio", "token", splitting(rows, "ratio", "token")),
        Rejection("k3", "seq_mean", splitting(rows, "k3", "seq_mean", "high")),
        veto(1e-4),
    )
    assert_equal_to_oracle(rows, Plan(weighting=Weighting("token", Bounds(None, 1.02)), rejections=rejections))


@given(rows=dumps(), scope=st.sampled_from(["seq_sum", "seq_mean"]), limit=st.sampled_from([0.05, 20.0]))
@example(rows=edges(), scope="seq_sum", limit=20.0)
def test_limits_on_tokens(rows: list[Row], scope: Scope, limit: float) -> None:
    rejections = (Rejection("k1", scope, Bounds(-0.5, 0.5)), Rejection("ratio", scope, Bounds(0.9, 1.2)))
    assert_equal_to_oracle(rows, Plan(rejections=rejections, log_ratio_limit=limit, limit_on="token"))


@FEW_DUMPS
@given(rows=dumps())
@example(rows=edges())
def test_other_limits(rows: list[Row]) -> None:
    rejections = (Rejection("ratio", "seq_sum", Bounds(0.9, 1.1)), Rejection("k3", "token", Bounds(None, 0.001)))
    plan = Plan(weighting=Weighting("geometric", Bounds(0.98, 1.02)), rejections=rejections)
    limits = product((0.05, 1.0, None), get_args(LimitOn))
    assert_equal_to_oracle(rows, *(replace(plan, log_ratio_limit=limit, limit_on=on) for limit, on in limits))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_rejection_that_takes_some_and_leaves_some(statistic: str, scope: Scope) -> None:
    rows = simulated(24, seed=3)
    plan = Plan(rejections=(Rejection(statistic, scope, splitting(rows, statistic, scope)),))
    assert_equal_to_oracle(rows, plan)
    kept = metrics(rows, plan)["rollout_rs_masked_fraction"]
    assert kept is not None
    assert 0.2 < kept < 0.8
