"""A mean ratio away from 1 proves a column wrong; ordinary gaps, however large, prove nothing."""

import math
import random

import numpy as np
import pytest
from made import batch
from oracle import Row

from rlcorr_cli.causes.diagnosis import Impossible
from rlcorr_cli.causes.exact import TOO_HIGH, TOO_LOW, Mean, impossible_ratio, proof
from rlcorr_cli.totals.row_sample import RowSample

VOCABULARY = 40


def concluded(rows: list[Row]) -> Impossible | None:
    of = batch(rows)
    assert of.old_logp is not None
    none = np.zeros(of.n_rows, np.uint64)
    sample = RowSample(
        keys=none,
        n_valid=of.lengths,
        n_tokens=of.lengths,
        ids=none,
        prompts=none,
        advantages=np.full(of.n_rows, np.nan),
        rollout=of.rollout_logp,
        train=of.old_logp,
    )
    return impossible_ratio(sample)


def drawn(n: int, seed: int, noise: float, kept: float = 1.0, temperature: float = 1.0) -> list[Row]:
    """Rows drawn token by token from a policy of which only the likeliest `kept` is drawn, scored by a noisy copy.

    temperature: rollout's own log-probs are multiplied by it after they were drawn.
    """
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for _ in range(n):
        logits = rng.normal(0, 2, (30, VOCABULARY))
        rollout = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        scores = logits + rng.normal(0, noise, logits.shape)
        train = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        order = np.argsort(-rollout, axis=1)
        before = np.take_along_axis(np.exp(rollout), order, 1).cumsum(1) - np.take_along_axis(np.exp(rollout), order, 1)
        stays = np.zeros_like(rollout, dtype=bool)
        np.put_along_axis(stays, order, before < kept, 1)
        cut = np.where(stays, rollout, -np.inf)
        cut -= np.log(np.exp(cut).sum(1, keepdims=True))
        tokens = [int(rng.choice(VOCABULARY, p=np.exp(p))) for p in cut]
        b = [float(cut[t, token]) * temperature for t, token in enumerate(tokens)]
        a = [float(train[t, token]) for t, token in enumerate(tokens)]
        rows.append(Row(a, b, [1] * 30, advantages=[0.0] * 30))
    return rows


@pytest.mark.parametrize("kept", [0.8, 0.9, 0.97])
def test_truncated_log_probs_are_found(kept: float) -> None:
    found = concluded(drawn(60, seed=1, noise=0.05, kept=kept))
    assert found is not None
    assert (found.metric, found.proves) == ("ratio_mean", TOO_LOW)
    assert found.value == pytest.approx(kept, abs=0.06)
    assert found.interval[0] < found.value < found.interval[1] < 1


def test_scaled_log_probs_are_found() -> None:
    found = concluded(drawn(60, seed=1, noise=0.05, temperature=1.4))
    assert found is not None
    assert found.proves == TOO_HIGH


@pytest.mark.parametrize("noise", [1e-6, 0.05, 0.4, 1.5])
@pytest.mark.parametrize("seed", range(4))
def test_no_gap_between_two_policies_is_called_impossible(seed: int, noise: float) -> None:
    assert concluded(drawn(60, seed=seed, noise=noise)) is None


def test_unseen_large_ratios_are_no_proof() -> None:
    # Half of the ratio's mean sits in one token of 3,000: most samples have few of them, and a mean far below 1.
    rng = random.Random(5)
    rows: list[Row] = []
    for _ in range(40):
        logs = [math.log(1500) if rng.random() < 1 / 3000 else math.log(0.5) + rng.gauss(0, 0.01) for _ in range(60)]
        b = [-8.0 - rng.random() for _ in logs]
        rows.append(Row([x + y for x, y in zip(b, logs, strict=True)], b, [1] * 60, advantages=[0.0] * 60))
    assert concluded(rows) is None


def test_fewer_than_twenty_sequences_prove_nothing() -> None:
    rows = drawn(20, seed=1, noise=0.05, kept=0.8)
    assert concluded(rows) is not None
    assert concluded(rows[:19]) is None


def judged(
    mean: float, error: float = 0.01, chi2: float | None = -1.0, shape: float | None = 0.5, limit: float | None = 0.5
) -> str | None:
    """What plain numbers prove; error: the standard error of the mean, and of chi-square."""
    means = [
        None if value is None else Mean(value, value - 1.96 * error, value + 1.96 * error) for value in (mean, chi2)
    ]
    found = proof(*means, shape=shape, limit=limit)
    return found.proves if found else None


def test_a_mean_proves_something_beyond_five_standard_errors() -> None:
    assert [judged(mean) for mean in (0.949, 0.951, 1.0, 1.049, 1.051)] == [TOO_LOW, None, None, None, TOO_HIGH]
    assert [judged(mean, error=1e-6) for mean in (0.9991, 0.9989, 1.0009, 1.0011)] == [None, TOO_LOW, None, TOO_HIGH]
    assert judged(0.9, error=0.0) is None


def test_a_low_mean_needs_a_negative_chi_square_and_a_high_one_a_tail_that_can_be_trusted() -> None:
    assert [judged(0.9, chi2=chi2) for chi2 in (-0.051, -0.049, 0.2, None)] == [TOO_LOW, None, None, None]
    assert [judged(1.1, shape=shape) for shape in (0.5, 0.51, None)] == [TOO_HIGH, None, None]
    assert judged(1.1, limit=None) is None


def test_ratios_that_float64_does_not_hold_prove_nothing_and_warn_of_nothing() -> None:
    rows = [Row([-1.0, -1.0], [-751.0 if i % 3 == 0 else -1.5, -1.25], [1, 1], advantages=[0.0] * 2) for i in range(12)]
    assert concluded(rows) is None


@pytest.mark.parametrize(("noise", "proves"), [(0.0, False), (1e-15, False), (1e-6, True)])
def test_ratios_that_only_rounding_tells_apart_prove_nothing(noise: float, proves: bool) -> None:
    rng = random.Random(2)
    rollouts = [[-1 - i / 64 - rng.random() * bool(noise) for _ in range(30)] for i in range(40)]
    rows = [
        Row([b - 1 / 8 + rng.gauss(0, noise) for b in rollout], rollout, [1] * 30, advantages=[0.0] * 30)
        for rollout in rollouts
    ]
    assert (concluded(rows) is not None) == proves
