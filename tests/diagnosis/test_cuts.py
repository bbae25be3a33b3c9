"""What `proven` rests on: rollouts of a peaked model that were cut, all or in part, and others that look like it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from rlcorr_cli import diagnose
from rlcorr_cli.results.diagnosed import DiagnosedDump

ROWS, LENGTH, VOCABULARY = 192, 30, 150
Logits = NDArray[np.float64]


def normalised(logits: Logits) -> Logits:
    """Log-softmax over the last axis."""
    held = logits - logits.max(-1, keepdims=True)
    return held - np.log(np.exp(held).sum(-1, keepdims=True))


def peaked(
    seed: int, *, top_p: float = 1.0, min_p: float = 0.0, cut: float = 1.0, stale: float = 0.0, shifted: float = 0.0
) -> DiagnosedDump:
    """A model that is sure of seven tokens in ten.  cut: the share of rows that were cut; shifted: of those whose
    training column lies one token early; stale: how far training's logits move from row to row, in seven sizes."""
    rng = np.random.default_rng(seed)
    drift = rng.normal(size=VOCABULARY)
    columns: dict[str, Any] = {"rollout_log_probs": [], "old_log_probs": [], "token_ids": []}
    for row in range(ROWS):
        logits = rng.normal(size=(LENGTH, VOCABULARY)) * rng.uniform(1, 3, (LENGTH, 1))
        sure = rng.random(LENGTH) < 0.7
        logits[sure, rng.integers(0, VOCABULARY, sure.sum())] += rng.uniform(8, 14, sure.sum())
        sampled = normalised(logits)
        if row < cut * ROWS:
            order = np.sort(sampled, -1)[:, ::-1]
            mass = np.exp(order).cumsum(-1) - np.exp(order)
            least = np.where(mass < top_p, order, 0.0).min(-1, keepdims=True)
            if min_p:
                least = order[:, :1] + np.log(min_p)
            sampled = normalised(np.where(sampled < least, -1e9, sampled))
        token = (sampled + rng.gumbel(size=sampled.shape)).argmax(-1)
        moved = stale * (row % 7) * (drift + rng.normal(size=VOCABULARY))
        at = np.arange(LENGTH)
        train = normalised(logits + moved + 0.01 * rng.normal(size=logits.shape))[at, token]
        if row >= (1 - shifted) * ROWS:
            train = np.append(train[1:], 0.0)
        columns["rollout_log_probs"].append(sampled[at, token].astype(np.float32))
        columns["old_log_probs"].append(train.astype(np.float32))
        columns["token_ids"].append(token.astype(np.int32))
    return diagnose(pa.table(columns))


@pytest.mark.parametrize("settings", [{"top_p": 0.95}, {"min_p": 0.06}], ids=str)
def test_sure_tokens_say_nothing_for_top_p_against_min_p(settings: dict[str, float]) -> None:
    (name, value), cause = *settings.items(), peaked(0, **settings).whole.diagnosis.cause
    assert cause is not None
    assert cause.cause == name
    assert cause.parameters[name] == pytest.approx(value, abs=0.003)
    assert name == "min_p" or cause.certainty == "proven"


@pytest.mark.parametrize("cut", [0.4, 0.85])
@pytest.mark.parametrize("settings", [{"top_p": 0.95}, {"min_p": 0.06}], ids=str)
def test_a_cut_of_some_rows_has_no_number_and_is_not_proven(settings: dict[str, float], cut: float) -> None:
    cause = peaked(0, cut=cut, **settings).whole.diagnosis.cause
    assert cause is not None
    assert {cause.cause} == settings.keys()
    assert cause.certainty == "likely"
    assert not cause.intervals
    assert f"a cut on some rows ({cause.parameters['rows']} of {ROWS})" in cause.headline


def test_a_top_p_beside_staleness_is_not_proven_and_leaves_no_unscored_tokens() -> None:
    found = peaked(0, top_p=0.9, stale=0.25)
    assert found.verdict == "top_p"
    assert found.whole.diagnosis.causes[0].certainty != "proven"
    assert not found.anomalies


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_shifted_are_no_swapped_columns(seed: int) -> None:
    found = peaked(seed, shifted=1 / 3)
    assert found.verdict == "slipped_rows"
    assert not found.anomalies
