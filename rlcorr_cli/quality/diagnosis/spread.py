"""How far d, the difference in log-odds, spreads at each level of surprise."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from rlcorr_cli.quality.diagnosis.numbers import ratio, weighted_quantile
from rlcorr_cli.totals.gap import SPREAD_FACTOR, SPREAD_LEAST, SPREAD_STEPS, SURPRISE_EDGES
from rlcorr_cli.totals.histogram import Floats

MIDDLE = 0.6827
"""The share of a normal distribution within one standard deviation."""
MIN_BIN = 15
"""A bin of fewer tokens has no spread."""
FAR_CORES = 6.0
"""An outlier lies this many cores off its bin's median."""
HIGH, NEAR = 3.75, 2.0
"""The fan compares bins of u from HIGH up with bins centred within NEAR of 0."""
MIN_FAN = 40
N_BINS = len(SURPRISE_EDGES) - 1


def _middles() -> Floats:
    sizes = SPREAD_LEAST * SPREAD_FACTOR ** (np.arange(SPREAD_STEPS) + 0.5)
    return np.concatenate([-sizes[::-1], [0.0], sizes])


MIDDLES = _middles()


@dataclass(frozen=True, kw_only=True)
class Spread:
    """core: the token-weighted median over bins of half the middle 68 % of d.  tail: rms(d - bin median) / core.
    n_far: outliers, n_below of them negative.  fan: how much wider d is among sure tokens than among even ones."""

    n: int
    core: float
    tail: float
    n_far: int
    n_below: int
    fan: float

    @property
    def far(self) -> float:
        """The share of tokens that are outliers."""
        return ratio(self.n_far, self.n)

    @property
    def below(self) -> float:
        """The share of outliers that are negative."""
        return ratio(self.n_below, self.n_far)


def spread_of(counts: Floats) -> Spread | None:
    """Of counts of tokens by bin of u and of d, f64[N_SURPRISE, N_SPREAD]; None if no bin has MIN_BIN tokens."""
    counts = counts[:N_BINS]
    n = counts.sum(axis=1)
    enough = np.flatnonzero(n >= MIN_BIN)
    if not len(enough):
        return None
    half = np.zeros(N_BINS)
    half[enough] = [_half(counts[i]) for i in enough]
    core = weighted_quantile(half[enough], n[enough], 0.5)
    median = np.array([weighted_quantile(MIDDLES, row, 0.5) if row.any() else 0.0 for row in counts])
    off = MIDDLES[None, :] - median[:, None]
    rms = sqrt(float((counts * off**2).sum()) / float(n.sum()))
    # A core below the least bin stands for 0, and any tail would be endless beside it.
    least = max(core, SPREAD_LEAST)
    far = counts * (np.abs(off) > FAR_CORES * least)
    return Spread(
        n=int(n.sum()),
        core=core,
        tail=rms / least,
        n_far=int(far.sum()),
        n_below=int((far * (off < 0)).sum()),
        fan=_fan(half, n),
    )


def _half(counts: Floats) -> float:
    low, high = (weighted_quantile(MIDDLES, counts, 0.5 + side * MIDDLE / 2) for side in (-1, 1))
    return (high - low) / 2


def _fan(half: Floats, n: Floats) -> float:
    low, high = np.array(SURPRISE_EDGES[:-1]), np.array(SURPRISE_EDGES[1:])
    sure, even = ((low >= HIGH), np.abs((low + high) / 2) < NEAR)
    sure, even = sure & (n >= MIN_BIN), even & (n >= MIN_BIN)
    if n[sure].sum() < MIN_FAN or n[even].sum() < MIN_FAN:
        return 1.0
    return ratio(weighted_quantile(half[sure], n[sure], 0.5), weighted_quantile(half[even], n[even], 0.5), 1.0)
