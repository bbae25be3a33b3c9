"""An objective as data: what it defaults to, and what is refused before anything is read."""

from typing import Any

import pytest

from rlcorr_cli.errors import UsageError
from rlcorr_cli.plans.objective import ObjectiveBlock
from rlcorr_cli.plans.plan import Plan

NORM = "seq-mean-token-sum-norm"


@pytest.mark.parametrize(
    ("plan", "name", "takes_weights"),
    [
        (Plan(), "ppo", True),
        (Plan(loss="reinforce"), "reinforce", True),
        (Plan(mode="bypass"), "ppo", False),
        (Plan(mode="bypass", loss="reinforce"), "reinforce", True),
    ],
)
def test_mode_and_loss_of_a_plan_say_which_objective_is_meant(plan: Plan, name: str, takes_weights: bool) -> None:
    objective = ObjectiveBlock().of(plan)
    assert (objective.name, objective.mode, objective.takes_weights) == (name, plan.mode, takes_weights)


def test_a_ratio_over_the_rollout_takes_no_weights_whatever_it_is_clipped_by() -> None:
    bypass = Plan(mode="bypass", loss="reinforce")
    assert [ObjectiveBlock(name=name).of(bypass).takes_weights for name in ("ppo", "gspo", "cispo")] == [False] * 3


def test_gspo_clips_and_averages_as_its_paper_does() -> None:
    objective = ObjectiveBlock(name="gspo").of(Plan())
    assert (objective.clip_low, objective.clip_high) == (3e-4, 4e-4)
    assert objective.aggregation == "seq-mean-token-mean"
    assert ObjectiveBlock(name="gspo", aggregation="token-mean", clip_low=0.1).of(Plan()).clip_low == 0.1


def test_what_a_batch_is_divided_by_is_said_in_words() -> None:
    assert ObjectiveBlock().of(Plan()).divisor == "kept tokens"
    assert ObjectiveBlock(aggregation="seq-mean-token-sum", denominator="all").of(Plan()).divisor == "valid sequences"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"aggregation": NORM}, "--loss-agg seq-mean-token-sum-norm divides by a constant, and there is none"),
        ({"loss_constant": 8.0}, "--loss-agg token-mean divides by no constant"),
        ({"aggregation": NORM, "loss_constant": 0.0}, "loss_constant should be above 0"),
        ({"aggregation": NORM, "loss_constant": float("nan")}, "loss_constant should be above 0"),
        ({"aggregation": "mean"}, "--loss-agg must be one of token-mean"),
        ({"denominator": "some"}, "denominator must be one of kept, all"),
        ({"name": "sft"}, "--objective must be one of ppo"),
        ({"clip_low": 1.5}, r"--clip-low should lie in \[0, 1\]"),
        ({"clip_low": float("nan")}, r"--clip-low should lie in \[0, 1\]"),
        ({"clip_high": -0.1}, "--clip-high should be a number from 0 on"),
        ({"clip_high": float("inf")}, "--clip-high should be a number from 0 on"),
        ({"dual_clip": 1.0}, "dual_clip should be above 1"),
        ({"dual_clip": 3.0, "name": "gspo"}, "dual_clip is PPO's"),
        ({"name": "reinforce", "clip_high": 0.2}, "reinforce has no ratio to clip"),
    ],
)
def test_an_objective_that_cannot_be_is_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        ObjectiveBlock(**options).of(Plan())
