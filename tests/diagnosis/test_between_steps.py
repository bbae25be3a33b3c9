"""What the change of a gap from step to step is made of: a larger error at equal tokens, or other tokens."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rlcorr_cli import analyze, diagnose
from rlcorr_cli.causes.diagnosis import StepChange

STEPS, ROWS = 4, 24


def dump(errors: list[float], surprise: list[float], lengths: list[int], *, grows: float = 0.0) -> pa.Table:
    """Steps of a model whose two policies differ in log-odds by so much, to either side; how surprised tokens are
    (their mean log-odds, negated), and the length of responses, of each step.  grows: how much larger per token."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for step in range(STEPS):
        for i in range(ROWS):
            n = lengths[step]
            odds = rng.normal(-surprise[step], 1.5, n)
            size = errors[step] * (1 + grows * np.arange(n))
            rollout, train = (-np.logaddexp(0, -each) for each in (odds, odds + size * rng.choice([-1, 1], n)))
            rows.append({"step": step, "group_id": f"{i // 4}", "rollout_log_probs": rollout, "old_log_probs": train})
    return pa.Table.from_pylist(rows)


def change(table: pa.Table) -> StepChange | None:
    """From the first step to the last."""
    return diagnose(table).whole.diagnosis.between_steps


SAME, ONE_LENGTH = [0.0] * STEPS, [60] * STEPS


def test_an_error_that_grows_at_equal_tokens_is_told_as_such() -> None:
    table = dump([0.02, 0.04, 0.06, 0.08], SAME, ONE_LENGTH)
    found = change(table)
    assert found is not None
    assert (found.first, found.last) == (0, 3)
    assert found.mean_after / found.mean_before == pytest.approx(16, rel=0.15)
    assert found.error == pytest.approx(1, abs=0.06)
    assert found.error + found.surprise + found.length == pytest.approx(1)
    assert analyze(table).story.change == (
        "The rise is real: tokens of the same rollout probability differ more than before."
    )


def test_more_surprised_tokens_are_told_from_a_larger_error() -> None:
    table = dump([0.05] * STEPS, [-2.5, -2.0, 0.0, 1.0], ONE_LENGTH)
    found = change(table)
    assert found is not None
    assert found.surprise == pytest.approx(1, abs=0.08)
    assert found.error == pytest.approx(0, abs=0.08)
    assert analyze(table).story.change == "100% of the rise is because more unlikely tokens are sampled."


def test_longer_responses_are_told_from_a_larger_error() -> None:
    table = dump([0.03] * STEPS, SAME, [45, 60, 150, 300], grows=0.05)
    found = change(table)
    assert found is not None
    assert found.length == pytest.approx(1, abs=0.08)
    assert analyze(table).story.change == "99% of the rise is because responses are longer."


def test_shares_are_those_of_the_formula() -> None:
    """One bin of surprise and one place in each step: the change is the mean's, and no token is of another kind."""
    odds = {0: 0.1, 1: 0.1}
    rows = [
        {"step": step, "rollout_log_probs": [-np.logaddexp(0, -odds[step])] * 3, "old_log_probs": [-0.6 - step / 4] * 3}
        for step in odds
        for _ in range(400)
    ]
    found = change(pa.Table.from_pylist(rows))
    assert found is not None
    before, after = ((-0.6 - step / 4 + np.logaddexp(0, -0.1)) ** 2 for step in (0, 1))
    assert (found.mean_before, found.mean_after) == (pytest.approx(before), pytest.approx(after))
    assert (found.error, found.surprise, found.length) == pytest.approx((1, 0, 0), abs=1e-9)


@pytest.mark.parametrize("errors", [[0.05] * STEPS, [0.05, 0.05, 0.05, 0.055]])
def test_a_gap_that_stays_is_not_split(errors: list[float]) -> None:
    assert change(dump(errors, SAME, ONE_LENGTH)) is None
    assert analyze(dump(errors, SAME, ONE_LENGTH)).story.change == ""


def test_of_flat_steps_that_differ_by_their_prompts_no_growth_is_told() -> None:
    """The last of 20 steps has over twice the gap of the first, as one of eight prompts decides."""
    rng = np.random.default_rng(10)
    rows: list[dict[str, Any]] = []
    for step in range(20):
        for prompt, size in enumerate(0.1 * np.exp(rng.normal(0, 0.5, 8))):
            for _ in range(4):
                rollout = -2.5 - 3 * rng.random(40)
                train = rollout + rng.normal(-(size**2) / 2, size, 40)
                rows.append({"step": step, "group_id": f"{step}-{prompt}", "rollout_log_probs": rollout})
                rows[-1]["old_log_probs"] = train
    report = analyze(pa.Table.from_pylist(rows))
    course, found = report.course, change(pa.Table.from_pylist(rows))
    assert course is not None
    k3 = next(metric for metric in course.metrics if metric.metric == "k3_kl")
    assert k3.last.value > 2 * k3.first.value
    assert found is not None
    assert (found.established, course.rise, report.story.change) == (False, None, "")
