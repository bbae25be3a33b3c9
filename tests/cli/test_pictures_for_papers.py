"""Pictures for a paper: their size, their fonts, and the numbers that they show as a table."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from running import BF16, STEPS, refused, run

from rlcorr_cli import analyze, plot
from rlcorr_cli.commands.pictures import KINDS

COLLAPSE = str(Path(__file__).parents[2] / "sample_data" / "collapse.parquet")
HEADINGS = ["panel", "series", "x", "y", "low", "high"]


def rows(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(path.read_text()))]


def test_the_table_of_a_curve_has_the_numbers_of_the_report_and_of_its_band(tmp_path: Path) -> None:
    (drawn,) = plot(COLLAPSE, tmp_path / "figure.csv", kind="course")
    report = analyze(COLLAPSE, pictures=True)
    curve = [row for row in rows(tmp_path / "figure.csv") if row["series"] == "k3_kl"]
    assert list(curve[0]) == HEADINGS
    steps = report.by_step
    assert [float(row["x"]) for row in curve] == [step.key["step"] for step in steps]
    np.testing.assert_allclose([float(row["y"]) for row in curve], [step.values["k3_kl"] for step in steps])
    ends = [step.intervals["k3_kl"] for step in steps]
    np.testing.assert_allclose([[float(row["low"]), float(row["high"])] for row in curve], ends)
    (line,) = [line for line in drawn.figure.axes[0].lines if line.get_label() == "k3_kl"]
    assert [[float(row["x"]), float(row["y"])] for row in curve] == line.get_xydata().tolist()
    (limit,) = [row for row in rows(tmp_path / "figure.csv") if row["series"] == "limit 0.1"]
    assert (limit["x"], limit["y"]) == ("", "0.1")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_table_of_what_its_panels_show(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "figure.csv"
    (drawn,) = plot(STEPS, path, kind=kind)
    if drawn.figure is None:
        assert not path.exists()
        return
    found = rows(path)
    titles = {ax.get_title(loc="left") for ax in drawn.figure.axes} - {""}
    assert {row["panel"] for row in found} == titles
    assert all(row["series"] for row in found)
    assert all(row["x"] or row["y"] for row in found)


def test_a_histograms_steps_are_in_its_table_with_their_counts(tmp_path: Path) -> None:
    plot(BF16, tmp_path / "figure.csv", kind="ratio")
    counts = [float(row["y"] or 0) for row in rows(tmp_path / "figure.csv") if row["series"] == "tokens"]
    assert sum(counts) == pytest.approx(5493, rel=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pdf_of_any_kind_has_truetype_fonts_alone(kind: str, tmp_path: Path) -> None:
    (drawn,) = plot(STEPS, tmp_path / "p.pdf", kind=kind)
    if drawn.figure is None:
        return
    pdf = (tmp_path / "p.pdf").read_bytes()
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf


def test_a_narrow_picture_has_its_width_and_its_panels_below_one_another(tmp_path: Path) -> None:
    (wide,) = plot(STEPS, tmp_path / "wide.png", kind="metrics")
    (narrow,) = plot(STEPS, tmp_path / "narrow.png", kind="metrics", width=3.3, dpi=200, no_caption=True)
    png = (tmp_path / "narrow.png").read_bytes()
    assert int.from_bytes(png[16:20], "big") == 660
    assert narrow.figure.get_figwidth() == 3.3
    assert narrow.figure.texts == []
    assert wide.figure.texts != []
    lefts = {round(ax.get_position().x0, 2) for ax in narrow.figure.axes}
    assert max(lefts) - min(lefts) < 0.1
    narrow.figure.canvas.draw()
    for ax in narrow.figure.axes:
        for text in (ax.xaxis.label, ax.yaxis.label, *ax.texts):
            box = text.get_window_extent()
            assert box.x0 >= -1, text
            assert box.x1 <= narrow.figure.bbox.x1 + 1, text


def test_wrong_sizes_are_refused_and_a_plan_beside_a_picture_of_none_is_noted(tmp_path: Path) -> None:
    out = str(tmp_path / "p.png")
    refused(run("plot", BF16, "-o", out, "--width", "1"), 2, "--width")
    refused(run("plot", BF16, "-o", out, "--dpi", "5"), 2, "--dpi")
    refused(run("plot", BF16, "-o", str(tmp_path / "p.gif")), 2, ".csv")
    both = run(
        "plot", STEPS, "--kind", "metrics", "--kind", "diagnose", "--preset", "token_is", "-o", str(tmp_path / "d")
    )
    assert both.status == 0, both.err
    assert "takes no plan" in both.err
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["diagnose.png", "metrics.png"]


def test_the_overview_begins_with_the_course(tmp_path: Path) -> None:
    (drawn,) = plot(COLLAPSE, tmp_path / "p.svg")
    assert drawn.figure.axes[0].get_title(loc="left") == "k3 KL by step"
    assert drawn.caption.startswith("k3_kl goes from")
    assert re.search(r"k3 KL by step", (tmp_path / "p.svg").read_text())
