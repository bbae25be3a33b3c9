"""Runs of many steps with a known cause, of five models: the cause, the step where it begins, and its place are named.

Made by real training, sampling and scoring of small models (llama-like, a mixture of experts, state-space layers); a
fault is in the forward pass, the sampler or the prompt, and only shifts, mispairings and grids were made afterwards.
`_truth.json` says what is true of each, as `tests/benchmarks/runs.py` explains.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import runs

from rlcorr_cli import diagnose
from rlcorr_cli.results.diagnosed import DiagnosedDump

DUMPS = Path(__file__).parent / "runs"
TRUTHS: dict[str, dict[str, Any]] = json.loads((DUMPS / "_truth.json").read_text())["files"]


@cache
def diagnosed(name: str) -> DiagnosedDump:
    return diagnose(DUMPS / f"{name}.parquet")


@pytest.mark.parametrize("name", TRUTHS)
def test_the_cause_of_a_run_is_named(name: str) -> None:
    assert runs.is_right(TRUTHS[name], diagnosed(name).whole.diagnosis)


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if truth["since_step"] is not None])
def test_the_step_at_which_it_begins_is_named_within_one(name: str) -> None:
    assert runs.onset(TRUTHS[name], diagnosed(name).whole.diagnosis)


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if truth["where"] is not None])
def test_the_place_of_a_run_is_named(name: str) -> None:
    assert runs.is_placed(TRUTHS[name], diagnosed(name).whole.diagnosis)


def test_missed_updates_come_before_what_they_make_of_the_places_of_a_row() -> None:
    assert diagnosed("math__sync_missed_4th").story.first == "other_weights"


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if "also" in truth])
def test_both_of_two_faults_are_named(name: str) -> None:
    assert runs.are_both_named(TRUTHS[name], diagnosed(name))


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if truth["kind"].startswith("clean")])
def test_a_clean_run_raises_no_alarm(name: str) -> None:
    assert diagnosed(name).story.effect == "none"
