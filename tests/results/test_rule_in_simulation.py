"""The rule of `compare` in a small simulation: what it takes loses less than what people take without looking.

Tabular policies over a chain of tokens, whose policy gradient is known exactly.  A dump is sampled from an engine that
differs from the trained policy in one of several ways; `compare` reads it and names a plan.  What a plan makes of the
gradient is then measured on many more sequences: the progress that its estimate from n sequences makes at the best step
size, as a share of what the exact gradient makes, is

    merit = (g.m)^2 / (|g|^2 (|m|^2 + V / n))

with m and V the mean and the total variance of a sequence's term.  Regret is 1 less the merit over that of the best
plan in hindsight.  Everything but the dynamics is the package's own: columns, rule, weights and masks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlcorr_cli import api

Floats = NDArray[np.float64]
VOCABULARY, LENGTH = 6, 24
DUMPED, SAMPLED = 512, 4000
AVERAGED = 1024
"""Sequences over which a gradient is averaged."""
PLANS = (
    "decoupled_token_is",
    "decoupled_seq_is",
    "decoupled_seq_is_rs",
    "decoupled_geo_rs",
    "token_rs",
    "decoupled_token_icepop",
    "decoupled_k3_rs",
    "disabled",
    "trl_sequence_mask",
    "areal_ratio_token",
)


@dataclass(frozen=True)
class World:
    """A policy's logits by the token before, [V, V], and the reward of each step, [V, V]."""

    logits: Floats
    reward: Floats

    @classmethod
    def of(cls, seed: int) -> "World":
        draw = np.random.default_rng(seed)
        return cls(draw.normal(0, 1, (VOCABULARY, VOCABULARY)), draw.normal(0, 1, (VOCABULARY, VOCABULARY)))

    def gradient(self) -> Floats:
        """Of the expected reward, by dynamic programming: sum over steps of d(s) pi(v|s) (Q(s, v) - V(s))."""
        policy = softmax(self.logits)
        values = np.zeros((LENGTH + 1, VOCABULARY))
        for t in reversed(range(LENGTH)):
            values[t] = (policy * (self.reward + values[t + 1])).sum(1)
        gradient, states = np.zeros_like(policy), np.full(VOCABULARY, 1 / VOCABULARY)
        for t in range(LENGTH):
            gradient += states[:, None] * policy * (self.reward + values[t + 1] - values[t][:, None])
            states = states @ policy
        return gradient


@dataclass(frozen=True)
class Mismatch:
    """How an engine's logits differ: by noise that lasts, by noise that is new at every token, by an older policy's
    distance along the gradient, by a temperature; and how many of its records are wrong."""

    lasting: float = 0.0
    fresh: float = 0.0
    heavy: float = 0.0
    lag: float = 0.0
    temperature: float = 1.0
    wrong: float = 0.0


MISMATCHES = {
    "near": Mismatch(lasting=0.005),
    "lasting": Mismatch(lasting=0.1),
    "lasting, large": Mismatch(lasting=0.25),
    "lasting and fresh": Mismatch(lasting=0.15, fresh=0.1),
    "fresh": Mismatch(fresh=0.1),
    "fresh, large": Mismatch(fresh=0.25),
    "heavy": Mismatch(heavy=0.01, lasting=0.05),
    "lag": Mismatch(lag=0.3),
    "lag, large": Mismatch(lag=0.8),
    "temperature": Mismatch(temperature=1.15),
    "wrong records": Mismatch(wrong=0.005, lasting=0.1),
}


def softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Sample:
    """Sequences that an engine sampled: states and tokens, [B, T], both log-probs of the tokens, advantages [B]."""

    states: NDArray[np.int64]
    tokens: NDArray[np.int64]
    rollout: Floats
    trained: Floats
    advantages: Floats

    def table(self, n: int) -> dict[str, Any]:
        """The first n as a dump."""
        return {
            "rollout_log_probs": self.rollout[:n],
            "old_log_probs": self.trained[:n],
            "response_mask": np.ones((n, LENGTH), dtype=np.int64),
            "advantages": np.repeat(self.advantages[:n, None], LENGTH, axis=1),
        }


def sample(world: World, mismatch: Mismatch, n: int, seed: int) -> Sample:
    draw = np.random.default_rng(seed)
    size = world.logits.shape
    gradient = world.gradient()
    engine = world.logits / mismatch.temperature + mismatch.lasting * draw.normal(size=size)
    engine -= mismatch.lag * gradient / np.abs(gradient).max()
    policy = np.log(softmax(world.logits))
    state = draw.integers(VOCABULARY, size=n)
    states, tokens = np.zeros((n, LENGTH), np.int64), np.zeros((n, LENGTH), np.int64)
    rollout, trained, rewards = np.zeros((n, LENGTH)), np.zeros((n, LENGTH)), np.zeros(n)
    rows = np.arange(n)
    for t in range(LENGTH):
        logits = engine[state] + mismatch.fresh * draw.normal(size=(n, VOCABULARY))
        logits += 3 * (draw.random((n, 1)) < mismatch.heavy) * draw.normal(size=(n, VOCABULARY))
        probabilities = softmax(logits)
        token = (probabilities.cumsum(1) > draw.random((n, 1))).argmax(1)
        states[:, t], tokens[:, t] = state, token
        rollout[:, t], trained[:, t] = np.log(probabilities[rows, token]), policy[state, token]
        rewards += world.reward[state, token]
        state = token
    is_wrong = draw.random((n, LENGTH)) < mismatch.wrong
    rollout = np.where(is_wrong, np.minimum(rollout + draw.normal(0, 2, (n, LENGTH)), 0), rollout)
    return Sample(states, tokens, rollout, trained, (rewards - rewards.mean()) / rewards.std())


def factors(drawn: Sample, plan: str) -> Floats:
    """f of every token under a plan, [B, T], as the package applies it."""
    if plan == "disabled":  # there is nothing to apply
        return np.ones_like(drawn.rollout)
    corrected = api.correct(drawn.table(len(drawn.rollout)), preset=plan)
    names = [name for name in ("response_mask", "rollout_is_weights") if name in corrected.column_names]
    columns = [corrected.column(name).combine_chunks().flatten().to_numpy() for name in names]
    return np.prod(columns, axis=0, dtype=np.float64).reshape(-1, LENGTH)


def merit(world: World, drawn: Sample, f: Floats) -> float:
    policy, n = softmax(world.logits), len(f)
    terms = np.zeros((n, VOCABULARY, VOCABULARY))
    rows = np.repeat(np.arange(n), LENGTH)
    states, weights = drawn.states.ravel(), (f * drawn.advantages[:, None]).ravel()
    np.add.at(terms, (rows, states, drawn.tokens.ravel()), weights)
    visits = np.zeros((n, VOCABULARY))
    np.add.at(visits, (rows, states), weights)
    terms = (terms - visits[:, :, None] * policy).reshape(n, -1)
    gradient, mean = world.gradient().ravel(), terms.mean(0)
    variance = terms.var(0).sum()
    along = max((gradient @ mean) ** 2 - gradient @ np.cov(terms.T) @ gradient / n, 0.0)
    size = max(mean @ mean - variance / n, 1e-12)
    return float(along / (gradient @ gradient * (size + variance / AVERAGED)))


def regrets(mismatch: Mismatch, seed: int = 0) -> dict[str, float]:
    """Plan, and "choice" -> what it loses against the best plan in hindsight."""
    world = World.of(seed)
    drawn = sample(world, mismatch, SAMPLED, seed)
    merits = {plan: merit(world, drawn, factors(drawn, plan)) for plan in PLANS}
    choice = api.compare(drawn.table(DUMPED), preset=PLANS).recommendation.plan
    assert choice is not None
    best = max(merits.values())
    return {plan: 1 - of_plan / best for plan, of_plan in (*merits.items(), ("choice", merits[choice]))}


pytestmark = pytest.mark.xdist_group("simulation")


@pytest.fixture(scope="module")
def losses() -> dict[str, Mapping[str, float]]:
    """Mismatch -> the regret of every plan, and of the choice."""
    return {name: regrets(mismatch) for name, mismatch in MISMATCHES.items()}


@pytest.mark.full
def test_the_choice_loses_less_than_no_correction_sequence_weights_and_geometric_rejection(
    losses: dict[str, Mapping[str, float]],
) -> None:
    choice, disabled, sequence, geometric = (
        float(np.mean([of_plan[name] for of_plan in losses.values()]))
        for name in ("choice", "disabled", "decoupled_seq_is", "decoupled_geo_rs")
    )
    assert choice < disabled / 2 < disabled < sequence / 2
    assert sequence < geometric / 2
    assert choice < 0.003
    assert geometric > 0.3


@pytest.mark.parametrize("name", MISMATCHES)
def test_the_choice_is_near_the_best_plan_under_every_mismatch(
    name: str, losses: dict[str, Mapping[str, float]]
) -> None:
    assert losses[name]["choice"] < 0.01
