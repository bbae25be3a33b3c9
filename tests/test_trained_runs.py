"""The runs behind the manual's page `falls`: what they record is read, and their two rules say what the page says."""

import sys
from pathlib import Path

import pytest

from rlcorr_cli import analyze, diagnose
from rlcorr_cli.results.verdict import ROUNDING_K3

sys.path.append(str(Path(__file__).parent / "benchmarks"))

import trained_runs
from trained_runs import Kind, constant, fell, moved, taught, train

EARLY = [1.0, 1.2] * 13
"""26 steps, of which those from 5 to 24 are between 1 and 1.2: above 1.4, or below 0.8, is outside."""


@pytest.mark.parametrize(
    ("later", "both_ways", "step"),
    [
        ([1.5, 1.5, 1.5], False, 28),
        ([1.5, 1.5, 1.3, 1.5, 1.5, 1.5], False, 31),
        ([1.5, 1.5], False, None),
        ([1.39] * 9, False, None),
        ([0.7] * 9, False, None),
        ([0.7] * 9, True, 28),
        ([0.81] * 9, True, None),
    ],
)
def test_a_number_moves_when_it_is_far_outside_its_early_range_three_steps_running(
    later: list[float], both_ways: bool, step: int | None
) -> None:
    assert moved(EARLY + later, both_ways=both_ways) == step


@pytest.mark.parametrize(
    ("rewards", "step"),
    [
        ([0.5] * 30 + [0.0] * 30, 31),  # of five steps two are 0: 0.3 of 0.5
        ([0.5] * 30 + [0.0] * 10 + [0.5] * 30, None),
        ([0.5] * 30 + [0.36] * 30, None),
        ([0.5] * 30 + [0.0] * 6, 31),
        ([0.5] * 30 + [0.0] * 5, None),
        ([0.01 * step for step in range(60)], None),
        ([0.5] * 3, None),
    ],
)
def test_a_reward_falls_when_five_steps_are_below_seven_tenths_of_the_best_and_stay_so(
    rewards: list[float], step: int | None
) -> None:
    assert fell(rewards) == step


def test_a_run_records_each_step_and_a_gap_where_weights_are_rounded_alone(tmp_path: Path) -> None:
    start = taught(0)
    for name, kind in {"exact": Kind("", 1), "rounded": Kind("", 1, constant(3))}.items():
        assert len(train(start, kind, tmp_path / name, steps=2)) == 2
    exact, rounded = (analyze(tmp_path / name, group_by="step").groups for name in ("exact", "rounded"))
    assert len(exact) == len(rounded) == 2
    assert all(group.counts["sequences"] == trained_runs.PROMPTS * trained_runs.GROUP for group in exact)
    assert all((group.values["k3_kl"] or 0) < ROUNDING_K3 for group in exact)
    assert all((group.values["k3_kl"] or 0) > ROUNDING_K3 for group in rounded)


@pytest.mark.full
def test_old_rollouts_are_named_as_the_cause_of_a_run(tmp_path: Path) -> None:
    train(taught(trained_runs.TAUGHT), trained_runs.RUNS["lag-8"], tmp_path, steps=20)
    steps = analyze(tmp_path, group_by="step").groups
    assert (steps[0].values["reward_mean"] or 0) > 0.1
    assert (steps[0].values["k3_kl"] or 0) < ROUNDING_K3 < (steps[-1].values["k3_kl"] or 0)
    assert diagnose(tmp_path).verdict == "stale_policy"
