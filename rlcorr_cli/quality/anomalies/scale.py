"""Whether the columns are natural logarithms."""

from math import log
from typing import TYPE_CHECKING

from rlcorr_cli.quality.anomalies.alignment import correlation
from rlcorr_cli.quality.anomalies.sample import Sample
from rlcorr_cli.quality.bad_rows import ABOVE_ZERO

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

N_PROBABLE = 8
N_SCALED = 64
SCALED_CORRELATION = 0.99
SCALED_WITHIN = 0.02
"""Noise leaves the slope within 0.4 % of 1 on real pairs, four updates within 0.6 %; another temperature bends the
line: T = 0.7 gives a correlation of 0.976 and sd(a) / sd(b) = 0.85, T = 1.44 gives 0.990 and 1.31."""

FACTORS = {log(10): ("10", 0), 1 / log(10): ("10", 1), log(2): ("2", 0), 1 / log(2): ("2", 1)}
"""Slope of train on rollout -> the base, and whose it is: 0 rollout's, 1 train's."""


def probabilities(sample: Sample) -> str | None:
    """A column lies in [0, 1], and N_PROBABLE values or more, most of those other than 0.0, lie above ABOVE_ZERO."""
    columns = zip(sample.columns, (sample.pairs.rollout, sample.pairs.train), strict=True)
    ranges = [
        f"{name} lies between {values.min():.3g} and {values.max():.3g}"
        for name, values in columns
        if _probable(values)
    ]
    if not ranges:
        return None
    return f"{' and '.join(ranges)} on all {sample.pairs.n:,} tokens"


def _probable(values: "NDArray[np.float64]") -> bool:
    above = int((values > ABOVE_ZERO).sum())
    if above < max(N_PROBABLE, int((values != 0).sum()) / 2):
        return False
    return float(values.min()) >= -ABOVE_ZERO and float(values.max()) <= 1 + ABOVE_ZERO


def other_base(sample: Sample) -> str | None:
    """train = c rollout, with c within SCALED_WITHIN of ln 10, ln 2 or one over them, and both nearly on that line.

    N_SCALED pairs, r >= SCALED_CORRELATION, and two slopes that agree only on a line through 0: sd(a) / sd(b), which
    noise in either column moves alike, and sum a b / sum b^2.  Both columns in one base look like natural logarithms.
    """
    rollout, train = sample.pairs.rollout, sample.pairs.train
    if len(rollout) < N_SCALED or correlation(rollout, train) < SCALED_CORRELATION:
        return None
    slope, through_zero = float(train.std() / rollout.std()), float((train @ rollout) / (rollout @ rollout))
    for factor, (base, whose) in FACTORS.items():
        if max(abs(slope / factor - 1), abs(through_zero / factor - 1)) <= SCALED_WITHIN:
            slopes = f"{sample.columns[1]} is {slope:.4f} times {sample.columns[0]} over {len(rollout):,} tokens"
            return f"{slopes}, as if {sample.columns[whose]} were in base {base} (factor {factor:.4f})"
    return None
