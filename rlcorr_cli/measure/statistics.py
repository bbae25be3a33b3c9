"""One function per formula, and the tables that rejections pick from: every row of `plans/plan.py` is in one, but
`prob_gap`, which needs both probabilities.

A new statistic is a function and its row here, and a row in `plans/plan.py`, without which no plan knows it.

All take float64 arrays of any one shape and return the same shape; nats.  log_ratio l = a - b (training minus
rollout).  A formula that grows like e^l wants l limited first.
"""

from collections.abc import Callable

from rlcorr_cli.measure.arrays import Array, namespace

EXP_LIMIT = 700.0
"""e^+-700 is the last that float64 holds with room for a product; larger log-ratios are exponentiated as +-700."""


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


STATISTICS: dict[str, Callable[[Array], Array]] = {
    "k2": k2,
    "k3": k3,
    "k3_reverse": k3_reverse,
    "abs_log_ratio": abs,
    "exp_abs_log_ratio": lambda log_ratio: namespace(log_ratio).exp(abs(log_ratio)),
    "log_ratio_squared": lambda log_ratio: log_ratio * log_ratio,
}
"""Statistics that are a function of the limited log-ratio, per token."""

LINEAR: dict[str, int] = {"ratio": 1, "log_ratio": 1, "k1": -1}
"""Statistics that reduce l itself, times this sign, before the limit and the exponential: the product of ratios is e^S,
and their geometric mean e^g, which no reduction of per-token ratios gives in float64.  `prob_gap` is in neither table:
it needs both probabilities, and Tokens has it."""
