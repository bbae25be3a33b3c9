"""ADVANTAGES: whether the policy in training earns other rewards from the one that sampled, where a dump tells."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcorr_cli.metrics.metric import Metric

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers

PREFIX = "advantages."
"""What the names of their totals begin with, in the diagnostics of a mode."""
ROUNDING = 1e-12
"""A spread below this share of the squares it is left of is rounding."""
FEWEST_EFFECTIVE = 10.0
"""A mean that rests on fewer sequences than this is no measure, and its standard error is too small by far: it is made
of deviations from that same mean."""

Named = Callable[[str], Any]
"""Name -> a total, or an f64[G] of many groups."""


def shift_and_error(n: Any, sums: Named, logs: Named) -> tuple[Any, Any]:
    """(A_IS - mean A) / sd A of n sequences, and its standard error, from w_i (A_i - A_IS) - (A_i - mean A) / n with
    w = e^S of sum 1.

    sums: of A and A^2; logs: of the sums of e^S and e^2S times 1, A+, A- and A^2, by the names of
    `totals/comparison.py`.  NaN where the advantages are all equal, or w rests on fewer than FEWEST_EFFECTIVE.  The
    error is 0 where all e^S are equal, to rounding.
    """
    import numpy as np

    mean, variance = sums("advantage") / n, variance_over_sequences(n, sums)
    _, a_is, square_is = moments("ratio", 1, logs)
    w2, w2_a, w2_square = moments("ratio_squared", 2, logs)
    # The squares and products of the two deviations, which all but cancel where e^S is all but constant.
    spread = variance / n - 2 * (square_is - a_is**2) / n + w2_square - 2 * a_is * w2_a + a_is**2 * w2
    squares = sums("advantage_squared") / n**2 + w2_square + a_is**2 * w2
    error = np.sqrt(beyond_rounding(spread, squares) / variance)
    known = (variance > 0) & (effective_sequences(logs) >= FEWEST_EFFECTIVE)
    return np.where(known, (a_is - mean) / np.sqrt(variance), np.nan), np.where(known, error, np.nan)


def variance_over_sequences(n: Any, sums: Named) -> Any:
    """Of the advantages; 0 where only rounding tells them apart, NaN where float64 does not hold their squares."""
    from rlcorr_cli.totals.view import variance

    return variance(sums("advantage") / n, sums("advantage_squared") / n)


def beyond_rounding(spread: Any, squares: Any) -> Any:
    """A sum of squared deviations, 0 where it is rounding.  squares: the sum of the squares of what deviates."""
    import numpy as np

    return np.where(spread <= ROUNDING * squares, 0.0, spread)


def effective_sequences(logs: Named) -> Any:
    """(sum e^S)^2 / sum e^2S: how many sequences a mean under true sequence weights rests on."""
    import numpy as np

    return np.exp(2 * logs("ratio") - logs("ratio_squared"))


def moments(name: str, norm: int, logs: Named) -> tuple[Any, Any, Any]:
    """Sums of something times 1, A and A^2, over a power of the sum of e^S."""
    import numpy as np

    one, positive, negative, square = (
        np.exp(logs(name + part) - norm * logs("ratio")) for part in ("", "_positive", "_negative", "_square")
    )
    return one, positive - negative, square


def _of_view(n: "Numbers") -> tuple[Any, Any]:
    return shift_and_error(n.sum(f"{PREFIX}rows"), lambda name: n.sum(PREFIX + name), lambda name: n.log(PREFIX + name))


ADVANTAGES: tuple[Metric, ...] = (
    Metric(
        name="advantage_shift",
        formula="(A_IS - mean A) / sd A",
        unit="standard deviations",
        ideal=0.0,
        can_be_negative=True,
        meaning="How much more the training policy earns than the rollout policy: the mean advantage under true "
        "sequence weights e^S minus the plain mean.",
        worry="Its size is above 0.2 and above three standard errors: the policies earn different rewards. That is "
        "staleness.",
        note="Needs advantages. Null if they are all equal, or if the true sequence weights have fewer than "
        f"{FEWEST_EFFECTIVE:g} effective sequences.",
        value=lambda n: _of_view(n)[0],
        resampled=False,
    ),
    Metric(
        name="advantage_shift_se",
        formula="standard error of advantage_shift, from share (A - A_IS) - (A - mean A) / B, share = e^S of sum 1",
        unit="standard deviations",
        meaning="How far advantage_shift may be off by chance.",
        note="Null if advantage_shift is null.",
        value=lambda n: _of_view(n)[1],
        resampled=False,
    ),
)
"""The metrics of a dump that has advantages."""
