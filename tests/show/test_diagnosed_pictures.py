"""Pictures of a diagnosis: each cause's evidence is drawn from its dump, and the caption says what is to be seen."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from diagnoses import WORKER_DUMP, diagnosis, dump
from matplotlib.axes import Axes

from rlcorr_cli import api
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.gap import GapTotals
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show import forms
from rlcorr_cli.show.diagnose import document
from rlcorr_cli.show.figures import style
from rlcorr_cli.show.figures.causes import EVIDENCE, SPREAD_EDGES, between, evidence, quantile

DUMPS = Path(__file__).parents[1] / "diagnosis" / "causes"


@cache
def of(name: str) -> DiagnosedDump:
    return api.diagnose(str(DUMPS / f"{name}.parquet"))


def finding(cause: str, **parameters: float | str) -> CauseFinding:
    return CauseFinding(cause=cause, share=0.5, parameters=parameters, headline=cause, evidence=(), advice="")


def drawn(name: str, cause: CauseFinding | None) -> tuple[Axes, str]:
    """The panel of a cause on a dump, whatever its verdict, and its caption."""
    _, draw = evidence(of(name), cause)
    with style.styled():
        axes = style.blank(5, 4).add_subplot()
        return axes, draw(axes)


SEEN = [
    ("top_p08", finding("top_p", top_p=0.794), "Left of the bound rollout_log_probs is exactly 0 on 1,582 of 1,599"),
    ("min_p005", finding("min_p", min_p=0.05), "rollout_log_probs is exactly 0 on 758 tokens, and no one bound parts"),
    ("temp09_processed_vs_raw", finding("temperature"), "The mean runs along a line of slope −0.094"),
    ("stale_4", finding("stale_policy"), "The mean lies 0.0319 from 0 at unlikely tokens and 0.0365 at likely ones"),
    ("eos_wrong_id", finding("last_token"), "10 of 64 such tokens are off by a factor of 2 or more, and 0 of the"),
    ("tool_retokenised", finding("mask_boundary"), "189 of 320 such tokens are off by a factor of 2 or more, and 68"),
    ("window64", finding("position_onset", index=48), "The typical size goes from 0.0555 at the start to 2.274"),
    (
        "noise_bf16_fp32",
        finding("noise"),
        "68% of the tokens lie within 0.0661 of the middle at unlikely ones, 0.0697 at middling ones",
    ),
    (
        "mispaired_5pct",
        finding("mispaired_rows"),
        "68% of the tokens lie within 5.151 of the middle in odd rows, and within 0.0958",
    ),
    ("stale_mixed_versions", finding("some_rows"), "Half of the 64 rows lie below"),
    ("rep11", finding("repetition_penalty"), "Tokens that repeat lie +1.9 from new ones of the same surprise"),
    (
        "worker_temp09",
        finding("column", column="worker"),
        "Worker w3 holds 69% of the gap; the surprise of its tokens",
    ),
]


@pytest.mark.parametrize(("name", "cause", "caption"), SEEN, ids=lambda each: getattr(each, "cause", str(each)[:20]))
def test_a_cause_is_seen_in_the_picture_of_its_dump(name: str, cause: CauseFinding, caption: str) -> None:
    axes, sentence = drawn(name, cause)
    assert sentence.startswith(caption)
    assert sentence.endswith(".")
    assert axes.has_data()


def test_every_cause_has_a_panel() -> None:
    assert set(EVIDENCE) <= set(CAUSES)
    titles = {name: evidence(of("top_p08"), finding(name))[0] for name in CAUSES}
    assert titles["top_p"] != titles["temperature"] == titles["stale_policy"] != titles["noise"]
    assert evidence(of("top_p08"), None)[0] == titles["temperature"]


def test_the_bound_of_a_top_p_stands_at_its_surprise() -> None:
    axes, _ = drawn("top_p08", finding("top_p", top_p=0.794))
    (bound,) = [line for line in axes.get_lines() if line.get_label() == "log 0.794"]
    assert np.asarray(bound.get_xdata())[0] == pytest.approx(-np.log(0.794))


def test_the_line_of_a_temperature_is_that_of_all_tokens() -> None:
    axes, _ = drawn("temp09_processed_vs_raw", finding("temperature"))
    (fitted,) = [line for line in axes.get_lines() if str(line.get_label()).startswith("line, slope")]
    x, y = (np.asarray(ends) for ends in fitted.get_data())
    # Rollout at 0.9 of training's temperature: v = 0.9 u and a constant.
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(-0.1, abs=0.01)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("clean_fp32", "temperature"),
        ("noise_bf16_fp32", "mispaired_rows"),
        ("noise_bf16_fp32", "mask_boundary"),
        ("noise_bf16_fp32", "column"),
    ],
)
def test_what_a_dump_does_not_have_is_not_drawn(name: str, cause: str) -> None:
    with pytest.raises(Missing):
        drawn(name, finding(cause))


def test_nothing_is_drawn_of_no_tokens() -> None:
    empty = replace(WORKER_DUMP, whole=replace(WORKER_DUMP.whole, totals=GapTotals()))
    for name in set(CAUSES) - {"column"}:
        with pytest.raises(Missing), style.styled():
            evidence(empty, finding(name))[1](style.blank(5, 4).add_subplot())


def test_two_causes_stand_side_by_side_and_minor_ones_are_left_out() -> None:
    both = of("combo_topp09_eos0")
    picture = forms.whole_picture(document(both))
    assert picture.figure is not None
    assert sorted(axes.get_title(loc="left") for axes in picture.figure.axes) == [
        "Size of the gap by place",
        "Tokens that are certain on one side",
    ]
    minor = tuple(replace(cause, is_minor=cause.cause != "top_p") for cause in both.causes)
    whole = replace(both.whole, diagnosis=replace(both.whole.diagnosis, causes=minor))
    alone = forms.whole_picture(document(replace(both, whole=whole)))
    assert alone.figure is not None
    assert len(alone.figure.axes) == 1


def test_without_a_panel_there_is_no_picture_and_the_conclusion_says_why() -> None:
    picture = forms.whole_picture(document(dump(diagnosis("too_few", conclusion="Too little data to tell."))))
    assert (picture.figure, picture.caption) == (None, "Too little data to tell.")


@pytest.mark.parametrize(("cause", "status"), [("top_p08", "fail"), ("noise_bf16_fp32", "ok"), ("clean_fp32", "ok")])
def test_a_page_is_red_where_a_cause_is_named(cause: str, status: str) -> None:
    assert document(of(cause)).status == status


def test_tokens_of_d_between_edges_are_those_of_their_bins() -> None:
    counts = np.zeros(len(SPREAD_EDGES) - 1)
    counts[len(counts) // 2] = 8.0
    middle = SPREAD_EDGES[len(counts) // 2], SPREAD_EDGES[len(counts) // 2 + 1]
    assert middle == (-1e-3, 1e-3)
    assert between(counts, np.array([-1.0, 0.0, 0.5e-3, 1.0])).tolist() == pytest.approx([4, 2, 2])
    assert quantile(counts, 0.75) == pytest.approx(0.5e-3)
