"""Pictures of groups: intervals as bands, and bars of groups without an order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from matplotlib.patches import Rectangle
from reported import analyze

from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.trends import course
from rlcorr_cli.show.figures import draw
from rlcorr_cli.show.numbers import number

SAMPLE = Path(__file__).parents[2] / "sample_data"
PLAN = Plan(
    "pictured",
    Weighting("token", Bounds(0.7, 1.5)),
    (Rejection("ratio", "token", Bounds(0.8, 1.25), "token"), veto(1e-4)),
)


@pytest.fixture(scope="module")
def report() -> Report:
    reading = ReadRequest(paths=(str(SAMPLE / "smollm2_steps.parquet"),), group_by=("step",))
    return analyze(reading, ChosenPlan(plan=PLAN), pictures=True)


def test_a_group_has_the_interval_of_a_dump_of_its_rows_alone(report: Report, tmp_path: Path) -> None:
    table = pq.read_table(SAMPLE / "smollm2_steps.parquet")
    for group in report.groups[:2]:
        rows = table.filter(pc.equal(table["step"], group.key["step"]))
        pq.write_table(rows, tmp_path / "rows.parquet")
        alone = analyze(ReadRequest(paths=(str(tmp_path / "rows.parquet"),)), ChosenPlan(plan=PLAN))
        assert group.intervals == {name: pytest.approx(ends, rel=1e-9) for name, ends in alone.intervals.items()}


def test_one_sequence_has_no_interval(tmp_path: Path) -> None:
    pq.write_table(pq.read_table(SAMPLE / "smollm2_steps.parquet").slice(0, 1), tmp_path / "d.parquet")
    reading = ReadRequest(paths=(str(tmp_path / "d.parquet"),), group_by=("step",))
    (group,) = analyze(reading, ChosenPlan(plan=PLAN), pictures=True).groups
    assert group.intervals == {}


def bands_and_legends(kind: str, report: Report) -> list[tuple[int, list[str]]]:
    """Of each panel how many bands it has, and what its legend says."""
    figure = draw(kind, report).figure
    assert figure is not None
    return [
        (len(ax.collections), [text.get_text() for text in legend.get_texts()])
        for ax in figure.axes
        if (legend := ax.get_legend()) is not None
    ]


def test_curves_over_steps_have_bands_where_groups_have_intervals(report: Report) -> None:
    n_bands = [n for n, _ in bands_and_legends("metrics", report)]
    assert n_bands == [0, 0, 0, 2, 1, 1]
    without = replace(report, groups=tuple(replace(group, intervals={}) for group in report.groups))
    assert [n for n, _ in bands_and_legends("metrics", without)] == [0] * 6


def test_chi_squared_of_few_effective_sequences_is_blank(report: Report) -> None:
    effective = [(group.values["seq_ess"] or 0.0) * group.counts["sequences"] for group in report.groups]
    curve = course(report.groups, ["chi2_seq"]).values["chi2_seq"]
    assert np.isfinite(curve).tolist() == [size >= 10 for size in effective] == [True, True, False, False, False]
    assert "χ² of sequences is blank in 3 of 5 groups" in draw("metrics", report).caption
    first = replace(report, groups=report.groups[:2])
    assert "blank" not in draw("metrics", first).caption


@pytest.mark.parametrize(("means", "scale"), [((0.5, 1.0, 2.0), "linear"), ((0.5, 1.0, 1.2e7), "log")])
def test_mean_weights_far_apart_stand_on_a_logarithmic_axis(
    means: tuple[float, ...], scale: str, report: Report
) -> None:
    groups = [
        replace(group, values={**group.values, "rollout_is_mean": mean})
        for group, mean in zip(report.groups, means, strict=False)
    ]
    figure = draw("metrics", replace(report, groups=tuple(groups))).figure
    assert figure is not None
    assert figure.axes[0].get_yscale() == scale


def test_sample_size_is_drawn_before_and_after_rejection(report: Report) -> None:
    assert bands_and_legends("metrics", report)[1][1] == ["before rejection", "after rejection", "limit 0.3"]
    plan = replace(PLAN, weighting=None)
    caption = draw("metrics", replace(report, plan=plan)).caption
    first, last = (number(report.groups[i].values["kept_seq_ess"]) for i in (0, -1))
    assert f"The ESS of what is kept goes from {first} to {last}; it is smallest" in caption


def test_groups_without_an_order_stand_side_by_side_as_bars(report: Report) -> None:
    named = [replace(group, key={"source": f"source {group.key['step']}"}) for group in report.groups]
    figure = draw("metrics", replace(report, groups=tuple(named))).figure
    assert figure is not None
    shares = figure.axes[2]
    assert [label.get_text() for label in shares.get_xticklabels()] == [f"source {i}" for i in range(5)]
    heights = [bar.get_height() for bar in shares.patches if isinstance(bar, Rectangle)]
    assert heights[:5] == [group.values["rollout_rs_masked_fraction"] for group in report.groups]
    many = tuple(replace(named[i % 5], key={"source": f"source {i}"}) for i in range(20))
    figure = draw("overview", replace(report, groups=many)).figure
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "source (of 20, the largest k3_kl)"
    assert len(figure.axes[0].get_xticklabels()) == 12
