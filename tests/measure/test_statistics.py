"""Each formula by hand, and its digits where they are easily lost."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from rlcorr_cli.measure.statistics import LINEAR, OF_PROBABILITIES, STATISTICS, k2, k3, k3_reverse
from rlcorr_cli.plans import plan as plans
from rlcorr_cli.totals.flat import Floats

LN2 = math.log(2.0)


def of(*values: float) -> Floats:
    return np.array(values)


def test_k3_at_ln_2_is_1_minus_ln_2() -> None:
    assert k3(of(LN2)).item() == pytest.approx(0.3068528194400547, rel=1e-15)


def test_k3_reverse_at_ln_2_is_ln_2_minus_a_half() -> None:
    assert k3_reverse(of(LN2)).item() == pytest.approx(0.1931471805599453, rel=1e-15)


def test_k2_is_half_the_square() -> None:
    assert k2(of(-3.0, 0.0, 0.5)).tolist() == [4.5, 0.0, 0.125]


def test_k3_reverse_is_k3_of_minus_l() -> None:
    log_ratio = np.linspace(-5, 5, 101)
    assert np.array_equal(k3_reverse(log_ratio), k3(-log_ratio))


@pytest.mark.parametrize("statistic", [k2, k3, k3_reverse])
def test_kl_estimates_are_zero_at_l_0_and_positive_elsewhere(statistic: Callable[[Floats], Floats]) -> None:
    values = statistic(of(-30.0, -1.0, -0.01, 0.0, 0.01, 1.0, 30.0))
    assert values[3].item() == 0.0
    assert (values[[0, 1, 2, 4, 5, 6]] > 0).all()


@pytest.mark.parametrize("statistic", [k3, k3_reverse])
def test_k3_keeps_digits_at_l_1e_5(statistic: Callable[[Floats], Floats]) -> None:
    # l^2 / 2 is 5e-11 and the next term 1.7e-16; e^l - 1 - l written plainly is right to 1e-6 of it only.
    assert statistic(of(1e-5)).item() == pytest.approx(5e-11, rel=1e-5)


def test_statistics_by_name() -> None:
    found = {name: round(function(of(-LN2)).item(), 12) for name, function in STATISTICS.items()}
    assert found == {
        "k2": 0.240226506959,
        "k3": 0.193147180560,
        "k3_reverse": 0.306852819440,
        "abs_log_ratio": 0.693147180560,
        "exp_abs_log_ratio": 2.0,
        "log_ratio_squared": 0.480453013918,
        "ratio_gap": 0.5,
    }


def test_every_statistic_of_a_plan_has_one_way_to_be_computed() -> None:
    tables = (STATISTICS, LINEAR, OF_PROBABILITIES)
    assert sorted(name for table in tables for name in table) == sorted(plans.STATISTICS)


@pytest.mark.parametrize("name", STATISTICS)
def test_the_statistics_that_are_never_negative_are_marked_so(name: str) -> None:
    values = STATISTICS[name](of(-3.0, -0.1, 0.0, 0.1, 3.0))
    assert plans.STATISTICS[name].nonnegative == bool((values >= 0).all())


@pytest.mark.parametrize("name", STATISTICS)
def test_spreads_are_taken_about_the_value_of_equal_policies(name: str) -> None:
    assert plans.STATISTICS[name].where_equal == STATISTICS[name](of(0.0)).item()


def test_a_budget_is_kept_on_what_is_0_where_the_policies_agree() -> None:
    at_equal = {name: function(of(0.0)).item() for name, function in STATISTICS.items()}
    assert set(plans.BUDGETABLE) == {name for name, value in at_equal.items() if value == 0}
