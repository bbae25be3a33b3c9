"""Whether d goes with the token: changed weights move it alike in all prompts, and a penalty moves repeated ones."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from rlcorr_cli.causes.numbers import ratio, ratios
from rlcorr_cli.totals.gap import Vocabulary
from rlcorr_cli.totals.histogram import Floats

MIN_PAIRS = 30
"""An id counts from this many pairs of its tokens in different buckets of prompts."""
MIN_BUCKETS, MIN_TOKENS = 4, 300
BY_TOKEN, BY_TOKEN_ERRORS = 0.03, 4.0
"""Measured: bf16 noise at most .028, int8 weights at least .037."""
WITHOUT_ONE = 0.01
"""What omega^2 must keep without any one bucket.  The error above takes tokens for independent; on random rows of dumps
of noise, 16 to 32 of them, it convicts one in 40, and nearly always because of a single prompt."""
FEW_TOKENS = 4000
"""Below this, or MIN_BUCKETS prompts, omega^2 is too weak to tell rounding from changed weights."""
MIN_REPEATS, MIN_BINS = 10, 3


@dataclass(frozen=True, kw_only=True)
class ByToken:
    """omega2: the share of d's variance that goes with the token; error: its own, if ids did not matter.
    least: the smallest omega2 without one of the buckets."""

    omega2: float
    error: float
    least: float
    buckets: int
    tokens: int

    @property
    def holds(self) -> bool:
        """Whether weights, not rounding, differ."""
        enough = self.buckets >= MIN_BUCKETS and self.tokens >= MIN_TOKENS
        clear = self.omega2 >= BY_TOKEN and self.omega2 >= BY_TOKEN_ERRORS * self.error
        return enough and clear and self.least >= WITHOUT_ONE


@dataclass(frozen=True)
class Repetition:
    """difference: mean d of repeated tokens less that of first ones; eta2: its share of d's variance within bins."""

    difference: float
    eta2: float


def by_token(vocabulary: Vocabulary) -> ByToken:
    """omega^2 from products across buckets of prompts only, because samples of one prompt share prefixes."""
    n, d = vocabulary.by_id[:, :, 0], vocabulary.by_id[:, :, 1]
    mean, variance = _moments(vocabulary.spread)
    used = n.sum(axis=1) > 0
    # Few ids count, and without a bucket none more does.
    on = _pairs(n) >= MIN_PAIRS
    n, d = n[:, on], d[:, on]
    shifted = d - n * mean
    weight, pairs = _weights(n)
    tokens = float(weight.sum())
    return ByToken(
        omega2=_omega2(n, shifted, variance),
        error=ratio(sqrt(2 * float((weight**2 / pairs).sum())), tokens),
        least=min(
            (_omega2(np.delete(n, k, 0), np.delete(shifted, k, 0), variance) for k in np.flatnonzero(used)), default=0.0
        ),
        buckets=int(used.sum()),
        tokens=int(tokens),
    )


def _omega2(n: Floats, shifted: Floats, variance: float) -> float:
    weight, pairs = _weights(n)
    products = (shifted.sum(axis=0) ** 2 - (shifted**2).sum(axis=0))[_pairs(n) >= MIN_PAIRS]
    return ratio(float((weight * products / pairs).sum()), float(weight.sum()) * variance)


def _weights(n: Floats) -> tuple[Floats, Floats]:
    """Of ids with MIN_PAIRS: their tokens, and their pairs of tokens in different buckets."""
    pairs = _pairs(n)
    on = pairs >= MIN_PAIRS
    return n.sum(axis=0)[on], pairs[on]


def _pairs(n: Floats) -> Floats:
    return n.sum(axis=0) ** 2 - (n**2).sum(axis=0)


def repetition(vocabulary: Vocabulary) -> Repetition | None:
    """None where fewer than MIN_BINS bins of u have MIN_REPEATS of both kinds."""
    repeats = vocabulary.repeats
    on = (repeats[:, :, 0] >= MIN_REPEATS).all(axis=1)
    if on.sum() < MIN_BINS:
        return None
    n, d, d2 = np.moveaxis(repeats[on], 2, 0)
    first, again = n.T
    weight = first * again / (first + again)
    means = ratios(d, n)
    difference = float((weight * (means[:, 1] - means[:, 0])).sum() / weight.sum())
    bins, sums = n.sum(axis=1), d.sum(axis=1)
    within = float((d2.sum(axis=1) - sums**2 / bins).sum())
    return Repetition(difference, min(1.0, ratio(difference**2 * float(weight.sum()), within)))


def _moments(sums: Floats) -> tuple[float, float]:
    n, d, d2 = map(float, sums)
    mean = ratio(d, n)
    return mean, max(0.0, ratio(d2, n) - mean**2)
