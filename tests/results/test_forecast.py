"""A forecast is said of a rise that goes on, with a range; not of what levels off, is over, or lies far ahead."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from forecast import judged

from rlcorr_cli.results.course import Rise, shifted
from rlcorr_cli.results.forecast import Forecast, forecast
from rlcorr_cli.runs.watch import doubled

LIMIT = 0.1
N = 40


def of(curve: Callable[[int], float], n: int = N, noise: float = 0.02) -> Rise:
    """The rise of n steps, flat as far as step 15, each with noise of its own."""
    scatter = np.exp(np.random.default_rng(0).normal(0, noise, n))
    values = [1e-3 * curve(max(0, step - 15)) * factor for step, factor in enumerate(scatter.tolist())]
    found = shifted([*range(n)], values, limit=LIMIT)
    assert found is not None
    return found


def told(found: Rise) -> Forecast:
    assert found.forecast is not None
    return found.forecast


def test_what_doubles_passes_its_limit_after_as_many_doublings_as_are_left() -> None:
    ahead = told(of(lambda t: 2 ** (t / 5)))
    steps = 5 * np.log2(LIMIT / (1e-3 * 2 ** (24 / 5)))
    assert ahead.steps == pytest.approx(steps, rel=0.1)
    assert ahead.soonest < steps < ahead.latest
    assert ahead.latest < 1.5 * ahead.soonest
    assert ahead.limit == LIMIT


def test_what_grows_by_equal_amounts_takes_longer_than_its_doubling_says() -> None:
    ahead = told(of(lambda t: 1 + 2 * t, noise=0.005))
    assert ahead.soonest < (LIMIT - 49e-3) / 2e-3 < ahead.latest


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param(lambda t: 1 + 20 * (1 - np.exp(-t / 4)), id="levels off"),
        pytest.param(lambda t: 20.0 if t else 1.0, id="a jump"),
        pytest.param(lambda t: 2 ** (min(t, 9) / 2), id="is over"),
        pytest.param(lambda t: 2 ** (t / 3), id="has passed the limit"),
        pytest.param(lambda t: 1 + t / 8, id="lies far ahead"),
    ],
)
def test_nothing_is_forecast_of_what_goes_on_no_more(curve: Callable[[int], float]) -> None:
    assert of(curve).forecast is None


def test_few_steps_tell_nothing_and_none_is_0() -> None:
    assert forecast([*range(5)], [1e-3, 2e-3, 4e-3, 8e-3, 16e-3], LIMIT) is None
    assert forecast([*range(7)], [0.0, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3], LIMIT) is None


@pytest.mark.parametrize(
    ("ends", "words"),
    [((2.9, 2.2, 4.1), "in about 3 steps (2 to 5)"), ((0.4, 0.0, 0.9), "in about 1 step."), ((9, 9, 9), "9 steps.")],
)
def test_the_sentence_counts_whole_steps(ends: tuple[float, float, float], words: str) -> None:
    steps, soonest, latest = ends
    sentence = Forecast(limit=LIMIT, steps=steps, soonest=soonest, latest=latest).sentence
    assert sentence.startswith("At this rate it passes its limit of 0.1 in about ")
    assert words in sentence


def test_steps_that_are_numbered_by_tens_are_counted_so() -> None:
    values = [1e-3 * 2 ** (step / 5) for step in range(20)]
    by_one, by_ten = (forecast([each * of_one for each in range(20)], values, LIMIT) for of_one in (1, 10))
    assert by_one is not None
    assert by_ten is not None
    assert by_ten.steps == pytest.approx(10 * by_one.steps)


def test_watch_says_it_where_it_tells_of_a_rise() -> None:
    line = [(step, 1e-3 * 2 ** (max(0, step - 10) / 5), None) for step in range(30)]
    (reason,) = doubled(line[:10], line[10:], len(line))
    assert "At this rate it passes its limit of 0.1 in about " in reason.what


@pytest.mark.parametrize("kind", ["exponential", "saturating", "flat"])
def test_forecasts_of_simulated_runs_hold(kind: str) -> None:
    found = [holds for holds, _ in judged(kind, 100, 40)]
    assert len(found) > 20 if kind == "exponential" else not found
    assert sum(found) >= 0.8 * len(found)
