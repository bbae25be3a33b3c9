"""Noise is quiet and loud: what is noise of its shape, what is beyond it, and what goes with the token."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import Diagnosis
from rlcorr_cli.causes.features import FAR_LOUD, LOUD, MOST_OVER_NOISE, noise_square, spread_of
from rlcorr_cli.causes.gap import N_SPREAD, N_SURPRISE, SPREAD_FACTOR, SPREAD_LEAST, SPREAD_STEPS

MODELS = Path(__file__).parent / "causes_models"
ROWS, LENGTH, IDS, SIZE = 128, 80, 60, 0.03
Values = NDArray[np.float64]


def dump_of(noise: Values, ids: NDArray[np.int64] | None) -> dict[str, Any]:
    """The columns of a dump whose log-odds differ by this noise, [ROWS, LENGTH]."""
    u = np.random.default_rng(7).normal(1.0, 2.0, noise.shape)
    columns = {
        "group_id": [f"g{row // 4}" for row in range(ROWS)],
        "rollout_log_probs": (-np.logaddexp(0, -u)).tolist(),
        "old_log_probs": (-np.logaddexp(0, -u - noise)).tolist(),
    }
    return columns if ids is None else columns | {"token_ids": ids.tolist()}


def said_of(noise: Values, ids: NDArray[np.int64] | None) -> Diagnosis:
    """What is said of such a dump."""
    return diagnose(dump_of(noise, ids)).whole.diagnosis


@pytest.fixture
def rng() -> np.random.Generator:
    """The same draws for each test."""
    return np.random.default_rng(11)


@pytest.fixture
def ids(rng: np.random.Generator) -> NDArray[np.int64]:
    """Of each token."""
    return rng.integers(0, IDS, (ROWS, LENGTH))


def two_sizes(rng: np.random.Generator, ids: NDArray[np.int64], quiet: float) -> Values:
    """Noise of which a share is a tenth as large, and twice as large for every third id."""
    size = np.where(rng.random(ids.shape) < quiet, 0.1, 1.0) * np.where(ids % 3, 1.0, 2.0)
    return rng.normal(0.0, SIZE, ids.shape) * size


@pytest.mark.parametrize("quiet", [0.4, 0.6, 0.75])
def test_quiet_and_loud_tokens_are_noise_and_all_of_the_gap(
    rng: np.random.Generator, ids: NDArray[np.int64], quiet: float
) -> None:
    found = said_of(two_sizes(rng, ids, quiet), ids)
    assert found.verdict == "noise"
    (noise,) = found.causes
    assert (noise.bound, noise.share > 0.95) == ("at_most", True)
    assert found.features["d_tail"] is not None
    assert found.features["d_tail"] > (1.2 if quiet < 0.5 else 1.7)  # far more than quiet tokens alone have


def test_single_tokens_beyond_the_loud_ones_are_told_with_the_share_that_noise_cannot_make(
    rng: np.random.Generator, ids: NDArray[np.int64]
) -> None:
    noise = two_sizes(rng, ids, 0.3)
    flipped = rng.random(ids.shape) < 0.01
    found = said_of(noise + flipped * rng.normal(0.0, 30 * SIZE, ids.shape), ids)
    assert found.verdict == "heavy_tail"
    tail = found.causes[0]
    assert 0.5 * flipped.sum() < tail.parameters["outliers"] < 1.2 * flipped.sum()
    flips, all_of_it = float((flipped * 900 * SIZE**2).sum()), float((noise**2).sum())
    assert 0.7 * flips / (flips + all_of_it) < tail.share <= 1
    assert "each by itself" in tail.headline
    assert tail.advice.startswith("If the model is a mixture of experts")


def test_far_tokens_of_a_kind_that_is_as_loud_are_noise(rng: np.random.Generator) -> None:
    """One id in 50 tokens is ten times as loud as the others, always: no token of it is beyond its kind."""
    kinds = np.where(rng.random((ROWS, LENGTH)) < 0.02, IDS, rng.integers(0, IDS, (ROWS, LENGTH)))
    noise = rng.normal(0.0, SIZE, kinds.shape) * np.where(kinds == IDS, 10.0, 1.0)
    assert said_of(noise, None).verdict == "heavy_tail"
    assert said_of(noise, kinds).verdict == "noise"


def test_a_clean_dump_s_noise_of_another_shape_and_the_same_size_is_as_much(
    rng: np.random.Generator, ids: NDArray[np.int64]
) -> None:
    """Training in fp32 beside rollouts in bf16 leaves no quiet tokens, and no more noise than both in bf16."""
    clean = two_sizes(rng, ids, 0.75)
    normal = rng.normal(0.0, clean.std(), ids.shape)
    found = diagnose(dump_of(normal, ids), clean_dump=dump_of(clean, ids)).whole.diagnosis.cause
    assert found is not None
    assert (found.cause, found.certainty) == ("noise", "likely")
    assert found.parameters["times_clean"] == pytest.approx(1.0, abs=0.05)


def test_what_goes_with_the_token_is_changed_weights_however_small_a_share_of_the_noise_it_is(
    rng: np.random.Generator,
) -> None:
    kinds = rng.integers(0, 20, (ROWS, LENGTH))
    shift = rng.normal(0.0, 1.0, 20)
    noise = rng.normal(0.0, 0.15, kinds.shape) + 0.15 * 0.14 * (shift / shift.std())[kinds]
    found = said_of(noise, kinds)
    by_token = found.features["by_token"]
    assert by_token is not None
    assert 0.01 < by_token < 0.03
    assert found.verdict == "other_weights"


def test_weights_are_not_ruled_out_where_something_goes_with_the_token() -> None:
    """Weights in bf16 beside the same in fp32: as much as 8-bit integers leave on other models."""
    found = diagnose(MODELS / "glass_pt__clean_bf16_fp32.parquet").whole.diagnosis.cause
    assert found is not None
    assert (found.cause, found.certainty, found.alternatives) == ("noise", "one of", ("other_weights",))
    assert "8-bit integers as little" in found.evidence[0] + found.evidence[-1]


def test_normal_noise_has_its_own_mean_square(rng: np.random.Generator) -> None:
    z = np.abs(rng.normal(0.0, 3.0, 200_000))
    assert noise_square(z, np.ones_like(z)) == pytest.approx(9.0, rel=0.03)


@pytest.mark.parametrize("shape", [0.5, 0.8, 1.4])
def test_a_stretched_exponential_is_noise_of_its_shape(rng: np.random.Generator, shape: float) -> None:
    z = rng.weibull(shape, 400_000)
    assert noise_square(z, np.ones_like(z)) == pytest.approx(float((z**2).mean()), rel=0.05)


def test_noise_is_measured_at_each_level_of_surprise() -> None:
    """Of 1,000 tokens in each of two bins, one three times as loud: what is noise there, and which |d| is far."""
    counts = np.zeros((N_SURPRISE, N_SPREAD))
    steps = np.arange(1, 41)
    for surprise, louder in ((8, 0), (15, 8)):  # 1.15^8 is 3.06
        counts[surprise, SPREAD_STEPS + steps + louder] += 12.5
        counts[surprise, SPREAD_STEPS - steps - louder] += 12.5
    spread = spread_of(counts)
    assert spread is not None
    assert spread.noise[15] == pytest.approx(SPREAD_FACTOR**8 * spread.noise[8], rel=1e-6)
    assert spread.loud[8] == pytest.approx(SPREAD_LEAST * SPREAD_FACTOR ** (LOUD * 40 - 0.5), rel=0.01)
    assert (spread.n_far, spread.over_noise < MOST_OVER_NOISE) == (0, True)
    assert FAR_LOUD * spread.loud[8] < SPREAD_LEAST * SPREAD_FACTOR**45
    counts[8, SPREAD_STEPS + 45] += 5
    flipped = spread_of(counts)
    assert flipped is not None
    assert (flipped.n_far, flipped.n_below) == (5, 0)
