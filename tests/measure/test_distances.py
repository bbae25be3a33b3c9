"""How far a rejection's units lie from where it keeps everything: a histogram of the whole dump."""

import math
from dataclasses import replace

import numpy as np
import pytest
from made import observed, row, simulated
from oracle import Row

from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.bins import FLOAT_BITS
from rlcorr_cli.totals.histogram import Histogram
from rlcorr_cli.totals.view import plan_block

pytestmark = pytest.mark.usefixtures("every_library")

RULES = (
    Rejection("ratio", "token", Bounds(0.8, 1.25), "near"),
    Rejection("ratio", "seq_mean", Bounds(0.9, 1.1), "mean"),
    Rejection("k3", "token", Bounds(None, 0.01), "squared"),
    Rejection("abs_log_ratio", "seq_max", Bounds(None, 0.5), "largest"),
    veto(0.5),
)


def log_ratios(row: Row) -> list[float]:
    return [a - b for a, b, valid in zip(row.train, row.rollout, row.mask, strict=True) if valid]


def by_hand(name: str, rows: list[Row]) -> list[float]:
    of_rows = [of_row for of_row in map(log_ratios, rows) if of_row]
    tokens = [x for of_row in of_rows for x in of_row]
    return {
        "near": [abs(x) for x in tokens],
        "mean": [abs(sum(of_row) / len(of_row)) for of_row in of_rows],
        "squared": [math.exp(x) - 1 - x for x in tokens],
        "largest": [max(map(abs, of_row)) for of_row in of_rows],
        "veto": [abs(min(of_row)) for of_row in of_rows],
    }[name]


def counted(rows: list[Row], plan: Plan) -> dict[str, Histogram]:
    """The histograms of the distances that the plan goes by."""
    whole, block = observed(rows, plan).whole, f"{plan_block(plan)}."
    assert whole is not None
    named = {name.removeprefix(block): histogram for name, histogram in whole.histograms.items()}
    return {name: histogram for name, histogram in named.items() if name.startswith("rs.")}


@pytest.mark.parametrize("n_batches", [1, 5])
@pytest.mark.parametrize("longest", [1, 20])
def test_the_distances_of_all_units_are_counted(n_batches: int, longest: int) -> None:
    rows = [replace(one, batch=i % n_batches) for i, one in enumerate(simulated(40, 5, std=0.3, longest=longest))]
    histograms = counted(rows, Plan(rejections=RULES))
    for rule in RULES:
        buckets = FLOAT_BITS.bins_of(np.array(by_hand(rule.name, rows)))
        expected = Histogram.of_counts(np.bincount(buckets, minlength=1 << 16))
        assert histograms[f"rs.{rule.name}.distance"] == expected, rule.name


def test_a_plan_without_a_rejection_counts_no_distances() -> None:
    plans = (Plan(), Plan(weighting=Weighting("token", Bounds(None, 2.0))), Plan(budgets=(Budget(0.04),)))
    for plan in plans:
        assert counted([row([0.1])], plan) == {}


@pytest.mark.parametrize(
    "rule",
    [
        replace(RULES[0], gate="positive"),
        replace(RULES[0], of="drift"),
        replace(RULES[0], applied=False),
        Rejection("k1", "seq_mean", Bounds(-0.1, 0.1)),
    ],
    ids=["gated", "of drift", "measured only", "of either sign"],
)
def test_what_a_distance_does_not_decide_counts_none(rule: Rejection) -> None:
    one = row([0.1], current=[-1.0])
    assert counted([one], Plan(rejections=(rule,))) == {}


def test_a_ratio_is_as_far_as_its_log_before_any_limit() -> None:
    plan = Plan(rejections=(Rejection("ratio", "seq_sum", Bounds(0.5, 2.0), "product"),), log_ratio_limit=1.0)
    histograms = counted([row([-30.0, -20.0]), row([3.0])], plan)
    values, counts = histograms["rs.product.distance"].by_value
    assert values.tolist() == pytest.approx([3.0, 50.0], rel=2**-7)
    assert counts.tolist() == [1, 1]
