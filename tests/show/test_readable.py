"""Every panel can be read, whatever the dump: three labelled ticks on an axis, no text on another or off the canvas."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from reported import analyze

from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting, veto
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.figures import draw, style

NOTHING = Plan("disabled")
TOKEN = Plan(
    "a plan with a name that is longer than most",
    Weighting("token", Bounds(0.7, 1.5)),
    (Rejection("ratio", "token", Bounds(0.8, 1.25), "token"), veto(1e-4)),
)
CLAMPED = Plan("clamped", Weighting("token", Bounds(None, 2.0)))
GATED = Plan("gated", Weighting("token", Bounds(None, 2.0), gate="positive"))
UNBOUNDED = Plan("unbounded", Weighting("sequence", Bounds(None, None)))
GEOMETRIC = Plan("geometric", None, (Rejection("ratio", "seq_mean", Bounds(0.999, 1.001), "geometric"),))
KINDS = ("overview", "metrics", "weights", "length")
PLANNED = frozenset(
    {"one token", "one length", "long and short", "two steps", "huge values", "tiny values", "advantages"}
)
"""Shapes whose plan is drawn, too."""
Columns = dict[str, list[Any]]


def dump(
    lengths: list[int],
    noise: float | list[float] = 0.1,
    depth: float = 1.0,
    shift: float = 0.0,
    **columns: list[Any],
) -> Columns:
    """Rows of these lengths, with log-ratios of this spread, or of one spread for each row."""
    rng = np.random.default_rng(0)
    spreads = noise if isinstance(noise, list) else [noise] * len(lengths)
    rollout = [-rng.exponential(depth, n) for n in lengths]
    gaps = [rng.normal(shift, 1, n) * spread for n, spread in zip(lengths, spreads, strict=True)]
    train = [np.minimum(b + gap, 0.0) for b, gap in zip(rollout, gaps, strict=True)]
    return {"old_log_probs": [*map(list, train)], "rollout_log_probs": [*map(list, rollout)], **columns}


def equal(lengths: list[int], gap: float, **columns: list[Any]) -> Columns:
    """Rows whose every token has the same log-probs."""
    return {
        "old_log_probs": [[-1.0 - gap] * n for n in lengths],
        "rollout_log_probs": [[-1.0] * n for n in lengths],
        **columns,
    }


def steps(n: int, each: int = 4, first: int = 0, by: float = 1) -> list[Any]:
    return [first + by * i for i in range(n) for _ in range(each)]


def names(n: int, text: str) -> list[Any]:
    return [f"{text}{i}" for i in range(n) for _ in range(4)]


SHAPES: dict[str, tuple[Callable[[], Columns], Plan, str | None]] = {
    "one sequence": (lambda: dump([40]), NOTHING, None),
    "one token": (lambda: dump([1]), TOKEN, None),
    "two tokens": (lambda: dump([2]), CLAMPED, None),
    "one length": (lambda: dump([64] * 40), TOKEN, None),
    "length one": (lambda: dump([1] * 60), TOKEN, None),
    "two lengths": (lambda: dump([63] * 20 + [64] * 20), NOTHING, None),
    "long and short": (lambda: dump([1] * 10 + [20_000]), TOKEN, None),
    "one step": (lambda: dump([30] * 8, step=[3] * 8), TOKEN, "step"),
    "two steps": (lambda: dump([30] * 8, step=steps(2)), TOKEN, "step"),
    "three steps": (lambda: dump([30] * 12, step=steps(3, first=7)), CLAMPED, "step"),
    "two hundred steps": (lambda: dump([5] * 800, step=steps(200)), TOKEN, "step"),
    "late steps": (lambda: dump([30] * 16, step=steps(4, first=10_000_000)), TOKEN, "step"),
    "far steps": (lambda: dump([30] * 16, step=steps(4, by=250_000)), UNBOUNDED, "step"),
    "fractions": (lambda: dump([30] * 16, heat=steps(4, by=0.125)), TOKEN, "heat"),
    "steps of a growing gap": (
        lambda: dump([40] * 20, [0.001 * 8**i for i in range(5) for _ in range(4)], step=steps(5)),
        TOKEN,
        "step",
    ),
    "equal columns": (lambda: equal([20] * 8, 0.0, step=steps(2)), TOKEN, "step"),
    "constant gap": (lambda: equal([20] * 8, 0.25, step=steps(2)), TOKEN, "step"),
    "constant tiny gap": (lambda: equal([20] * 8, 1e-9, step=steps(2)), CLAMPED, "step"),
    "constant huge gap": (lambda: equal([20] * 8, 800.0, step=steps(2)), CLAMPED, "step"),
    "tiny values": (lambda: dump([50] * 20, 1e-7, step=steps(5)), CLAMPED, "step"),
    "huge values": (lambda: dump([50] * 20, 30.0, 100.0, step=steps(5)), UNBOUNDED, "step"),
    "shifted": (lambda: dump([50] * 20, 0.5, 5.0, shift=-3.0, step=steps(5)), TOKEN, "step"),
    "likely tokens": (lambda: dump([50] * 20, 1e-6, 1e-5), TOKEN, None),
    "two groups": (lambda: dump([30] * 8, source=names(2, "worker ")), TOKEN, "source"),
    "two hundred groups": (lambda: dump([5] * 800, source=names(200, "worker ")), TOKEN, "source"),
    "long names": (lambda: dump([30] * 12, source=names(3, "name of a worker " * 9)), TOKEN, "source"),
    "a long column": (lambda: {**dump([30] * 12), "column " * 20: steps(3)}, TOKEN, "column " * 20),
    "rewards": (lambda: dump([30] * 12, reward=[0.5] * 12, step=steps(3)), GEOMETRIC, "step"),
    "everything rejected": (lambda: dump([30] * 12, 5.0, step=steps(3)), GEOMETRIC, "step"),
    "advantages": (lambda: dump([30] * 12, advantages=[1.0, -0.5, 0.0] * 4), GATED, None),
}
STALE = {
    "two lags": [0, 1, 0, 1],
    "three lags": [0, 1, 4, 4],
}


def reported(columns: Columns, plan: Plan, by: str | None, folder: Path) -> Report:
    path = folder / "a dump with a name that is far too long to be shown whole.parquet"
    pq.write_table(pa.table(columns), path)
    reading = ReadRequest(paths=(str(path),), group_by=() if by is None else (by,))
    return analyze(reading, ChosenPlan(plan=plan), pictures=True)


def drawn_small(figure: Figure) -> None:
    """Lay a figure out, so that its texts know where they are."""
    figure.set_dpi(72)
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()


def shown_labels(axis: Axis) -> list[Text]:
    """The labels of the ticks inside the limits."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-6 * (high - low)
    labelled = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
    return [label for place, label in labelled if label.get_text() and low - slack <= place <= high + slack]


def axes_with_ticks(ax: Axes) -> list[Axis]:
    """The axes of a panel; a colour bar has one."""
    return [ax.yaxis] if ax.get_label() == "<colorbar>" else [ax.xaxis, ax.yaxis]


def has_names(ax: Axes) -> bool:
    """Whether names stand below bars, or lags below points."""
    return any(isinstance(drawn, BarContainer) for drawn in ax.containers) or "lies behind" in ax.get_xlabel()


def texts_of(figure: Figure) -> list[Text]:
    texts = list(figure.texts)
    for ax in figure.axes:
        legend = ax.get_legend()
        texts += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label]
        texts += [] if legend is None else legend.get_texts()
        for axis in axes_with_ticks(ax):
            texts += [*shown_labels(axis), axis.get_offset_text()]
    return [text for text in texts if text.get_text() and text.get_visible()]


def faults(figure: Figure) -> list[str]:
    """What cannot be read in a figure that was laid out."""
    wrong = [
        f"{ax.get_title(loc='left')}: {axis.get_label_text()} has {len(shown_labels(axis))} labelled ticks"
        for ax in figure.axes
        for axis in axes_with_ticks(ax)
        if len(shown_labels(axis)) < (2 if axis is ax.xaxis and has_names(ax) else 3)
    ]
    texts = texts_of(figure)
    boxes = np.array([text.get_window_extent().extents for text in texts])
    width, height = figure.bbox.size
    outside = (boxes[:, :2] < -0.5).any(axis=1) | (boxes[:, 2] > width + 0.5) | (boxes[:, 3] > height + 0.5)
    wrong += [f"{text.get_text()!r} leaves the canvas" for text, out in zip(texts, outside, strict=True) if out]
    # A line's box is a little taller than its letters.
    x0, y0, x1, y1 = boxes[:, 0] + 0.5, boxes[:, 1] + 1.5, boxes[:, 2] - 0.5, boxes[:, 3] - 1.5
    over = (x0[:, None] < x1) & (x0 < x1[:, None]) & (y0[:, None] < y1) & (y0 < y1[:, None])
    return wrong + [
        f"{texts[i].get_text()!r} lies on {texts[j].get_text()!r}"
        for i, j in zip(*np.nonzero(np.triu(over, 1)), strict=True)
    ]


def test_what_cannot_be_read_is_found() -> None:
    figure = Figure((4, 3))
    ax = figure.add_subplot()
    ax.plot([0, 1], [0, 1])
    ax.set_xticks([0.0, 0.01], ["zero", "nearly zero"])
    figure.text(0.9, 0.5, "a text that goes on and on")
    drawn_small(figure)
    told = " ".join(faults(figure))
    assert "has 2 labelled ticks" in told
    assert "'zero' lies on 'nearly zero'" in told
    assert "'a text that goes on and on' leaves the canvas" in told


def test_a_title_stands_above_the_power_of_ten_of_an_axis() -> None:
    with style.styled():
        figure = style.blank(4, 3)
        ax = figure.add_subplot()
        ax.plot([0, 1], [0, 1e-12])
        ax.set_title("a title")
        style.heads([ax])
    drawn_small(figure)
    assert ax.yaxis.get_offset_text() in texts_of(figure)
    assert faults(figure) == []


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_every_panel_can_be_read(shape: str, tmp_path: Path) -> None:
    columns, plan, by = SHAPES[shape]
    report = reported(columns(), plan, by, tmp_path)
    for kind in KINDS if shape in PLANNED else KINDS[:2]:
        figure = draw(kind, report).figure
        if figure is not None:
            drawn_small(figure)
            assert faults(figure) == [], kind


@pytest.mark.parametrize("lags", STALE)
def test_staleness_can_be_read(lags: str, tmp_path: Path) -> None:
    columns = dump([30] * 16, step=steps(4), policy_version_lag=STALE[lags] * 4)
    path = tmp_path / "stale.parquet"
    pq.write_table(pa.table(columns), path)
    reading = ReadRequest(paths=(str(path),), group_by=("step", "policy_version_lag"))
    figure = draw("staleness", analyze(reading, ChosenPlan(plan=NOTHING), pictures=True)).figure
    assert figure is not None
    drawn_small(figure)
    assert faults(figure) == []


@pytest.mark.full
def test_ten_million_tokens_can_be_read(tmp_path: Path) -> None:
    report = reported(dump([40] * 20, step=steps(5)), TOKEN, "step", tmp_path)
    assert report.pictures is not None
    pictures, ratios = report.pictures, report.log_ratios
    for _ in range(14):
        pictures, ratios = pictures + pictures, ratios + ratios
    counts = {name: n << 14 for name, n in report.whole.counts.items()}
    many = replace(report, pictures=pictures, log_ratios=ratios, whole=replace(report.whole, counts=counts))
    assert many.whole.counts["tokens"] > 10**7
    for kind in (*KINDS, "ratio", "scatter", "surprise", "position"):
        figure = draw(kind, many).figure
        if figure is not None:
            drawn_small(figure)
            assert faults(figure) == [], kind
