"""Made-up dumps: rows as the oracle takes them, as a Batch, and what rlcorr measures of them."""

import importlib
import importlib.util
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np
from hypothesis import strategies as st
from oracle import Row

from rlcorr_cli.measure.arrays import CPU, Device
from rlcorr_cli.measure.budget_search import candidates, totals as budget_totals
from rlcorr_cli.measure.observe import BudgetBounds, Observation, Observed, observe
from rlcorr_cli.metrics.catalog import canonical
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.budget_search import crossing, cut
from rlcorr_cli.totals.families import Values
from rlcorr_cli.totals.normalize import CANONICAL, BatchMean, factors, normalize
from rlcorr_cli.totals.totals import GroupKey, Totals
from rlcorr_cli.totals.view import Numbers

HAS_CUDA = importlib.util.find_spec("torch") is not None and importlib.import_module("torch").cuda.is_available()
DEVICES = (CPU, Device("torch"), *((Device("cuda"),) if HAS_CUDA else ()))
"""Where the arithmetic runs: NumPy, torch on a CPU, and torch on a GPU where there is one."""
_CHOSEN = [CPU]
FAR = (-30.0, 30.0, -5.0, 5.0, -0.125, 0.125, 0.0, 0.03125)
OFF = 3 / 2**20
"""Keeps log-ratios off the round numbers that bounds are: on a tie, rounding decides what is outside."""


@contextmanager
def computed_on(device: Device) -> Generator[None]:
    """What is measured here meanwhile is measured there."""
    _CHOSEN.append(device)
    try:
        yield
    finally:
        _CHOSEN.pop()


def library() -> Device:
    """Where what is made here is measured."""
    return _CHOSEN[-1]


def row(log_ratios: Sequence[float], probs: Sequence[float] | None = None, **more: object) -> Row:
    """A row of these log-ratios; probs: the larger of the two log-probs, -1 unless given."""
    upper = [-1.0] * len(log_ratios) if probs is None else probs
    train = [p + min(x, 0.0) for p, x in zip(upper, log_ratios, strict=True)]
    rollout = [p - max(x, 0.0) for p, x in zip(upper, log_ratios, strict=True)]
    given = {"mask": [1] * len(train), "advantages": [0.0] * len(train), **more}
    return Row(train, rollout, **given)


def batch(rows: Sequence[Row], mode: Mode = "decoupled") -> Batch:
    """The rows' valid tokens; the group of a row is its training batch.  In bypass mode the trained policy is the
    current one, and there is no other."""
    valid = [[t for t, m in enumerate(r.mask) if m] for r in rows]
    has_current = mode == "decoupled" and all(r.current is not None for r in rows)
    train = np.array([r.train[t] for r, at in zip(rows, valid, strict=True) for t in at], np.float64)
    keys = sorted({r.batch for r in rows}, key=str)
    return Batch(
        offsets=np.cumsum([0, *map(len, valid)]).astype(np.int64),
        rollout_logp=np.array([r.rollout[t] for r, at in zip(rows, valid, strict=True) for t in at], np.float64),
        old_logp=None if mode == "bypass" else train,
        current_logp=np.array([(r.current or [])[t] for r, at in zip(rows, valid, strict=True) for t in at], np.float64)
        if has_current
        else (train if mode == "bypass" else None),
        advantages=np.array([r.advantages[t] for r, at in zip(rows, valid, strict=True) for t in at], np.float64),
        n_masked=np.array([len(r.mask) - len(at) for r, at in zip(rows, valid, strict=True)], np.int64),
        reward=np.array([np.nan if r.reward is None else r.reward for r in rows]),
        group_index=np.array([keys.index(r.batch) for r in rows], np.int32),
        group_keys=tuple((key,) for key in keys),
    )


def observed(rows: Sequence[Row], plan: Plan, seed: int | None = None) -> Observed:
    """What rlcorr adds up, by training batch."""
    return observed_under(rows, (plan,), seed)


def observed_under(rows: Sequence[Row], plans: Sequence[Plan], seed: int | None = None) -> Observed:
    """The same under several plans at once, of one mode, no two with budgets of one name."""
    one = batch(rows, plans[0].mode)
    observation = Observation(plans=tuple(plans), seed=seed)
    return observe(one, observation, library(), {name: of for plan in plans for name, of in bounds(one, plan).items()})


def bounds(one: Batch, plan: Plan) -> BudgetBounds:
    """The bounds of a plan's budgets, each of a batch's groups being a training batch."""
    found: dict[str, dict[GroupKey, float]] = {budget.name: {} for budget in plan.budgets}
    totals = budget_totals(one, plan, library())
    limit_of = {budget.name: budget.mean_below for budget in plan.budgets}
    crossing_of = {key: crossing(total, limit_of[key.budget]) for key, total in totals.items()}
    for key, values in candidates(one, plan, library(), crossing_of).items():
        found[key.budget][key.group], _ = cut(crossing_of[key], [values], limit_of[key.budget])
    return found


def metrics(rows: Sequence[Row], plan: Plan, *, has_advantages: bool = False) -> Values:
    """rlcorr's canonical metrics of the rows, weights normalised per training batch where the plan says so."""
    return metrics_of(rows, (plan,), has_advantages=has_advantages)[plan]


def metrics_of(rows: Sequence[Row], plans: Sequence[Plan], *, has_advantages: bool = False) -> dict[Plan, Values]:
    """Those of several plans, measured at once: plans of one mode, no two with budgets of one name."""
    one = batch(rows, plans[0].mode)
    assert {plan.mode for plan in plans} == {plans[0].mode}
    observation = Observation(plans=tuple(plans), seed=None, has_advantages=has_advantages)
    found = {name: of_group for plan in plans for name, of_group in bounds(one, plan).items()}
    totals = observe(one, observation, library(), found).totals
    whole = totals.whole
    wholes = {plan: normed(totals, plan).whole if plan.normalizes else whole for plan in plans}
    return {plan: canonical(Numbers.of_plan(whole, plan, 0), plan) for plan, whole in wholes.items()}


def normed(totals: Totals, plan: Plan, batch_mean: BatchMean = CANONICAL) -> Totals:
    """With weights normalised per training batch where the plan says so."""
    return normalize(totals, plan, factors(totals, plan, batch_mean)) if plan.normalizes else totals


def simulated(n: int, seed: int, mean: float = 0.0, std: float = 0.05, longest: int = 20) -> list[Row]:
    """n rows of 1 to `longest` tokens with normal log-ratios, in two training batches; some masked, some rewarded."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for i in range(n):
        length = rng.randint(1, longest)
        b = [-rng.random() * 3 - 4 * (std + abs(mean)) for _ in range(length)]
        a = [x + rng.gauss(mean, std) for x in b]
        mask = [int(rng.random() > 0.1) for _ in b]
        current, reward = [x - 0.3 * rng.random() for x in a], rng.choice([None, 0.0, 1.0])
        rows.append(Row(a, b, mask, current, reward, i % 2, [rng.gauss(0, 1)] * length))
    return rows


def edges() -> list[Row]:
    """A dump that no test need be lucky to draw: near and far beyond every limit, ties, an empty row, masked ones."""
    log_ratios = [[30.0, -30.0, 5.0, 0.0], [], [12.0, 11.0], [-30.0] * 3, [0.0, 0.5], [0.125, 0.125, -0.02], [0.01] * 9]
    rows = [row(of_row, batch=i % 2, reward=[None, 1.0][i % 2]) for i, of_row in enumerate(log_ratios)]
    rows[4].mask, rows[5].mask = [0, 0], [1, 0, 1]
    for sign, each in zip((1, 1, -1, 1, 1, -1, 1), rows, strict=True):
        each.advantages = [sign * (1.0 + t) for t in range(len(each.train))]
    return rows


Token = tuple[float, int, int, int]
_NEAR = st.integers(-250, 250).map(lambda k: (k or 1) / 1024 + OFF)
_LOG_RATIOS = (_NEAR, _NEAR, st.just(0.0), st.just(OFF - 10 / 1024), st.sampled_from(FAR))
_OTHERS = st.integers(0, 320), st.integers(0, 4), st.integers(-100, 100)
# Built once: strategies that are built anew for each row take half of the time that it takes to draw them.
_ROWS_OF_TOKENS = st.sampled_from(
    [[st.lists(st.tuples(log_ratio, *_OTHERS), max_size=n) for n in (1, 10)] for log_ratio in _LOG_RATIOS]
)
_REWARDS = st.sampled_from([None, 0.0, 1.0, -0.25])
_BATCHES = st.integers(0, 1)


@st.composite
def dumps(draw: st.DrawFn, min_rows: int = 1, max_rows: int = 8) -> list[Row]:
    """Ragged rows, some empty or wholly masked: near, equal, constant or far policies; two training batches.

    Log-probs are binary fractions, so that equal log-ratios are equal however they came about.
    """
    short_or_long = st.sampled_from(draw(_ROWS_OF_TOKENS))
    has_current, has_mask = draw(st.booleans()), draw(st.booleans())
    rows: list[Row] = []
    for _ in range(draw(st.integers(min_rows, max_rows))):
        tokens: list[Token] = draw(draw(short_or_long))
        one = row([t[0] for t in tokens], [-t[1] / 64 for t in tokens])
        if has_mask:
            one.mask = [int(t[2] > 0) for t in tokens]
        if has_current:
            one.current = [min(a + t[3] / 256 + OFF, 0.0) for a, t in zip(one.train, tokens, strict=True)]
        # One number for all tokens, as most dumps have it, or one each.
        one.advantages = [(t if has_mask else tokens[0])[3] / 100 for t in tokens]
        one.reward = draw(_REWARDS)
        one.batch = draw(_BATCHES)
        rows.append(one)
    return rows
