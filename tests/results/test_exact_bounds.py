"""Suggested bounds keep the share that they say: exactly where the distances are kept, else at least that."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlcorr_cli import Plan, analyze, choose_plan, compare
from rlcorr_cli.plans.plan import Bounds, Rejection
from rlcorr_cli.results.suggest import Distances, SuggestedBounds, geometric_bounds, suggestions
from rlcorr_cli.totals.bins import FLOAT_BITS, Histogram
from rlcorr_cli.totals.tail import Tail

SAMPLE = Path(__file__).parents[2] / "sample_data"
DUMPS = [str(SAMPLE / f"smollm2_{name}.parquet") for name in ("bf16", "int8", "fp32", "steps")]
GEOMETRIC = Rejection("ratio", "seq_mean", Bounds(0.999, 1.001), "tight")
LOST = {"rollout_rs_tight_seq_masked_fraction": 0.5}


def distances(values: list[float], kept: int | None = None) -> Distances:
    """Of these units, of which so many of the largest are kept (None for no tail)."""
    array = np.array(values)
    counts = np.bincount(FLOAT_BITS.bins_of(array), minlength=FLOAT_BITS.n).astype(np.int64)
    return Distances(Histogram.of_counts(counts), None if kept is None else Tail.of([array], kept))


def suggested(of_units: Distances, rejection: Rejection = GEOMETRIC) -> SuggestedBounds:
    (bounds,) = suggestions([rejection], LOST, {"tight": of_units})
    return bounds


def test_exact_bounds_keep_just_the_share_in_the_fewest_digits() -> None:
    values = [0.01 * i for i in range(1, 21)]  # the 18th of 20 is 0.18, the next 0.19
    bounds = suggested(distances(values, 20))
    assert (bounds.low, bounds.high, bounds.kept_fraction, bounds.exact) == (0.83, 1.2, 0.9, True)
    assert suggested(distances(values, 3)) == bounds
    linear = suggested(distances(values, 3), Rejection("k3", "seq_mean", Bounds(None, 1e-3), "tight"))
    assert (linear.low, linear.high, linear.exact) == (None, 0.181, True)


def test_where_too_few_distances_are_kept_bounds_come_from_the_histogram() -> None:
    values = [0.01 * i for i in range(1, 21)]
    bounds = suggested(distances(values, 2))
    assert not bounds.exact
    assert bounds == suggested(distances(values))
    assert bounds.high is not None
    assert sum(value <= math.log(bounds.high) for value in values) / 20 >= bounds.kept_fraction >= 0.9


@pytest.mark.parametrize("distance", [0.002, 0.2, 3.0])
def test_a_bound_from_a_histogram_lies_a_little_farther_out_than_its_bucket(distance: float) -> None:
    bounds = suggested(distances([distance] * 10))
    assert (bounds.kept_fraction, bounds.exact) == (1.0, False)
    assert bounds.low is not None
    assert bounds.high is not None
    for bound, least in ((bounds.low, -distance), (bounds.high, distance)):
        assert 1.007 < math.log(bound) / least < 1.035


def test_one_bound_of_a_ratio_keeps_at_least_the_share() -> None:
    values = [0.01 * i for i in range(1, 21)]
    bounds = suggested(distances(values, 20), replace(GEOMETRIC, bounds=Bounds(0.999, None)))
    assert (bounds.low, bounds.high, bounds.exact) == (0.83, None, False)


def test_of_equal_distances_all_are_kept() -> None:
    bounds = geometric_bounds(distances([0.1] * 8 + [0.2] * 8, 16))
    assert bounds is not None
    assert (bounds.kept_fraction, bounds.exact) == (1.0, True)
    assert 0.2 <= math.log(bounds.high) < 0.2021
    assert geometric_bounds(distances([1000.0] * 10, 16)) is None


@pytest.mark.parametrize("dump", DUMPS)
def test_the_bounds_that_a_verdict_names_keep_just_the_share_that_it_says(dump: str) -> None:
    report = analyze(dump)
    bounds, n = report.geometric, report.whole.counts["sequences"]
    assert bounds is not None
    assert (bounds.kept_fraction, bounds.exact) == (math.ceil(0.9 * n) / n, True)
    kept = analyze(dump, plan=choose_plan(rs=bounds.option.removeprefix("--rs "))).whole.values["kept_sequences"]
    assert kept == math.ceil(0.9 * n)


@pytest.mark.parametrize("dump", [dump for dump in DUMPS if "fp32" not in dump])
def test_the_bounds_that_compare_names_keep_just_the_share_that_it_says(dump: str) -> None:
    comparison = compare(dump, preset=["geo_rs", "token_is"])
    (reason,) = (reason for reason in comparison.recommendation.reasons if reason.code == "loses")
    n = comparison.whole.counts["sequences"]
    kept = analyze(dump, plan=choose_plan(rs=reason.option.removeprefix("--rs "))).whole.values["kept_sequences"]
    assert kept == math.ceil(0.95 * n)
    said = re.search(r"To keep ([\d.]+)% of the sequences:", reason.text)
    assert said is not None
    assert float(said[1]) == round(100 * kept / n, 1)


@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("statistic", ["ratio.seq_mean", "ratio.seq_sum", "k3.seq_mean", "abs_log_ratio.seq_max"])
def test_the_bounds_suggested_for_a_rejection_keep_just_the_share_that_is_said(dump: str, statistic: str) -> None:
    name, _, scope = statistic.partition(".")
    nothing = Bounds(1 - 1e-12, 1 + 1e-12) if name == "ratio" else Bounds(None, 1e-16)
    (bounds,) = analyze(dump, plan=Plan("tight", rejections=(Rejection(name, scope, nothing, "tight"),))).suggestions
    loose = Rejection(name, scope, Bounds(bounds.low, bounds.high), "loose")
    again = analyze(dump, plan=Plan("loose", rejections=(loose,)))
    assert bounds.exact
    assert again.whole.values["kept_sequences"] == bounds.kept_fraction * again.whole.counts["sequences"]


def test_a_tail_knows_where_a_share_of_its_values_ends() -> None:
    tail = Tail.of([np.array([5.0, 1.0, 3.0, 3.0, 2.0])], 3)  # keeps 5, 3, 3
    at = {share: tail.boundary(share) for share in (0.4, 0.6, 0.8, 1.0)}
    assert at[0.4] is None
    assert [(b.value, b.beyond, b.n_inside, b.n) for b in at.values() if b] == [
        (3.0, 5.0, 4, 5),
        (3.0, 5.0, 4, 5),
        (5.0, math.inf, 5, 5),
    ]
    assert Tail.empty(3).boundary(0.9) is None
