"""Many groups at once: their metrics are those of each alone."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from made import dumps, edges, normed, observed, row, simulated
from oracle import Row

from rlcorr_cli.measure.observe import Observed
from rlcorr_cli.metrics.catalog import canonical
from rlcorr_cli.metrics.diagnostics import QUANTILES
from rlcorr_cli.metrics.table import MetricTable
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.bins import FLOAT_BITS, Histogram, Histograms
from rlcorr_cli.totals.flat import by_group
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail, Tails
from rlcorr_cli.totals.totals import MOST_LISTED
from rlcorr_cli.totals.view import Numbers, diagnostics_block, plan_block

PLANS = {
    "nothing": Plan(),
    "token weights": Plan(weighting=Weighting("token", Bounds(None, 1.02))),
    "normalised": Plan(weighting=Weighting("sequence", Bounds(0.9, 1.1), "zero", normalize="batch")),
    "rejections": Plan(
        weighting=Weighting("geometric", Bounds(0.98, 1.02)),
        rejections=(Rejection("ratio", "token", Bounds(0.95, 1.05)), veto(0.9)),
    ),
    "budget": Plan(budgets=(Budget(1e-3),)),
}
EACH = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def assert_as_alone(rows: Sequence[Row], plan: Plan) -> None:
    totals = normed(observed(rows, plan).totals, plan)
    together = MetricTable.of(canonical(Numbers.of_plan(totals, plan), plan), len(totals))
    for at in range(len(totals)):
        alone = canonical(Numbers.of_plan(totals, plan, at), plan)
        assert list(together[at]) == list(alone)
        for name, value in alone.items():
            assert together[at][name] == (None if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), name


@EACH
def test_groups_together_have_the_metrics_of_each_alone(plan: Plan) -> None:
    rows = [*simulated(300, seed=4, std=0.3), row([]), row([0.0] * 40), row([0.5] * 7), row([-30.0, 30.0])]
    for i, each in enumerate(rows):
        each.batch = i % 17 if i < 300 else i
        each.current = each.current or list(each.train)
    assert_as_alone(rows, plan)


@given(rows=dumps())
@example(rows=edges())
def test_odd_groups_together_have_the_metrics_of_each_alone(rows: list[Row]) -> None:
    for i, each in enumerate(rows):
        each.batch = i
    for plan in PLANS.values():
        assert_as_alone(rows, plan)


def test_quantiles_of_many_histograms_are_those_of_each() -> None:
    rng = np.random.default_rng(2)
    histograms = [Histogram.empty()]
    for n in (1, 2, 40, 3000):
        buckets = FLOAT_BITS.bins_of(np.append(rng.standard_t(2, n - 1), 0.0))
        histograms.append(Histogram.of_counts(np.bincount(buckets, minlength=1 << 16)))
    for q in (0.0, 0.001, 0.5, 0.95, 1.0):
        alone = [histogram.quantile(q) for histogram in histograms]
        together = [None if math.isnan(value) else value for value in Histograms(histograms).quantile(q).tolist()]
        assert together == alone


def test_shapes_of_many_tails_are_those_of_each() -> None:
    rng = np.random.default_rng(3)
    sizes = [0, 1, 24, 25, 25, 60, 225, 226, 226, 5000, 5000]
    tails = [Tail.of([rng.standard_t(3, n)], 512) for n in sizes] + [Tail.of([np.zeros(300)], 512)]
    for name in ("pareto_k", "pareto_k_error", "limit"):
        alone = [getattr(tail, name) for tail in tails]
        together = [None if math.isnan(value) else value for value in getattr(Tails(tails), name).tolist()]
        assert together == alone
    assert sum(tail.pareto_k is not None for tail in tails) == 8


def test_groups_that_lose_nothing_hold_what_is_kept_once() -> None:
    rows = [row([0.01, 0.02]), row([0.01, 3.0]), row([0.02])]
    for i, each in enumerate(rows):
        each.batch = i
    plan = Plan(rejections=(Rejection("ratio", "token", Bounds(0.5, 2.0)),))
    totals = observed(rows, plan).totals
    whole, kept = diagnostics_block("decoupled"), f"{plan_block(plan)}.kept"
    for lists, name in ((totals.histograms, "log_ratio"), (totals.tails, "token"), (totals.tails, "sequence")):
        assert [own and own.n for own in lists[f"{kept}.{name}"] or ()] == [None, 1, None]
        assert totals.shared[f"{kept}.{name}"] == f"{whole}.{name}"
    for at, n in enumerate((2, 1, 1)):
        assert totals.histogram(f"{kept}.log_ratio", at).counts.sum() == n == totals.sum(f"{kept}.tokens")[at]
        assert totals.histogram(f"{kept}.log_ratio")[at] == totals.histogram(f"{kept}.log_ratio", at)
        assert totals.tail(f"{kept}.token")[at] == totals.tail(f"{kept}.token", at)
    assert sorted(totals.whole.tail(f"{kept}.token", 0).largest.tolist()) == pytest.approx([0.01, 0.01, 0.02, 0.02])


def test_counts_of_groups_are_as_narrow_as_they_can_be_and_widen_when_they_must() -> None:
    values, sizes = np.repeat([0.01, 0.02], [200, 2]), np.array([200, 2])
    histograms = Histograms.counting(values, sizes)
    assert histograms[0].counts.dtype == np.uint8
    wide = Histograms(each + each for each in histograms)
    assert [each.counts.tolist() for each in wide] == [[400], [4]]
    assert [each.counts.dtype for each in wide] == [np.uint16, np.uint8]
    assert wide.quantile(0.5).tolist() == histograms.quantile(0.5).tolist()


def test_histograms_and_tails_of_groups_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(5)
    lengths, group_of = rng.integers(0, 9, 200), rng.integers(0, 12, 200)
    values = rng.normal(size=int(lengths.sum())).round(1)
    ordered, sizes = by_group(values, lengths, group_of, 13)
    each = [values[np.repeat(group_of == group, lengths)] for group in range(13)]
    assert Histograms.counting(ordered, sizes) == tuple(Histogram.counting([own]) for own in each)
    assert Tails.of(ordered, sizes) == tuple(Tail.of([own], GROUP_SIZE) for own in each)


def test_of_more_than_2000_groups_quantiles_and_shapes_alone_are_null() -> None:
    rows = [row([0.01 * (i % 7), -0.02]) for i in range(MOST_LISTED + 1)]
    for i, each in enumerate(rows):
        each.batch = i
    plan = PLANS["rejections"]
    few, many = observed(rows[:-1], plan), observed(rows, plan)
    assert (few.totals.lacks_lists, many.totals.lacks_lists) == (False, True)

    def table(of: Observed) -> MetricTable:
        return MetricTable.of(canonical(Numbers.of_plan(of.totals, plan), plan), len(of.totals))

    lacking = {name for name, value in table(many)[0].items() if value is None and table(few)[0][name] is not None}
    assert lacking == {f"{prefix}log_ratio_{name}" for prefix in ("", "kept_") for name in QUANTILES}
    assert many.whole is not None
    assert many.whole.histograms["diagnostics.decoupled.log_ratio"].n == 2 * len(rows)
