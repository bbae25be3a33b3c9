"""Losses and coefficients: verl's own functions under autograd, autograd here, and small cases by hand."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st
from made import CPU, batch, dumps, edges, row
from oracle import Row

from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.measure.correct import correct
from rlcorr_cli.measure.objectives import token_losses, token_weights
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.objective import CLIPPED, Aggregation, Objective, ObjectiveBlock, ObjectiveName
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.results.objective import BatchObjective, objective_values
from rlcorr_cli.totals.view import Numbers

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "objectives.json").read_text())
CASES = pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['input']}/{case['name']}")


def rows_of(case: Any) -> list[dict[str, Any]]:
    return GOLDEN["inputs"][case["input"]]


def golden_batch(rows: list[dict[str, Any]]) -> Batch:
    """The valid tokens of the golden rows, one training batch."""
    masks = [np.array(row["response_mask"], bool) for row in rows]

    def flat(name: str) -> np.ndarray:
        return np.concatenate([np.array(row[name], np.float64)[mask] for row, mask in zip(rows, masks, strict=True)])

    return Batch(
        offsets=np.cumsum([0, *(mask.sum() for mask in masks)]).astype(np.int64),
        rollout_logp=flat("rollout_log_probs"),
        old_logp=flat("old_log_probs"),
        current_logp=flat("current_log_probs"),
        advantages=flat("advantages"),
        n_masked=np.array([(~mask).sum() for mask in masks]),
        reward=None,
        group_index=np.zeros(len(rows), np.int32),
        group_keys=((None,),),
    )


def plan_of(config: dict[str, Any]) -> Plan:
    mode = {"bypass_mode": config["mode"] == "bypass", "loss_type": "reinforce"}
    if config["mode"] != "bypass" or config["objective"] != "reinforce":
        del mode["loss_type"]
    return PROFILES["verl-0.9"].read({**config["plan"], **mode})


def objective_of(config: dict[str, Any], plan: Plan) -> Objective:
    clips = {} if config["objective"] == "reinforce" else {name: config[name] for name in ("clip_low", "clip_high")}
    return ObjectiveBlock(
        name=config["objective"],
        **clips,
        dual_clip=config["dual_clip"],
        aggregation=config["normalization"],
        loss_constant=config["constant"],
        denominator=config["denominator"],
    ).of(plan)


def batch_objective(batch: Batch, plan: Plan, objective: Objective) -> BatchObjective:
    observation = Observation(plans=(plan,), seed=None, objectives={plan: objective})
    totals = observe(batch, observation, CPU).totals
    assert len(totals) == 1
    return BatchObjective(Numbers.of_plan(totals, plan, 0), objective)


@CASES
def test_losses_and_numbers_are_those_of_verl(case: Any) -> None:
    expected = dict(case["expected"])
    plan = plan_of(case["config"])
    objective = objective_of(case["config"], plan)
    batch = batch_objective(golden_batch(rows_of(case)), plan, objective)
    values = objective_values(batch)
    # verl adds 1e-8 to what a sequence's sum is divided by.
    relative = 2e-8 if objective.aggregation == "seq-mean-token-mean" else 1e-9
    assert batch.sum("kept_tokens") == expected.pop("kept_tokens")
    assert batch.sum("kept_sequences") == expected.pop("kept_sequences")
    coef = expected.pop("coef")
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        size = expected["coef_abs_sum"] if name in ("loss", "coef_sum") else abs(value)
        assert values[name] == pytest.approx(value, rel=0, abs=relative * max(size, 1e-3)), name
    assert len(coef) == len(rows_of(case))


@CASES
def test_coefficients_are_those_of_verl_under_autograd(case: Any) -> None:
    rows, plan = rows_of(case), plan_of(case["config"])
    objective = objective_of(case["config"], plan)
    tokens = Tokens.of(golden_batch(rows), CPU, plan.mode)
    coef = token_losses(tokens, correct(tokens, plan), objective).coef
    scale = batch_objective(golden_batch(rows), plan, objective).scale
    masks = [np.array(row["response_mask"], bool) for row in rows]
    expected = np.concatenate(
        [np.array(of_row)[mask] for of_row, mask in zip(case["expected"]["coef"], masks, strict=True)]
    )
    relative = 2e-8 if objective.aggregation == "seq-mean-token-mean" else 1e-9
    np.testing.assert_allclose(coef * scale, expected, rtol=relative, atol=1e-12)


PLANS = (
    Plan(),
    Plan(weighting=Weighting("token", Bounds(None, 1.05))),
    Plan(
        weighting=Weighting("sequence", Bounds(0.5, 2.0), "zero"),
        rejections=(Rejection("ratio", "token", Bounds(0.9, 1.1)),),
    ),
    Plan(mode="bypass", weighting=Weighting("token", Bounds(None, 2.0))),
    Plan(mode="bypass", loss="reinforce", weighting=Weighting("sequence", Bounds(None, 2.0))),
    Plan(mode="bypass", rejections=(Rejection("k3", "seq_mean", Bounds(None, 0.01)),)),
)


@st.composite
def objectives(draw: st.DrawFn) -> Callable[[Plan], Objective]:
    """Any objective that can be asked for, with clips that some of the ratios reach, as one under a plan."""
    name = draw(st.sampled_from(get_args(ObjectiveName)))
    clips = {"clip_low": draw(st.sampled_from([0.0, 0.1, 1.0])), "clip_high": draw(st.sampled_from([0.0, 0.15, 3.0]))}
    aggregation = draw(st.sampled_from(get_args(Aggregation)))
    return ObjectiveBlock(
        name=name,
        **(clips if name in CLIPPED else {}),
        dual_clip=draw(st.sampled_from([None, 1.05, 3.0])) if name == "ppo" else None,
        aggregation=aggregation,
        loss_constant=16.0 if aggregation == "seq-mean-token-sum-norm" else None,
        denominator=draw(st.sampled_from(["kept", "all"])),
    ).of


def slow_loss(
    theta: torch.Tensor, rows: list[Row], keep: list[bool], weights: list[float], objective: Objective
) -> torch.Tensor:
    """The loss of a batch, token by token from the formula, for autograd to differentiate.

    theta: of every valid token, row by row, as keep and weights are.
    """
    of_rows: list[tuple[list[torch.Tensor], int]] = []
    n_all, place = [], 0
    for of_row in rows:
        valid = [t for t, m in enumerate(of_row.mask) if m]
        mine = range(place, place + len(valid))
        place += len(valid)
        behaviour = of_row.rollout if objective.mode == "bypass" else of_row.train
        d = {i: theta[i] - behaviour[t] for i, t in zip(mine, valid, strict=True)}
        kept = [i for i in mine if keep[i]]
        mean_d = sum((d[i] for i in kept), start=torch.zeros(())) / max(len(kept), 1)
        of_rows.append(([], len(kept)))
        n_all.append(len(valid))
        for i, t in zip(mine, valid, strict=True):
            if not keep[i]:
                continue
            a, low, high = of_row.advantages[t], 1 - objective.clip_low, 1 + objective.clip_high
            match objective.name:
                case "reinforce":
                    token = -a * theta[i]
                case "cispo":
                    token = -a * d[i].detach().clamp(-20, 20).exp().clamp(low, high) * theta[i]
                case "dppo":
                    moved = theta[i].detach().exp() - (theta[i] - d[i]).detach().exp()
                    passed = moved > objective.clip_high if a > 0 else moved < -objective.clip_low
                    token = 0 * theta[i] if passed else -a * d[i].detach().exp().clamp(max=20) * theta[i]
                case "sapo":
                    tau = 1.0 if a > 0 else 1.05
                    token = -a * 4 / tau * torch.sigmoid(tau * (d[i].clamp(-20, 20).exp() - 1))
                case "vespo":
                    total = sum((d[j].detach().clamp(-20, 20) for j in kept), start=torch.zeros(()))
                    w = total.clamp(math.log(1e-8), 20.0).exp()
                    k, decay = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
                    token = -a * math.e**decay * w**k * (-decay * w).exp() * theta[i]
                case "dro":
                    token = -(a * theta[i] - objective.beta / 2 * d[i] ** 2)
                case "gspo":
                    # The ratio's gradient goes to the token's own log-prob, whole.
                    s = (mean_d.detach() + theta[i] - theta[i].detach()).clamp(max=10).exp()
                    token = -a * s if -a * s >= -a * s.clamp(low, high) else -a * s.detach().clamp(low, high)
                case "ppo":
                    r = d[i].clamp(-20, 20).exp()
                    token = -a * r if -a * r >= -a * r.clamp(low, high) else -a * r.detach().clamp(low, high)
                    if a < 0 and objective.dual_clip is not None and token > -a * objective.dual_clip:
                        token = torch.tensor(-a * objective.dual_clip, dtype=torch.float64)
            of_rows[-1][0].append(token * weights[i])
    sums = torch.stack([torch.stack(losses).sum() for losses, n in of_rows if n])
    sizes = torch.tensor([n for _, n in of_rows if n])
    n_tokens = int(sizes.sum()) if objective.denominator == "kept" else sum(n_all)
    n_rows = len(sizes) if objective.denominator == "kept" else sum(n > 0 for n in n_all)
    match objective.aggregation:
        case "token-mean":
            return sums.sum() / n_tokens
        case "seq-mean-token-sum":
            return sums.sum() / n_rows
        case "seq-mean-token-mean":
            return (sums / sizes).sum() / n_rows
        case "seq-mean-token-sum-norm":
            return sums.sum() / n_rows / 16.0
        case "token-sum":
            return sums.sum()


@given(under=objectives(), rows=dumps(min_rows=2))
@example(under=ObjectiveBlock(name="gspo", clip_high=math.exp(12.0)).of, rows=edges())
@example(under=ObjectiveBlock(name="ppo", dual_clip=3.0).of, rows=edges())
def test_coefficients_are_the_gradient_of_the_loss(under: Callable[[Plan], Objective], rows: list[Row]) -> None:
    rows = [replace(each, batch=0) for each in rows]
    if any(any(each.mask) for each in rows):
        for plan in PLANS:
            assert_gradient(rows, plan, under(plan))


def assert_gradient(rows: list[Row], plan: Plan, objective: Objective) -> None:
    made = batch(rows, plan.mode)
    tokens = Tokens.of(made, CPU, plan.mode)
    corrected = correct(tokens, plan)
    losses = token_losses(tokens, corrected, objective)
    numbers = batch_objective(made, plan, objective)
    if not losses.keep.any():
        assert set(objective_values(numbers).values()) <= {None, 0.0}
        return
    applied = token_weights(tokens.rows, corrected)
    weights = [1.0] * made.n_tokens if applied is None or not objective.takes_weights else applied.tolist()
    policy = made.old_logp if made.current_logp is None else made.current_logp
    assert policy is not None
    theta = torch.from_numpy(policy.astype(np.float64)).requires_grad_()
    loss = slow_loss(theta, rows, losses.keep.tolist(), weights, objective)
    (gradient,) = torch.autograd.grad(loss + 0 * theta.sum(), theta)  # of a batch that is clipped whole it is 0
    np.testing.assert_allclose(losses.coef * numbers.scale, gradient.numpy(), rtol=1e-9, atol=1e-12)
    assert objective_values(numbers)["loss"] == pytest.approx(loss.item(), rel=1e-9, abs=1e-12)
    assert objective_values(numbers)["coef_sum"] == pytest.approx(gradient.sum().item(), rel=1e-9, abs=1e-9)


BYPASS = Plan(mode="bypass")


def of_one_row(name: ObjectiveName, log_ratios: list[float], advantage: float, plan: Plan = BYPASS) -> Any:
    """The losses and the coefficients of one sequence, whose ratio is the current policy's over the rollout's."""
    made = batch([row(log_ratios, advantages=[advantage] * len(log_ratios))], "bypass")
    tokens = Tokens.of(made, CPU, "bypass")
    losses = token_losses(tokens, correct(tokens, plan), ObjectiveBlock(name=name).of(plan))
    return losses.loss.tolist(), losses.coef.tolist()


def test_a_ratio_beyond_20_nats_is_limited_and_has_no_gradient() -> None:
    losses, coefs = of_one_row("ppo", [25.0, 20.0, -25.0], -1.0)
    assert losses == pytest.approx([math.exp(20), math.exp(20), 0.8])
    assert coefs == pytest.approx([0.0, math.exp(20), 0.0])
    assert of_one_row("cispo", [25.0], 1.0)[1] == [-1.2]


def test_gspo_limits_the_mean_from_above_alone() -> None:
    losses, coefs = of_one_row("gspo", [12.0, 10.0], -1.0)
    assert losses == pytest.approx([math.exp(10) / 2] * 2)
    assert coefs == [0.0, 0.0]
    assert of_one_row("gspo", [10.5, 9.0], -1.0)[1] == pytest.approx([math.exp(9.75) / 2] * 2)
    assert of_one_row("gspo", [-30.0, -20.0], 1.0)[1] == pytest.approx([-math.exp(-25) / 2] * 2)


def test_gspo_takes_the_mean_over_kept_tokens() -> None:
    plan = Plan(mode="bypass", rejections=(Rejection("ratio", "token", Bounds(None, 2.0)),))
    _, coefs = of_one_row("gspo", [1.0, -0.25, -0.75], 1.0, plan)
    assert coefs == pytest.approx([0.0, -math.exp(-0.5) / 2, -math.exp(-0.5) / 2])


def test_at_equal_branches_the_gradient_flows() -> None:
    tokens = Tokens.of(batch([row([0.0], advantages=[2.0])], "bypass"), CPU, "bypass")
    losses = token_losses(tokens, correct(tokens, BYPASS), ObjectiveBlock(clip_low=0.0, clip_high=0.0).of(BYPASS))
    assert (losses.coef.tolist(), losses.clipped.tolist()) == ([-2.0], [False])


def test_weights_that_float64_cannot_hold_do_not_reach_rejected_tokens() -> None:
    plan = Plan(
        weighting=Weighting("token"),
        rejections=(Rejection("ratio", "token", Bounds(None, 2.0)),),
        log_ratio_limit=None,
    )
    tokens = Tokens.of(batch([row([800.0, 0.0], advantages=[1.0, 1.0])]), CPU)
    losses = token_losses(tokens, correct(tokens, plan), ObjectiveBlock().of(plan))
    assert losses.coef.tolist() == [0.0, -1.0]


def test_nothing_kept_has_no_numbers() -> None:
    plan = Plan(rejections=(Rejection("ratio", "seq_mean", Bounds(5.0, None)),))
    made = batch([row([0.1, 0.2], advantages=[1.0, 1.0])])
    values = objective_values(batch_objective(made, plan, ObjectiveBlock().of(plan)))
    assert set(values.values()) == {None}


def test_a_dump_of_two_policies_has_a_ratio_of_1() -> None:
    made = batch([row([0.1, -0.2], advantages=[1.0, -2.0])])
    batched = batch_objective(made, Plan(), ObjectiveBlock(clip_low=0.0, clip_high=0.0).of(Plan()))
    values = objective_values(batched)
    assert (values["loss"], values["clip_fraction"], values["coef_sum"]) == (0.5, 0.0, 0.5)
