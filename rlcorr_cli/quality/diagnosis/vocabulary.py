"""Whether d goes with the token: changed weights move it alike in all prompts, and a penalty moves repeated ones."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from rlcorr_cli.quality.diagnosis.numbers import ratio, ratios
from rlcorr_cli.totals.gap import Vocabulary
from rlcorr_cli.totals.histogram import Floats

MIN_PAIRS = 30
"""An id counts from this many pairs of its tokens in different buckets of prompts."""
MIN_BUCKETS, MIN_TOKENS = 4, 300
BY_TOKEN, BY_TOKEN_ERRORS = 0.03, 4.0
"""Measured: bf16 noise at most .028, int8 weights at least .037."""
FEW_TOKENS = 4000
"""Below this, or MIN_BUCKETS prompts, omega^2 is too weak to tell rounding from changed weights."""
MIN_REPEATS, MIN_BINS = 10, 3


@dataclass(frozen=True, kw_only=True)
class ByToken:
    """omega2: the share of d's variance that goes with the token; error: its own, if ids did not matter."""

    omega2: float
    error: float
    buckets: int
    tokens: int

    @property
    def holds(self) -> bool:
        """Whether weights, not rounding, differ."""
        enough = self.buckets >= MIN_BUCKETS and self.tokens >= MIN_TOKENS
        return enough and self.omega2 >= BY_TOKEN and self.omega2 >= BY_TOKEN_ERRORS * self.error


@dataclass(frozen=True)
class Repetition:
    """difference: mean d of repeated tokens less that of first ones; eta2: its share of d's variance within bins."""

    difference: float
    eta2: float


def by_token(vocabulary: Vocabulary) -> ByToken:
    """omega^2 from products across buckets of prompts only, because samples of one prompt share prefixes."""
    n, d = vocabulary.by_id[:, :, 0], vocabulary.by_id[:, :, 1]
    mean, variance = _moments(vocabulary.spread)
    shifted = d - n * mean
    products = shifted.sum(axis=0) ** 2 - (shifted**2).sum(axis=0)
    pairs = n.sum(axis=0) ** 2 - (n**2).sum(axis=0)
    on = pairs >= MIN_PAIRS
    weight = n.sum(axis=0)[on]
    tokens = float(weight.sum())
    return ByToken(
        omega2=ratio(float((weight * products[on] / pairs[on]).sum()), tokens * variance),
        error=ratio(sqrt(2 * float((weight**2 / pairs[on]).sum())), tokens),
        buckets=int((n.sum(axis=1) > 0).sum()),
        tokens=int(tokens),
    )


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
