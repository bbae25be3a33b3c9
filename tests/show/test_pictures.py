"""Pictures: what is counted for them agrees with the metrics, adds like every total, and is drawn as it was judged."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from made import CPU, batch, dumps, simulated
from matplotlib.testing.compare import compare_images
from oracle import Row
from reported import analyze

from rlcorr_cli import api
from rlcorr_cli.api import plot
from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved import read_report, refuse_undrawable
from rlcorr_cli.results.trends import concentration, lorenz, profile
from rlcorr_cli.show import figures
from rlcorr_cli.show.figures import KINDS, draw, panels
from rlcorr_cli.show.figures.panels import rebinned
from rlcorr_cli.show.inputs import picture_source
from rlcorr_cli.totals.bins import (
    AXES,
    DEEPEST,
    FLOAT_BITS,
    LENGTH,
    POSITION,
    SCATTER,
    SURPRISE,
    Binned,
    BinnedTotals,
    Histogram,
    Octaves,
    square,
)

SAMPLE = Path(__file__).parents[2] / "sample_data"
CAUSES = Path(__file__).parents[1] / "diagnosis" / "causes"
BASELINE = Path(__file__).parent / "baseline"
PLAN = Plan(
    "pictured",
    Weighting("token", Bounds(0.7, 1.5)),
    (Rejection("ratio", "token", Bounds(0.8, 1.25), "token"), veto(1e-4)),
)


def pictures_of(rows: list[Row], plan: Plan = PLAN) -> BinnedTotals:
    one = batch(rows)
    found = observe(one, Observation(plans=(plan,), pictures=True), CPU)
    return found.pictures or BinnedTotals()


def table_of(binned: Binned[Octaves]) -> np.ndarray:
    """Counts and sums of all bins, f64[1 + K, n]."""
    return np.stack([binned.table(column) for column in (binned.counts, *binned.sums.values())])


@pytest.fixture(scope="module")
def report() -> Report:
    reading = ReadRequest(paths=(str(SAMPLE / "smollm2_steps.parquet"),), group_by=("step",))
    return undated(replace(analyze(reading, ChosenPlan(plan=PLAN), pictures=True), seconds=0.0))


def undated(report: Report) -> Report:
    """As of files whose last change nobody knows: it is another one in every checkout."""
    return replace(report, inputs=tuple(replace(source, modified=None) for source in report.inputs))


def test_octave_bins_are_octaves() -> None:
    bins = Octaves(-2, 3, 2)
    assert bins.edges.tolist() == [0.25, 0.375, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8]
    assert all(math.log2(bins.edges[2 * i]) == i - 2 for i in range(6))


@given(rows=dumps())
def test_counts_are_those_of_a_slow_loop(rows: list[Row]) -> None:
    found = pictures_of(rows)
    tokens = [
        (row.rollout[t], row.train[t], place)
        for row in rows
        for place, t in enumerate([t for t, m in enumerate(row.mask) if m])
    ]
    if not tokens:
        assert not found.spread
        return
    for bins, name, x in (
        (SURPRISE, "surprise", [-b for b, _, _ in tokens]),
        (POSITION, "position", [place + 1.0 for _, _, place in tokens]),
    ):
        table = np.zeros((3, bins.n))
        for value, (b, a, _) in zip(x, tokens, strict=True):
            at = int(np.searchsorted(bins.edges, np.float32(value), side="right")) - 1
            table[:, min(max(at, 0), bins.n - 1)] += [1, a - b, (a - b) ** 2]
        np.testing.assert_allclose(table_of(found.spread[name]), table, rtol=1e-9, atol=1e-9)
    scatter = np.zeros((SCATTER, SCATTER), np.int64)
    for b, a, _ in tokens:
        i, j = (min(max(int((x - DEEPEST) / -DEEPEST * SCATTER), 0), SCATTER - 1) for x in (b, a))
        scatter[i, j] += 1
    assert (
        np.abs(square(found.counts["log_probability"]) - scatter).sum() <= 2
    )  # a value on an edge may round either way
    assert found.counts["probability"].counts.sum() == len(tokens)


@given(rows=dumps(min_rows=2))
def test_pictures_add(rows: list[Row]) -> None:
    whole, parts = pictures_of(rows), [pictures_of(rows[:1]), pictures_of(rows[1:])]
    for found in (parts[0] + parts[1], parts[1] + parts[0], whole + BinnedTotals(), BinnedTotals() + whole):
        assert found.to_dict()["counts"] == whole.to_dict()["counts"]
        assert found.to_dict()["histograms"] == whole.to_dict()["histograms"]
        for name, binned in whole.spread.items():
            np.testing.assert_allclose(table_of(found.spread[name]), table_of(binned), rtol=1e-9, atol=1e-12)
    assert BinnedTotals.from_dict(json.loads(json.dumps(whole.to_dict()))).to_dict() == whole.to_dict()


def test_pictures_agree_with_the_metrics(report: Report) -> None:
    n, values, found = report.whole.counts["tokens"], report.whole.values, report.pictures
    assert found is not None
    for name in ("surprise", "position"):
        count, total, squares = table_of(found.spread[name]).sum(axis=1)
        assert count == n
        assert total / n == pytest.approx(values["log_ratio_mean"], rel=1e-9)
        assert math.sqrt(squares / n - (total / n) ** 2) == pytest.approx(values["log_ratio_std"], rel=1e-9)
    sequences, total, _, tokens, kept = table_of(found.spread["length"]).sum(axis=1)
    assert (sequences, tokens, kept) == (report.whole.counts["sequences"], n, values["kept_tokens"])
    assert total / n == pytest.approx(values["log_ratio_mean"], rel=1e-9)
    assert all(scatter.counts.sum() == n for scatter in found.counts.values())
    assert report.log_ratios.counts.sum() == found.histograms["weights"].counts.sum() == n
    weight, count = found.histograms["weights"].by_value
    assert (weight * count).sum() / n == pytest.approx(values["rollout_is_applied_mean"], rel=5e-3)


def test_shares_outside_the_drawn_bounds_are_the_reported_ones(report: Report) -> None:
    n, values = report.whole.counts["tokens"], report.whole.values
    below, inside, above = rebinned(report.log_ratios, np.array([-50, math.log(0.8), math.log(1.25), 50.0]))
    lost = values["rollout_rs_token_masked_fraction"]
    assert lost is not None
    assert lost > 0.01
    assert (below + above) / n == pytest.approx(lost, rel=0.02)
    assert below + inside + above == pytest.approx(n)


def test_rebinning_keeps_every_value_and_its_place() -> None:
    values = np.random.default_rng(0).normal(0, 0.1, 5000)
    one = Histogram.of_counts(np.bincount(values.astype(np.float32).view(np.uint16)[1::2], minlength=1 << 16))
    edges = np.linspace(-0.5, 0.5, 41)
    assert rebinned(one, edges).sum() == pytest.approx(5000)
    exact = np.histogram(values, edges)[0]
    assert np.abs(rebinned(one, edges) - exact).max() <= 0.05 * exact.max()


def test_drawn_counts_are_whole_numbers_and_all_there() -> None:
    values = np.random.default_rng(0).normal(0, 0.1, 5000)
    one = Histogram.of_counts(np.bincount(values.astype(np.float32).view(np.uint16)[1::2], minlength=1 << 16))
    drawn = rebinned(one, np.linspace(-1, 1, 82))
    assert (drawn == np.round(drawn)).all()
    assert drawn.sum() == 5000


def test_a_picture_says_what_it_is_of(report: Report) -> None:
    drawn = draw("ratio", report)
    uncaptioned = figures.drawn_picture(
        figures.picture("ratio", report), source=picture_source(report), captioned=False
    )
    drawing, bare = (text.write("svg").decode() for text in (drawn, uncaptioned))
    of = "smollm2_steps.parquet · plan pictured · 27,465 tokens, 320 sequences · rlcorr"
    assert of in drawing
    assert of in bare
    assert drawn.caption[:60] in drawing
    assert drawn.caption[:60] not in bare


def test_panels_without_data_are_left_out_and_the_others_take_their_room(report: Report) -> None:
    alone = replace(report, groups=())
    with_course, without = draw("overview", report).figure, draw("overview", alone).figure
    assert with_course is not None
    assert without is not None
    assert [len(figure.axes) for figure in (with_course, without)] == [6, 5]
    assert without.axes[3].get_position().width > 1.3 * with_course.axes[3].get_position().width


def test_a_profile_is_mean_and_spread() -> None:
    values = np.array([2.0, 1.0, 4.0, 1.0])
    sums = {"sum": values, "sum_of_squares": values**2}
    found = profile(Binned.of_values(LENGTH, np.array([0, 1, 0, 1], np.uint16), sums), min_count=1)
    assert found.mean.tolist() == [3.0, 1.0]
    assert found.std.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("n", [40, 1_000_000])
def test_a_small_spread_about_a_mean_is_told_from_rounding_in_a_bin_of_any_size(n: int) -> None:
    """The values 0.999 and 1.001, as many of either: mean 1, spread 0.001; and 0.7 alone, its squares rounded up."""
    counts = np.array([n, n], np.int64)
    squares = np.array([n * (0.999**2 + 1.001**2) / 2, n * 0.7**2 * (1 + 1e-14)])
    sums = {"sum": np.array([n, 0.7 * n]), "sum_of_squares": squares}
    found = profile(Binned(LENGTH, np.array([0, 1], np.uint16), counts, sums))
    assert found.std[0] == pytest.approx(0.001, rel=1e-6)
    assert found.std[1] == 0.0


def test_a_lorenz_curve_says_who_carries_the_weight() -> None:
    loads = np.array([0.0] * 50 + [1.0] * 49 + [51.0])
    one = Histogram.of_counts(np.bincount(loads.astype(np.float32).view(np.uint16)[1::2], minlength=1 << 16))
    found = lorenz(one)
    assert found.top == pytest.approx(0.51, rel=5e-3)
    assert float(np.interp(0.5, found.sequences, found.weight)) == pytest.approx(0.0, abs=1e-12)
    assert (found.sequences[-1], found.weight[-1]) == (1.0, pytest.approx(1.0))


def test_of_400_sequences_the_heaviest_percent_are_four() -> None:
    """Powers of two, whose buckets are equally far off, so that shares are exact."""
    loads = Histogram(FLOAT_BITS.bins_of(np.array([1.0, 64.0], np.float32)), np.array([396, 4], np.int64))
    assert lorenz(loads).top == pytest.approx(256 / 652, rel=1e-12)
    assert lorenz(loads).sequences.tolist() == [0.0, 0.99, 1.0]
    shares = concentration(loads)
    assert shares is not None
    assert (shares.heavier_half, shares.heaviest_percent) == pytest.approx(((256 + 196) / 652, 256 / 652), rel=1e-12)


def halved(spread: dict[str, Any], axis: str) -> dict[str, Any]:
    """The tables with half a count in one of them."""
    counts, *sums = spread[axis]
    return {**spread, axis: [[0.5, *counts[1:]], *sums]}


def saved(document: dict[str, Any], tmp_path: Path) -> Report:
    """The report read back from a file that holds the document."""
    (tmp_path / "report.json").write_text(json.dumps(document))
    report = read_report(str(tmp_path / "report.json"))
    refuse_undrawable(report, "report.json")
    return report


def test_a_report_comes_back_from_json_and_gives_the_same_pictures(report: Report, tmp_path: Path) -> None:
    again = saved(report.to_dict(), tmp_path)
    assert again.to_dict() == report.to_dict()
    one, other = draw("overview", report), draw("overview", again)
    assert one.caption == other.caption
    assert one.write("svg") == other.write("svg")


@pytest.mark.parametrize("kind", ["overview", "metrics", "weights"])
def test_pictures_look_as_they_did(kind: str, report: Report, tmp_path: Path) -> None:
    """Against pictures that were looked at; after a change to them, look again and copy the new one."""
    path = tmp_path / f"{kind}.png"
    path.write_bytes(draw(kind, report).write("png", dpi=50))
    assert compare_images(str(BASELINE / f"{kind}.png"), str(path), tol=2) is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_svg_names_a_font_that_every_machine_has(kind: str, report: Report) -> None:
    drawn = draw(kind, report)
    if drawn.figure is None:
        assert kind == "staleness"
        return
    families = re.findall(r"font-family: ([^;\"]*)", drawn.write("svg").decode())
    assert families
    assert all(family.endswith("sans-serif") for family in families)


def test_the_course_marks_the_limit_and_the_step_from_which_k3_rises() -> None:
    collapse = Path(__file__).parents[2] / "sample_data" / "collapse.parquet"
    drawn = draw("course", api.analyze(collapse, pictures=True))
    assert drawn.figure is not None
    (ax,) = drawn.figure.axes  # no rewards are there
    assert ax.get_yscale() == "log"
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["limit 0.1"].get_ydata()[0] == 0.1
    assert lines["rises from step 1 on"].get_xdata()[0] == 1.0


ONE_TOKEN = [Row([-1.5], [-1.0], [1])]
EQUAL = [Row([-1.0, -2.0], [-1.0, -2.0], [1, 1])] * 3
CONSTANT = [Row([-1.25, -2.25], [-1.0, -2.0], [1, 1])] * 20
REJECTED = [Row([-5.0, -1.0], [-1.0, -5.0], [1, 1])] * 3
FEW_FAR = [Row([-1.0] * 5000, [-1.0] * 5000, [1] * 5000), Row([-9.0, -9.0], [-1.0, -1.0], [1, 1])]
EITHER_WAY = [Row([-1.5 + g] * 4, [-1.5] * 4, [1] * 4) for g in (-0.25, 0.25)] * 10
BY_SURPRISE = [Row([-0.1 - g, -8.0 + g], [-0.1, -8.0], [1, 1]) for g in (-0.01, 0.01)] + [
    Row([-0.1, -8.0 + g], [-0.1, -8.0], [1, 1]) for g in (-0.5, 0.5) * 20
]


def reported(rows: list[Row], tmp_path: Path, plan: Plan = PLAN) -> Report:
    columns = {"old_log_probs": [r.train for r in rows], "rollout_log_probs": [r.rollout for r in rows]}
    pq.write_table(pa.table({**columns, "step": [1] * len(rows)}), tmp_path / "d.parquet")
    return analyze(
        ReadRequest(paths=(str(tmp_path / "d.parquet"),), group_by=("step",)), ChosenPlan(plan=plan), pictures=True
    )


EXTREMES = {
    "one token": ONE_TOKEN,
    "equal": EQUAL,
    "constant": CONSTANT,
    "all rejected": REJECTED,
    "few far": FEW_FAR,
    "far": simulated(5, seed=1, mean=30, std=1),
}


@pytest.mark.full
@pytest.mark.parametrize("rows", EXTREMES)
@pytest.mark.parametrize("kind", ["overview", "metrics", "weights"])
def test_a_picture_of_extremes_is_drawn_or_says_why_not(kind: str, rows: str, tmp_path: Path) -> None:
    drawn = draw(kind, reported(EXTREMES[rows], tmp_path))
    assert drawn.caption.endswith(".")
    if drawn.figure is None:
        assert len(drawn.caption) > 20
    else:
        assert drawn.write("svg").startswith(b"<?xml")


@pytest.mark.parametrize(
    ("kind", "rows", "words"),
    [
        ("ratio", ONE_TOKEN, "lie between -0.500 and -0.500 nats; the median is -0.500."),
        ("ratio", EQUAL, "All 6 log-ratios are 0"),
        ("ratio", FEW_FAR, "Nearly all log-ratios are 0 nats; the others lie between -8"),
        ("surprise", ONE_TOKEN, "too few tokens"),
        ("surprise", BY_SURPRISE, "grows with surprise"),
        ("surprise", CONSTANT, "is much the same at any surprise: std 0 nats for"),
        ("position", CONSTANT, "does not change along the sequence: std 0 nats up to position 1, 0 from 2 on."),
        ("scatter", REJECTED, "100% of the tokens lie more than 1 nat off"),
        ("scatter", CONSTANT, "0% of the tokens lie more than 1 nat off"),
        ("length", CONSTANT, "The log-ratio of a sequence is typically 0.500 nats at the one length"),
        ("length", EITHER_WAY, "The log-ratio of a sequence is typically 1 nats at the one length"),
        ("weights", REJECTED, "Rejection then keeps nothing."),
        ("metrics", REJECTED, "All rows have step 1: a curve needs two values of it."),
        ("staleness", CONSTANT, "needs numbers in the columns step and policy_version"),
    ],
)
def test_captions_are_true(kind: str, rows: list[Row], words: str, tmp_path: Path) -> None:
    assert words in draw(kind, reported(rows, tmp_path)).caption


@pytest.mark.parametrize("kind", ["surprise", "position"])
def test_no_trend_is_told_of_log_ratios_of_two_different_tokens(kind: str) -> None:
    (picture,) = plot(str(CAUSES / "mispaired_5pct.parquet"), kind=kind)
    assert picture.caption == "These spreads say nothing about the policies: mispaired_rows compares different tokens."


def test_what_two_captions_of_a_picture_share_is_said_once() -> None:
    (picture,) = plot(str(CAUSES / "mispaired_5pct.parquet"), kind="overview")
    assert picture.caption.count("These spreads say nothing about the policies") == 1


def test_who_carries_the_gradient_is_told_of_advantages_that_no_plan_asks_for() -> None:
    table = pq.read_table(SAMPLE / "smollm2_steps.parquet")
    lengths = pc.list_value_length(table["old_log_probs"]).to_numpy()
    loads = np.sort(lengths * np.abs(table["advantage"].to_numpy()))
    (picture,) = plot(str(SAMPLE / "smollm2_steps.parquet"), kind="weights")
    share = re.match(r"The heavier half .* carries ([0-9.]+)% of the weight × .advantage.,", picture.caption)
    assert share is not None
    assert float(share[1]) / 100 == pytest.approx(loads[len(loads) // 2 :].sum() / loads.sum(), rel=0.01)


def test_capped_weights_end_at_their_cap(report: Report) -> None:
    capped = replace(report, plan=replace(PLAN, weighting=Weighting("token", Bounds(None, 1.5)), rejections=()))
    drawn = draw("weights", capped)
    assert drawn.figure is not None
    axes = drawn.figure.axes[0]
    values, edges, _ = axes.patches[0].get_data()  # pyrefly: ignore[missing-attribute]
    assert report.pictures is not None
    every = report.pictures.histograms["weights"]
    assert edges[-1] == 1.5
    assert values.sum() == every.counts.sum()
    assert values[-1] >= every.counts[every.bins == every.bins.max()].sum() > 100


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        (Plan("none"), {"Log-ratio by position", "Training against rollout log-prob"}),
        (replace(PLAN, rejections=()), {"Log-ratio by position", "Applied IS weights"}),
        (replace(PLAN, weighting=None), {"Tokens kept by length", "Training against rollout log-prob"}),
        (PLAN, {"Tokens kept by length", "Applied IS weights"}),
    ],
)
def test_the_overview_shows_what_the_plan_does(plan: Plan, shown: set[str], report: Report) -> None:
    figure = draw("overview", replace(report, plan=plan)).figure
    assert figure is not None
    titles = {axes.get_title(loc="left") for axes in figure.axes}
    always = {"Log-ratio histogram", "Log-ratio by rollout log-prob", "Sequence log-ratio by length", "k3 KL by step"}
    assert titles - {""} == always | shown


def test_weights_alone_are_not_called_the_gradient(report: Report) -> None:
    drawn = draw("weights", report)
    assert drawn.figure is not None
    titles = [axes.get_title(loc="left") for axes in drawn.figure.axes]
    assert titles == ["Applied IS weights", "Which sequences carry the weight"]
    assert "gradient" not in KINDS["weights"].about
    assert drawn.caption.endswith(panels.ASIDE)


@pytest.mark.parametrize(
    ("shift", "words"),
    [(0.0, "The mean stays small against the spread."), (0.5, "The mean leaves 0: +0.500 nats at log-probs near ")],
)
def test_the_caption_of_surprise_says_whether_the_mean_leaves_0(shift: float, words: str, tmp_path: Path) -> None:
    far = [Row([-0.1, -8.0 + g + shift], [-0.1, -8.0], [1, 1]) for g in (-0.2, 0.2) * 20]
    assert words in draw("surprise", reported(far, tmp_path)).caption


def test_weights_that_are_divided_say_so_and_show_no_carriers(tmp_path: Path) -> None:
    plan = replace(PLAN, weighting=Weighting("token", Bounds(0.7, 1.5), normalize="batch"))
    caption = draw("weights", reported(CONSTANT, tmp_path, plan)).caption
    assert "carries" not in caption


def test_a_report_that_is_not_whole_is_refused(report: Report, tmp_path: Path) -> None:
    whole = report.to_dict()
    for wrong in (
        {**whole["pictures"], "spread": {}},
        *({**whole["pictures"], "spread": halved(whole["pictures"]["spread"], axis)} for axis in AXES),
        {**whole["pictures"], "counts": {"probability": {"70": [0] * 64}}},
        {**whole["pictures"], "histograms": {"weights": [[1], [1]]}},
        {**whole["pictures"], "log_ratios": [[1, 2], [1]]},
        {**whole["pictures"], "log_ratios": [[70_000], [1]]},
    ):
        with pytest.raises(DataError, match="not a complete report"):
            saved({**whole, "pictures": wrong}, tmp_path)
    for section in (whole, *whole["groups"]):
        section["metrics"] = {name: value for name, value in section["metrics"].items() if name != "k3_kl"}
    with pytest.raises(DataError, match="it has no k3_kl"):
        saved(whole, tmp_path)
