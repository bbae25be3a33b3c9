"""Peers' own functions, run once in float64 (tests/golden/README.md), against the profile of each."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from made import library, normed

from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.measure.arrays import host
from rlcorr_cli.measure.correct import Corrected, correct
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.catalog import canonical, logged_name
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.view import Numbers, Values

pytestmark = pytest.mark.usefixtures("every_library")

GOLDEN = Path(__file__).parent.parent / "golden"
CASES: dict[str, Any] = json.loads((GOLDEN / "expected_metrics.json").read_text())
ROWS: list[dict[str, Any]] = pq.read_table(GOLDEN / "input.parquet").to_pylist()
MASKS = [np.array(row["response_mask"], bool) for row in ROWS]


def golden_batch() -> Batch:
    train, rollout = (
        [np.array(row[name], np.float32)[mask] for row, mask in zip(ROWS, MASKS, strict=True)]
        for name in ("old_log_probs", "rollout_log_probs")
    )
    return Batch(
        offsets=np.cumsum([0, *(mask.sum() for mask in MASKS)]).astype(np.int64),
        old_logp=np.concatenate(train),
        rollout_logp=np.concatenate(rollout),
        current_logp=None,
        advantages=None,
        n_masked=np.array([(~mask).sum() for mask in MASKS]),
        reward=np.array([row["reward"] for row in ROWS]),
        group_index=np.zeros(len(ROWS), np.int32),
        group_keys=((None,),),
    )


def plan_of(case: str) -> Plan:
    return PROFILES[case.split("/")[0]].read(CASES[case]["config"])


def measured(case: str) -> Values:
    plan = plan_of(case)
    observation = Observation(plans=(plan,), seed=None)
    totals = normed(observe(golden_batch(), observation, library()).totals, plan)
    assert totals.keys == ((None,),)
    return PROFILES[case.split("/")[0]].write(Numbers.of_plan(totals, plan, 0), plan)


@cache
def expected_tokens() -> dict[tuple[str, str], dict[str, Any]]:
    rows = pq.read_table(GOLDEN / "expected_tokens.parquet").to_pylist()
    return {(row["case"], row["sample_id"]): row for row in rows}


def test_the_golden_file_has_forty_cases_of_five_peers() -> None:
    assert len(CASES) == 40
    # verl 0.8 is held to 0.9 and to slow loops in test_verl_0_8.py.
    assert {case.split("/")[0] for case in CASES} == set(PROFILES) - {"verl-0.8"}


@pytest.mark.parametrize("case", CASES)
def test_metrics_are_the_peers(case: str) -> None:
    found, expected = measured(case), CASES[case]["metrics"]
    assert set(found) == set(expected)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


ON_THESE_ROWS = ("without valid tokens", "samples of one rollout")
"""What the names table says of rows that are not here: empty ones, and several of one rollout."""


@pytest.mark.parametrize("case", CASES)
def test_names_without_a_difference_are_the_metrics(case: str) -> None:
    plan = plan_of(case)
    observation = Observation(plans=(plan,), seed=None)
    totals = normed(observe(golden_batch(), observation, library()).totals, plan)
    ours = canonical(Numbers.of_plan(totals, plan, 0), plan)
    rows = {name: logged_name(name) for name in CASES[case]["metrics"]}
    departs = (
        "0.6 leaves",
        "0.8",
        "Before any",
        "without a veto",
        *(("2025-10",) if case.startswith("verl-mismatch") else ()),
    )
    alike = {
        name: row.canonical
        for name, row in rows.items()
        if row is not None
        and (not row.difference or any(words in row.difference for words in ON_THESE_ROWS))
        and not any(words in row.difference for words in departs)
    }
    assert len(alike) >= 8
    expected = {ours_name: CASES[case]["metrics"][name] for name, ours_name in alike.items()}
    assert {name: ours.get(name) for name in expected} == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_masks_are_the_peers(case: str) -> None:
    corrected = correct(Tokens.of(golden_batch(), library()), plan_of(case))
    everything = np.ones(int(sum(mask.sum() for mask in MASKS)), bool)
    keep = everything if corrected.keep is None else host(corrected.keep)
    for row, found in zip(ROWS, padded(keep.astype(np.int8)), strict=True):
        assert found.tolist() == expected_tokens()[case, row["sample_id"]]["response_mask"], row["sample_id"]


@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_peers(case: str) -> None:
    corrected = correct(Tokens.of(golden_batch(), library()), plan_of(case))
    if corrected.weighted is None:
        assert all(expected_tokens()[case, row["sample_id"]]["weights"] is None for row in ROWS)
        return
    for row, found in zip(ROWS, padded(token_weights(corrected)), strict=True):
        expected = expected_tokens()[case, row["sample_id"]]["weights"]
        assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-12), row["sample_id"]


def token_weights(corrected: Corrected) -> np.ndarray:
    """One weight for each valid token, divided by the mean over units where the plan normalises."""
    assert corrected.weighted is not None
    weighting, weights = corrected.weighted.weighting, corrected.weighted.applied
    if weighting.normalize == "batch":
        weights = weights / weights.mean()
    if weighting.scope != "token":
        weights = Tokens.of(golden_batch(), library()).rows.spread(weights)
    return host(weights)


def padded(valid: np.ndarray) -> list[np.ndarray]:
    """Values of valid tokens back in their rows, 0 on masked tokens."""
    flat = np.zeros(sum(len(mask) for mask in MASKS), valid.dtype)
    flat[np.concatenate(MASKS)] = valid
    return np.split(flat, np.cumsum([len(mask) for mask in MASKS])[:-1])
