"""Many groups at once: their metrics are those of each alone."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from made import batch, dumps, edges, observed, row, simulated
from oracle import Row

from rlcorr_cli.core.observe import Observation, layouts_of
from rlcorr_cli.metrics.corrections import canonical
from rlcorr_cli.metrics.table import MetricTable
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting, veto
from rlcorr_cli.totals.bins import FLOAT_BITS
from rlcorr_cli.totals.block import diagnostics_block, plan_block
from rlcorr_cli.totals.histogram import Histogram, Histograms
from rlcorr_cli.totals.normalize import normalize
from rlcorr_cli.totals.tail import Tail, Tails
from rlcorr_cli.totals.view import GroupTotals, TotalsView

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
    groups = observed(rows, plan).groups
    if plan.normalizes:
        groups = normalize(groups, layouts_of(_observation(rows, plan)), plan)
    together = MetricTable.of(canonical(GroupTotals(list(groups.values()), plan), plan), len(groups))
    for i, summary in enumerate(groups.values()):
        alone = canonical(TotalsView(summary, plan), plan)
        assert list(together[i]) == list(alone)
        for name, value in alone.items():
            assert together[i][name] == (None if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), name


def _observation(rows: Sequence[Row], plan: Plan) -> Observation:
    return Observation(plans=(plan,), has_current=batch(rows, plan.mode).current_logp is not None, seed=None)


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
    tails = [Tail.of(rng.standard_t(3, n), 512) for n in sizes] + [Tail.of(np.zeros(300), 512)]
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
    shared = []
    for summary in observed(rows, plan).groups.values():
        whole, kept = (summary.blocks[name] for name in (diagnostics_block("decoupled"), plan_block(plan)))
        places = whole.layout.places["histograms"]["log_ratio"], kept.layout.places["histograms"]["kept.log_ratio"]
        shared.append(whole.histograms[places[0]] is kept.histograms[places[1]])
        assert int(kept.histograms[places[1]].counts.sum()) == kept.sum("kept.tokens")
    assert shared == [True, False, True]


def test_counts_of_groups_are_as_narrow_as_they_can_be_and_widen_when_they_must() -> None:
    rows = [row([0.01] * 200), row([0.02] * 2)]
    for i, each in enumerate(rows):
        each.batch = i
    (narrow, _) = (summary.blocks[diagnostics_block("decoupled")] for summary in observed(rows, Plan()).groups.values())
    place = narrow.layout.places["histograms"]["log_ratio"]
    assert narrow.histograms[place].counts.dtype == np.uint8
    wide = narrow.histograms[place] + narrow.histograms[place]
    assert (wide.counts.tolist(), wide.counts.dtype) == ([400], np.uint16)
    both = Histogram.total([narrow.histograms[place]] * 3)
    assert both.counts.tolist() == [600]
    assert Histograms([narrow.histograms[place], wide]).quantile(0.5).tolist() == [wide.quantile(0.5)] * 2
