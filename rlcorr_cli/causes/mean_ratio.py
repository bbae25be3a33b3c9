"""A mean ratio that cannot be, which voids every other number of a dump.

Under the policy that drew the tokens the mean of rho = e^l is 1, whatever the other policy; and so the mean of rho^2 is
at least 1, a chi-square at least 0.  A sample's mean differs by its sampling error only, unless a few unseen tokens
carry the rest of it.  So nothing is concluded from a mean alone: below 1, the mean of rho^2 must be below 1, too, as it
never is where large ratios are about; above 1, the tail of the ratios must be one whose mean can be trusted.

That the mean is 1 holds within every prompt, so what is independent here are rollouts, not prompts: the errors come
from buckets of rollouts, and a rollout that stands several times is in one bucket.
"""

import math

import numpy as np

from rlcorr_cli.causes.diagnosis import Impossible
from rlcorr_cli.causes.gap_sums import RowGaps
from rlcorr_cli.causes.numbers import first_step
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.row_sampling import rollout_keys
from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.row_sample import RowSample
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail

RATIO_MEAN = "ratio_mean"
STANDARD_ERRORS = 5.0
"""How many standard errors a mean must lie away.  Dumps without such a fault reach 3.6, with one 5 to 31."""
LEAST = 0.001
"""What the storage of log-probs may move a mean by."""
FEWEST = 20
"""Distinct sequences that it takes to know a standard error."""
ROUNDING = 1e-12
"""A standard error below this share of its mean is rounding."""
BUCKETS = 256
TOO_LOW = (
    "Training gives probability to tokens that the rollout column rules out. The rollout column holds log-probs after "
    "top-p, top-k or min-p, or training's softmax runs over more tokens than rollout can draw."
)
TOO_HIGH = (
    "The rollout column is not the distribution that the tokens were drawn from: it is the wrong column, swapped, "
    "scaled after the softmax, or of tokens that were stored only in part."
)


@frozen
class Mean:
    """A mean over rollouts with its 95% interval."""

    value: float
    low: float
    high: float

    def errors_above(self, true: float) -> float:
        """Distance in standard errors, of which a 95% interval is 3.92 wide.

        0 where the error is 0 but for rounding, as of ratios that are all the same.
        """
        error = (self.high - self.low) / 3.92
        return (self.value - true) / error if error > ROUNDING * max(abs(self.value), abs(true)) else 0.0


@np.errstate(all="ignore")
def impossible_ratio(sample: RowSample, rows: RowGaps) -> Impossible | None:
    """The mean ratio of a sample, where it proves that a column is not what it is taken for.  rows: sums over each."""
    lengths = sample.n_valid
    # A grid rounds sure tokens to one side, to 0.
    rounding = math.expm1(first_step(sample.rollout) + first_step(sample.train))
    if not len(lengths) or abs(rows.rho_minus_1.sum() / lengths.sum()) < max(LEAST, rounding):
        return None
    if DistinctKeys.of(rows.keys, FEWEST).exact:
        return None
    # A rollout of few tokens is known by what tells rows apart.
    rollouts = np.where(lengths < bootstrap.TELLING_TOKENS, rows.keys, rollout_keys(sample.rollout, lengths))
    buckets = (rollouts % np.uint64(BUCKETS)).astype(np.int64)
    # rho^2 - 1 = (rho - 1)^2 + 2 (rho - 1)
    of_rows = (lengths, rows.rho_minus_1, rows.square + 2 * rows.rho_minus_1)
    n, by_bucket, squares = (np.bincount(buckets, each, BUCKETS).astype(np.float64) for each in of_rows)
    mean = _mean(n, by_bucket, 1.0)
    shape = limit = None
    if mean is not None and mean.value > 1:
        tail = Tail.of(sample.train - sample.scored.astype(np.float64), WHOLE_SIZE)
        shape, limit = tail.pareto_k, tail.limit
    return proof(mean, _mean(n, squares, 0.0), shape=shape, limit=limit)


def proof(mean: Mean | None, square: Mean | None, *, shape: float | None, limit: float | None) -> Impossible | None:
    """What the mean of rho and that of rho^2 - 1 prove; None of what float64 does not hold.

    shape, limit: of the tail of rho, and the largest at which its mean can be trusted.
    """
    if mean is None or abs(mean.value - 1) < LEAST:
        return None
    away, interval = mean.errors_above(1.0), (mean.low, mean.high)
    if away < -STANDARD_ERRORS and square is not None and square.errors_above(0.0) < -STANDARD_ERRORS:
        return Impossible(RATIO_MEAN, mean.value, interval, TOO_LOW)
    if away > STANDARD_ERRORS and shape is not None and limit is not None and shape <= limit:
        return Impossible(RATIO_MEAN, mean.value, interval, TOO_HIGH)
    return None


def _mean(n: Floats, x: Floats, base: float) -> Mean | None:
    """base + sum x / sum n, with its interval of Student's t; None where float64 does not hold the squares.

    The standard error of a ratio of sums over m buckets that hold a token:
    sqrt(m / (m - 1) sum (x_g - mean n_g)^2) / sum n.
    """
    x, n = x[n > 0], n[n > 0]
    if len(n) < 2:
        return None
    mean = float(x.sum() / n.sum())
    reach = t_quantile(0.975, len(n)) * math.sqrt(float(((x - mean * n) ** 2).sum())) / float(n.sum())
    return Mean(base + mean, base + mean - reach, base + mean + reach) if math.isfinite(reach) else None
