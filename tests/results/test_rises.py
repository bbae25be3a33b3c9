"""Rises and falls of a metric over steps: told where the scatter of steps, or of clusters, excludes chance."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from rlcorr_cli.causes.steps import Shift, StepLevel, shift
from rlcorr_cli.runs.watch import FIRST, RECENT, doubled

Values = Sequence[float]


def found(values: Values, error: float | None = None) -> Shift | None:
    """Of steps of 8 clusters that know it so well; None: of values alone."""
    levels = [StepLevel(clusters=8, mean_log=math.log(value), error=error) for value in values]
    return shift(range(len(values)), values, levels if error is not None else [])


def alarm_at(values: Values) -> int | None:
    """The step at which `watch` raises its alarm."""
    known = [(step, value, None) for step, value in enumerate(values)]
    looks = ((n, known[: min(n, FIRST)], known[max(0, n - RECENT) : n]) for n in range(1, len(known) + 1))
    return next((n - 1 for n, first, recent in looks if any(doubled(first, recent, n))), None)


def noise(seed: int, n: int, sd: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Factors of e^N(0, sd)."""
    return np.exp(np.random.default_rng(seed).normal(0, sd, n))


@pytest.mark.parametrize(("n", "sd", "runs"), [(3, 1.0, 200), (10, 1.0, 200), (20, 0.42, 300), (100, 1.0, 100)])
def test_flat_steps_neither_rise_nor_fall(n: int, sd: float, runs: int) -> None:
    flat = [0.01 * noise(seed, n, sd) for seed in range(runs)]
    assert sum(found(values.tolist(), sd) is not None for values in flat) <= runs // 100
    assert sum(found(values.tolist()) is not None for values in flat) <= runs // 100


def test_a_few_steps_with_far_tokens_are_no_rise() -> None:
    is_far = (np.arange(120) % 12 == 0) | (np.arange(120) >= 117)
    for seed in range(50):
        assert found((0.001 * noise(seed, 120, 0.05) * np.where(is_far, 3.0, 1.0)).tolist()) is None


def test_a_growth_is_told_with_the_step_that_it_begins_after() -> None:
    grown = np.concatenate([np.ones(30), 10 ** (np.arange(1, 11) / 10)])
    shifts = [found((0.01 * noise(seed, 40, 0.23) * grown).tolist()) for seed in range(100)]
    assert sum(each is not None and abs(each.since - 30) <= 2 for each in shifts) >= 95
    assert sum(each is not None and each.shape == "growth" for each in shifts) >= 95


def test_a_jump_and_a_drop_are_told_with_both_levels() -> None:
    for factor in (5.0, 0.2):
        values = 0.01 * noise(1, 40, 0.2) * np.where(np.arange(40) < 25, 1.0, factor)
        jump = found(values.tolist())
        assert jump is not None
        assert (jump.shape, jump.since) == ("jump", 25)
        assert (jump.before, jump.after / factor) == (pytest.approx(0.01, rel=0.15), pytest.approx(0.01, rel=0.15))


def test_clusters_decide_of_few_steps() -> None:
    values = [0.0017, 0.0011, 0.0036, 0.0089, 0.0317]
    assert found(values) is None
    assert found(values, 1.0) is None
    growth = found(values, 0.2)
    assert growth is not None
    assert (growth.shape, growth.after) == ("growth", 0.0317)


def test_a_rise_that_is_over_or_is_no_doubling_is_none() -> None:
    over = np.where((np.arange(280) >= 80) & (np.arange(280) < 240), 5.0, 1.0)
    assert found((0.01 * noise(2, 280, 0.1) * over).tolist(), 0.1) is None
    assert found((0.01 * noise(2, 60, 0.02) * np.where(np.arange(60) < 30, 1.0, 1.5)).tolist(), 0.02) is None


def test_the_alarm_stays_silent_on_flat_steps_and_tells_of_a_doubling() -> None:
    assert [alarm_at((0.01 * noise(seed, 200, 0.42)).tolist()) for seed in range(4)] == [None] * 4
    doubling = np.where(np.arange(60) < 40, 1.0, 2.0)
    at = [alarm_at((0.01 * noise(seed, 60, 0.1) * doubling).tolist()) for seed in range(4)]
    assert all(step is not None and 40 <= step <= 43 for step in at), at
