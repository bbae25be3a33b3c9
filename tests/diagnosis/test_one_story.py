"""Every command tells the same story of a dump: its JSON names the same first cause or fault."""

import json
from pathlib import Path
from typing import Any

import pytest
from known_causes import DUMPS, VERDICTS

from rlcorr_cli import analyze, compare, diagnose
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.results.report import Report

PROVE_A_FAULT = {"top_p099": "top_p"}
"""Dumps whose mean ratio cannot be, however little of their gap its cause makes."""


def story(result: Any) -> dict[str, Any]:
    """As the JSON form has it."""
    return json.loads(json.dumps(result.to_dict()))["story"]


@pytest.mark.parametrize("name", VERDICTS)
def test_every_command_names_the_same_first(name: str) -> None:
    path = str(DUMPS / f"{name}.parquet")
    told = story(diagnose(path))
    assert story(analyze(path)) == told
    assert story(compare(path)) == told
    assert told["first"] == PROVE_A_FAULT.get(name, VERDICTS[name])
    assert len(told["do"]) <= 3


@pytest.mark.parametrize("name", VERDICTS)
def test_a_fault_has_the_effect_that_the_table_says(name: str) -> None:
    told = story(diagnose(str(DUMPS / f"{name}.parquet")))
    first = told["first"]
    expected = ALL_CAUSES[first].effect if first in ALL_CAUSES else "none"
    assert told["effect"] == ("fault" if told["faults"] else expected)
    named = [fault["name"] for fault in told["faults"] if fault["name"] != "ratio_mean"]
    assert all(ALL_CAUSES[name].effect == "fault" for name in named)


def test_no_plan_is_recommended_over_a_fault_as_if_nothing_were_wrong() -> None:
    faulty = compare(str(DUMPS / "mispaired_5pct.parquet"))
    headline = faulty.recommendation.headline
    assert headline.startswith("Likely cause: 4 rows of 64 whose two columns do not belong together.")
    assert "Fix this first. Least harmful meanwhile: " in headline
    assert "Fix this first" not in compare(str(DUMPS / "noise_bf16_fp32.parquet")).recommendation.headline


def test_a_story_is_kept_in_a_saved_report(tmp_path: Path) -> None:
    report = analyze(str(DUMPS / "top_p08.parquet"))
    data = json.loads(json.dumps(report.to_dict()))
    assert Report.from_dict(data).story == report.story
