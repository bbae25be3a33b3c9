"""A sweep's curve and targets against the plans that they stand for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
from few import few
from made import CPU, batch, simulated
from oracle import Row
from test_comparison import compared

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.sweep import Units, swept_units
from rlcorr_cli.plans import flags
from rlcorr_cli.plans.flags import Side, Swept
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, WeightScope
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.results.swept import Point, Sweep, SweepRun, Targets, sweep_of
from rlcorr_cli.runs.sweep import _places, candidates_of
from rlcorr_cli.totals.measured import Measured
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.sweep import UnitTotals

TOKEN_COLUMNS = ("kept", "info", "k3_left")
SEQUENCE_COLUMNS = (*TOKEN_COLUMNS, "length", "shift", "shift_se")
ROWS = simulated(150, seed=3, std=0.02)
WEIGHTED = Plan(weighting=Weighting("token", Bounds(None, 1.02)))


def swept_of(rows: Sequence[Row], swept: Swept, targets: Targets | None = None, parts: int = 1) -> Sweep:
    """The sweep of rows, measured in some parts."""
    wanted = targets or Targets()
    batches = [batch(list(part)) for part in np.array_split(np.array(rows, object), parts)]
    observation = Observation(plans=(swept.base,), seed=None, compares=True)
    of_batches: dict[Any, UnitTotals] = {}
    units: dict[Any, list[Units]] = {}
    for of_batch in (swept_units(one, swept, CPU) for one in batches):
        for key, each in of_batch.items():
            units.setdefault(key, []).append(each.moving)
            of_batches[key] = of_batches[key] + each.totals if key in of_batches else each.totals
    first, *others = (observe(one, observation, CPU).totals for one in batches)
    totals = sum(others, start=first)
    run = SweepRun(
        measured=Measured(provenance=Provenance(plans={}, settings={}, columns={}), totals=totals),
        swept=swept,
        units=of_batches,
        inputs=(Input(path="rows", format="made", rows=len(rows), n_bytes=0, columns={}),),
    )
    assert run.curve is not None
    candidates = {place: candidates_of(units, run.curve, place) for place in _places(run.curve, wanted)}
    return sweep_of(run, targets=wanted, candidates=candidates)


def agree(values: Mapping[str, Any], expected: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(
        (values[name] is None and expected[name] is None)
        or math.isclose(values[name], expected[name], rel_tol=1e-9, abs_tol=1e-7 if name == "shift_se" else 1e-11)
        for name in names
    )


def kept_units(rows: Sequence[Row], swept: Swept, bounds: Bounds) -> int:
    """How many units a plan with these bounds keeps, by slow loops."""
    record = replace(swept.record, bounds=bounds)
    assert isinstance(record, Rejection)
    plan = Plan(rejections=(record,)).to_dict()
    masks = oracle.kept_masks(list(rows), plan)
    valid = oracle.view(list(rows), [row.mask for row in rows])
    if record.scope == "token":
        return sum(masks[i][t] for i, seq in enumerate(valid) for t in seq.at)
    return sum(any(masks[i][t] for t in seq.at) for i, seq in enumerate(valid) if seq.at)


SCOPES: tuple[WeightScope, ...] = ("token", "sequence", "geometric")
FIXED = (
    Weighting("sequence", Bounds(0.9, None)),
    Weighting("token", Bounds(0.97, None)),
    Weighting("geometric", Bounds(0.999, None)),
    Weighting("sequence", Bounds(0.9, None), "cap"),
    Weighting("token", of="drift"),
    *(Weighting(scope, gate=gate) for scope in SCOPES for gate in ("negative", "nonnegative")),
    Weighting("token", Bounds(0.98, None), gate="positive"),
    *(Weighting(scope, Bounds(0.98, None), "zero") for scope in SCOPES),
    Weighting("token", Bounds(0.98, None), "zero", gate="positive", of="drift"),
    *(Weighting(scope, Bounds(0.98, None), normalize="batch") for scope in SCOPES),
    Weighting("sequence", Bounds(0.98, None), "zero", normalize="batch", gate="negative"),
)
FLOORS = (
    Weighting("sequence", Bounds(None, 1.02)),
    Weighting("sequence", Bounds(None, 1.02), "zero"),
    Weighting("geometric", Bounds(None, 1.001), normalize="batch"),
    Weighting("sequence", Bounds(None, 1.02), gate="positive"),
)
DIVIDED = Plan(weighting=Weighting("token", Bounds(None, 1.02), normalize="batch"))
REJECTIONS: tuple[tuple[str, Side | None], ...] = (
    ("ratio.seq_mean", None),
    ("ratio.seq_mean", "low"),
    ("ratio.seq_sum", "high"),
    ("ratio.seq_min", "low"),
    ("ratio.token", None),
    ("k1.token", "high"),
    ("k3.seq_mean", None),
    ("log_ratio.seq_max", "both"),
    ("prob_gap.token", None),
    ("abs_log_ratio.seq_max", None),
)


@pytest.mark.parametrize(("text", "side"), REJECTIONS)
@pytest.mark.parametrize("base", few([Plan(), WEIGHTED, DIVIDED], [DIVIDED]), ids=["alone", "weighted", "divided"])
def test_every_point_is_the_plan_with_its_bounds(text: str, side: Side | None, base: Plan) -> None:
    swept = swept_rejection(base, text, side)
    points = swept_of(ROWS, swept).points
    assert len(points) > 10
    assert points[-1].kept_units == 1.0
    names = TOKEN_COLUMNS if swept.units == "tokens" else SEQUENCE_COLUMNS
    for point, expected in zip(points, compared(ROWS, [_plan(swept, point) for point in points]), strict=True):
        assert agree(point.values, expected, names), (point, expected)


def swept_rejection(base: Plan, text: str, side: Side | None) -> Swept:
    """What --vary STATISTIC.SCOPE moves, or the one bound of it that a side names."""
    return flags.swept(base, text if side in (None, "both") else f"{text}.{side}")


def swept_weighting(base: Plan, side: str) -> Swept:
    """What --vary is.low or is.high moves."""
    return flags.swept(base, f"is.{side}")


def _plan(swept: Swept, point: Point) -> Plan:
    return replace(swept.plan(Bounds(point.low, point.high)), name="point")


@pytest.mark.parametrize("scope", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("side", ["low", "high"])
def test_every_cap_is_the_plan_with_it(scope: Any, side: Any) -> None:
    swept = swept_weighting(Plan(weighting=Weighting(scope)), side)
    points = swept_of(ROWS, swept).points
    names = TOKEN_COLUMNS if swept.units == "tokens" else (*SEQUENCE_COLUMNS, "ess")
    for point, expected in zip(points, compared(ROWS, [_plan(swept, point) for point in points]), strict=True):
        assert agree(point.values, expected, (*names, "ess")), (point, expected)


@pytest.mark.parametrize(("text", "side"), REJECTIONS)
@pytest.mark.parametrize("share", few([0.1, 0.5, 0.95, 1.0], [0.95]))
def test_a_target_keeps_just_what_it_says(text: str, side: Side | None, share: float) -> None:
    swept = swept_rejection(Plan(), text, side)
    target = swept_of(ROWS, swept, Targets(keep=share)).target
    assert target is not None
    bounds = Bounds(target.point.low, target.point.high)
    n_units = sum(map(sum, (row.mask for row in ROWS))) if swept.units == "tokens" else 0
    n_units = n_units or sum(any(row.mask) for row in ROWS)
    assert kept_units(ROWS, swept, bounds) == target.point.n_inside
    assert target.point.n_inside >= share * n_units - 1e-9
    (expected,) = compared(ROWS, [swept.plan(bounds)])
    assert agree(target.point.values, expected, TOKEN_COLUMNS if swept.units == "tokens" else SEQUENCE_COLUMNS)


def test_a_target_is_the_tightest_and_in_few_digits() -> None:
    swept = swept_rejection(Plan(), "ratio.seq_mean", None)
    target = swept_of(ROWS, swept, Targets(keep=0.5)).target
    assert target is not None
    assert target.point.n_inside == math.ceil(0.5 * sum(any(row.mask) for row in ROWS))
    assert len(target.option) < 40


@pytest.mark.parametrize("scope", ["token", "sequence"])
@pytest.mark.parametrize("side", ["low", "high"])
def test_a_cap_for_a_sample_size_is_the_loosest(scope: Any, side: Any) -> None:
    swept = swept_weighting(Plan(weighting=Weighting(scope)), side)
    loosest = swept_of(ROWS, swept).points[-1].values["ess"]
    assert loosest is not None
    wanted = (1 + loosest) / 2
    target = swept_of(ROWS, swept, Targets(ess=wanted)).target
    assert target is not None
    assert target.reached
    looser = 1.001 if side == "high" else 1 / 1.001
    bounds = [Bounds(target.point.low, target.point.high)]
    bounds.append(Bounds(*(None if edge is None else edge * looser for edge in (target.point.low, target.point.high))))
    at, beyond = (values["ess"] or 0.0 for values in compared(ROWS, [swept.plan(each) for each in bounds]))
    assert at >= wanted > beyond
    assert agree(target.point.values, {"ess": at}, ["ess"])


@pytest.mark.parametrize("weighting", few([*FIXED, *FLOORS], [*FIXED[::3], *FLOORS]), ids=str)
def test_a_target_of_weights_is_the_plan_there(weighting: Weighting) -> None:
    side: Any = "low" if weighting in FLOORS else "high"
    swept = swept_weighting(Plan(weighting=weighting), side)
    loosest = swept_of(ROWS, swept).points[-1]
    for targets in (Targets(keep=0.8 * loosest.kept_units), Targets(ess=0.3 + 0.7 * (loosest.values["ess"] or 0.0))):
        target = swept_of(ROWS, swept, targets, parts=3).target
        assert target is not None
        (expected,) = compared(ROWS, [swept.plan(Bounds(target.point.low, target.point.high))])
        names = (*TOKEN_COLUMNS, "ess") if swept.units == "tokens" else (*SEQUENCE_COLUMNS, "ess")
        assert agree(target.point.values, expected, names), (target, expected)
        assert target.reached == ((target.point.values["ess"] or 0.0) >= (targets.ess or 0.0))
        assert target.point.kept_units >= (targets.keep or 0.0) - 1e-12


def test_no_cap_gives_weights_of_one_sign_more_than_these_have() -> None:
    """Where the gate is shut weights are 1: those that are capped far below are no longer like them."""
    swept = swept_weighting(Plan(weighting=Weighting("sequence", gate="negative")), "high")
    target = swept_of(ROWS, swept, Targets(ess=0.99999)).target
    assert target is not None
    sizes = [point.values["ess"] or 0.0 for point in swept_of(ROWS, swept).points]
    (tight,) = compared(ROWS, [swept.plan(Bounds(None, 0.5))])
    assert (tight["ess"] or 0.0) < max(sizes) < 0.99999
    assert not target.reached
    assert (target.point.values["ess"] or 0.0) >= max(sizes)


def test_no_bound_keeps_what_another_has_at_zero() -> None:
    swept = swept_weighting(Plan(weighting=Weighting("sequence", Bounds(1.0, None), "zero")), "high")
    report = swept_of(ROWS, swept, Targets(keep=0.9))
    assert report.target is not None
    assert report.target.to_dict()["threshold"] is None
    assert report.target.point.kept_units == report.points[-1].kept_units < 0.9


def test_a_bound_that_moves_nothing_is_said_so() -> None:
    rows = [replace(row, advantages=[1.0] * len(row.advantages)) for row in ROWS]
    with pytest.raises(DataError, match="have advantages that these weights act on"):
        swept_of(rows, swept_weighting(Plan(weighting=Weighting("token", gate="negative")), "high"))
    with pytest.raises(DataError, match="lie inside the other bound"):
        swept_of(ROWS, swept_weighting(Plan(weighting=Weighting("token", Bounds(9.0, None), "zero")), "high"))


def test_a_sample_size_that_nothing_reaches_is_no_error() -> None:
    target = swept_of(ROWS, swept_rejection(Plan(), "ratio.seq_mean", None), Targets(ess=1.0)).target
    assert target is not None
    assert not target.reached
    assert target.to_dict()["threshold"] is None
    assert "nearest" in target.note


@pytest.mark.parametrize("weighting", FIXED, ids=str)
@pytest.mark.parametrize("rules", [(), (Rejection("k3", "seq_mean", Bounds(None, 0.0003)),)], ids=["alone", "kept"])
def test_weights_of_every_kind_are_the_plan_at_every_point(weighting: Weighting, rules: tuple[Rejection, ...]) -> None:
    """A floor under the weights is there whatever cap moves above it; so is a gate, and what divides them."""
    swept = swept_weighting(Plan(weighting=weighting, rejections=rules), "high")
    points = swept_of(ROWS, swept).points
    for point, expected in zip(points, compared(ROWS, [_plan(swept, point) for point in points]), strict=True):
        names = (*TOKEN_COLUMNS, "ess") if swept.units == "tokens" else (*SEQUENCE_COLUMNS, "ess")
        assert agree(point.values, expected, names), (point, expected)


@pytest.mark.parametrize("weighting", FLOORS, ids=str)
def test_a_cap_holds_above_a_floor_that_moves(weighting: Weighting) -> None:
    swept = swept_weighting(Plan(weighting=weighting), "low")
    points = swept_of(ROWS, swept).points
    for point, expected in zip(points, compared(ROWS, [_plan(swept, point) for point in points]), strict=True):
        assert agree(point.values, expected, (*SEQUENCE_COLUMNS, "ess")), (point, expected)


def test_a_floor_that_moves_lifts_weights_that_are_0_beyond_float32() -> None:
    rows = [
        replace(row, rollout=[row.rollout[0] - 100.0, *row.rollout[1:]]) if i % 9 == 0 else row
        for i, row in enumerate(ROWS)
    ]
    plan = Plan(weighting=Weighting("token", Bounds(None, 3.0), infinite="zero"), log_ratio_limit=None)
    swept = swept_weighting(plan, "low")
    points = swept_of(rows, swept).points
    for point, expected in zip(points, compared(rows, [_plan(swept, point) for point in points]), strict=True):
        assert agree(point.values, expected, ("kept", "info", "ess")), (point, expected)


def test_far_sequences_have_no_sample_size_and_no_traceback() -> None:
    rows = [replace(row, rollout=[b - 800.0 for b in row.rollout]) if i % 3 else row for i, row in enumerate(ROWS)]
    points = swept_of(rows, swept_rejection(Plan(), "ratio.seq_sum", None)).points
    assert points[-1].values["ess"] is None
    assert points[-1].kept_units == 1.0


@pytest.mark.filterwarnings("error")
def test_units_beyond_every_number_are_outside_of_every_bound() -> None:
    """Without a limit a ratio may be e^800, and a k3 likewise: what float64, or float32, has no number for."""
    rows = [row if i % 3 else replace(row, rollout=[b - 800.0 for b in row.rollout]) for i, row in enumerate(ROWS)]
    plan, share = Plan(log_ratio_limit=None), sum(any(row.mask) for row in ROWS[1::3] + ROWS[2::3])
    for text in ("ratio.seq_mean", "k3.seq_mean"):
        report = swept_of(rows, swept_rejection(plan, text, None), Targets(keep=1.0))
        assert report.points[-1].n_inside == share
        assert report.target is not None
        assert not report.target.reached
    zeroed = replace(plan, weighting=Weighting("geometric", Bounds(0.9, None), "zero"))
    assert swept_of(rows, swept_weighting(zeroed, "high")).points[-1].n_inside == share
    for weighting in (Weighting("geometric"), Weighting("sequence", infinite="zero"), Weighting("token")):
        swept = swept_weighting(replace(plan, weighting=weighting), "high")
        points = swept_of(rows, swept, Targets(ess=0.9)).points
        for point, expected in zip(
            points[:10], compared(rows, [_plan(swept, point) for point in points[:10]]), strict=True
        ):
            assert agree(point.values, expected, (*TOKEN_COLUMNS, "ess")), (point, expected)


def test_bounds_that_keep_all_are_tight() -> None:
    target = swept_of(ROWS, swept_rejection(Plan(), "ratio.seq_mean", None), Targets(keep=1.0)).target
    assert target is not None
    loosest = swept_of(ROWS, swept_rejection(Plan(), "ratio.seq_mean", None)).points[-1]
    assert target.point.high is not None
    assert loosest.high is not None
    assert math.log(target.point.high) <= 1.02 * math.log(loosest.high)


def test_weights_that_are_capped_with_a_low_bound_alone_are_raw() -> None:
    capped, raw = (Plan(weighting=Weighting("token", Bounds(low, None), "cap")) for low in (0.5, None))
    assert compared(ROWS, [capped]) == compared(ROWS, [raw])


def test_parts_of_a_dump_add_up() -> None:
    swept = swept_rejection(WEIGHTED, "k3.seq_mean", None)
    whole, parts = (swept_of(ROWS, swept, Targets(keep=0.7), n) for n in (1, 5))
    assert whole.target is not None
    assert parts.target is not None
    assert parts.target.option == whole.target.option
    for point, expected in zip(parts.points, whole.points, strict=True):
        assert (point.low, point.high, point.n_inside) == (expected.low, expected.high, expected.n_inside)
        assert agree(point.values, expected.values, SEQUENCE_COLUMNS)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_targets_lie_between_0_and_1(share: float) -> None:
    with pytest.raises(UsageError, match=r"must lie in \(0, 1\]"):
        Targets(keep=share)
