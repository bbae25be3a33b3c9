"""One function per formula, and the tables that rejections pick from: every row of `plans/plan.py` is in one.

A new statistic is a function and its row here, and a row in `plans/plan.py`, without which no plan knows it.

All take float64 arrays of any one shape and return the same shape; nats.  log_ratio l = a - b (training minus
rollout).  A formula that grows like e^l wants l limited first.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlcorr_cli.measure.arrays import Array, as_floats, namespace

if TYPE_CHECKING:
    from rlcorr_cli.measure.tokens import Tokens


def k2(log_ratio: Array) -> Array:
    """l^2 / 2, Schulman's k2 estimate of KL(rollout || training) per token; >= 0.

    Source: joschu.net/blog/kl-approx.html.
    """
    return log_ratio * log_ratio / 2


def k3(log_ratio: Array) -> Array:
    """e^l - 1 - l, Schulman's low-variance estimate of KL(rollout || training) per token; >= 0, zero only at l = 0.

    Source: joschu.net/blog/kl-approx.html.  AReaL's kl_k3 is k3(-l).
    """
    # expm1 keeps digits near l = 0, where e^l - 1 has none.
    return namespace(log_ratio).expm1(log_ratio) - log_ratio


def k3_reverse(log_ratio: Array) -> Array:
    """e^-l - 1 + l: k3 of the other direction (NeMo-RL's policy_kl_error); >= 0."""
    return namespace(log_ratio).expm1(-log_ratio) + log_ratio


PROB_LIMITS = (1e-6, 1 - 17 * 2.0**-24)
"""KPop takes probabilities within these before their divergence, as verl, prime-rl and OpenRLHF do: 1e-6 and what
float32 makes of 1 - 1e-6, which they compute in."""
ADDED = 1e-8
"""What DPPO adds to the probability of all other tokens before its log, as verl and SkyRL do."""
ROUNDS_TO_1 = 1 - 2.0**-25
"""The least probability that float32 rounds to 1."""


def binary_kl(tokens: "Tokens") -> Array:
    """The larger of KL(p || q) and KL(q || p) of the sampled token against all others; nats, >= 0, [V].

    KL(q || p) = q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)), with p = e^a and q = e^b as float32 holds them, in which
    trainers take them: near 1 its steps of 6e-8 are much of what all other tokens have.  Within PROB_LIMITS.  Source:
    KPop, ringtech.notion.site/kpop.
    """
    p, q = _held_probs(tokens)
    return tokens.xp.maximum(_two_outcome_kl(p, q), _two_outcome_kl(q, p))


def binary_kl_forward(tokens: "Tokens") -> Array:
    """KL(q || p) of the sampled token against all others, q = e^b of the rollout and p = e^a; nats, >= 0, [V].

    Probabilities as `binary_kl` takes them, as OpenRLHF has them.  Source: FlashREINFORCE, which bounds a sequence's
    mean.
    """
    p, q = _held_probs(tokens)
    return _two_outcome_kl(q, p)


def _held_probs(tokens: "Tokens") -> tuple[Array, Array]:
    """p = e^a and q = e^b, rounded to float32, within PROB_LIMITS; f64[V] each."""
    xp, b = tokens.xp, tokens.rollout_logp
    exact = (xp.exp(b + tokens.log_ratio), xp.exp(b))
    p, q = (xp.clip(as_floats(xp.astype(each, xp.float32)), *PROB_LIMITS) for each in exact)
    return p, q


def _two_outcome_kl(p: Array, q: Array) -> Array:
    """p ln(p / q) + (1 - p) ln((1 - p) / (1 - q)), as p (u - ln(1 + u)) + (1 - p) (v - ln(1 + v)) with u = (q - p) / p
    and v = (p - q) / (1 - p), whose parts do not cancel where p is near q."""
    gap = q - p
    return p * _excess(gap / p) + (1 - p) * _excess(-gap / (1 - p))


def binary_kl_signed(tokens: "Tokens") -> Array:
    """KL(q || p) of the sampled token against all others, with the sign of l: > 0 where training has it likelier; [V].

    ADDED keeps the log of all others finite.  Source: DPPO, arXiv 2602.04879, whose Binary-KL bounds it on the side of
    the advantage.
    """
    xp, q = tokens.xp, tokens.rollout_prob
    others = xp.clip(-xp.expm1(tokens.rollout_logp), 0.0, None)
    x = xp.clip(-tokens.prob_gap / (others + ADDED), -others / (others + ADDED), None)
    own = q * k3(tokens.log_ratio)
    if tokens.out_of_float_range is not None:
        # q (e^l - 1 - l) as p - q - q l, where e^l is beyond float64.
        own = xp.where(tokens.out_of_float_range, tokens.prob_gap - q * tokens.log_ratio, own)
    divergence = own + others * _excess(x) + ADDED * x
    return xp.where(tokens.log_ratio < 0, -divergence, divergence)


def _excess(x: Array) -> Array:
    """x - ln(1 + x); >= 0."""
    return x - namespace(x).log1p(x)


def binary_kl_float32(tokens: "Tokens") -> Array:
    """The larger of the two directions, infinite where float32 rounds a probability to 1.

    AReaL clamps at 1 - 1e-8, which is 1 in float32: there its divergence is not a number, and no bound holds it.
    """
    rounded = (tokens.train_prob >= ROUNDS_TO_1) | (tokens.rollout_prob >= ROUNDS_TO_1)
    return tokens.xp.where(rounded, math.inf, binary_kl(tokens))


STATISTICS: dict[str, Callable[[Array], Array]] = {
    "k2": k2,
    "k3": k3,
    "k3_reverse": k3_reverse,
    "abs_log_ratio": abs,
    "exp_abs_log_ratio": lambda log_ratio: namespace(log_ratio).exp(abs(log_ratio)),
    "log_ratio_squared": lambda log_ratio: log_ratio * log_ratio,
    "ratio_gap": lambda log_ratio: abs(namespace(log_ratio).expm1(log_ratio)),
}
"""Statistics that are a function of the limited log-ratio, per token."""

OF_PROBABILITIES: "dict[str, Callable[[Tokens], Array]]" = {
    "prob_gap": lambda tokens: tokens.prob_gap,
    "abs_prob_gap": lambda tokens: abs(tokens.prob_gap),
    "binary_kl": binary_kl,
    "binary_kl_forward": binary_kl_forward,
    "binary_kl_signed": binary_kl_signed,
    "binary_kl_float32": binary_kl_float32,
}
"""Statistics of both probabilities of a token, which no limit changes."""

LINEAR: dict[str, int] = {"ratio": 1, "log_ratio": 1, "k1": -1}
"""Statistics that reduce l itself, times this sign, before the limit and the exponential: the product of ratios is e^S,
and their geometric mean e^g, which no reduction of per-token ratios gives in float64."""
