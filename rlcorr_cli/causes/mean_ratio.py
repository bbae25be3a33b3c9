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
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.chosen_rows import rollout_keys
from rlcorr_cli.measure.tokens import Tokens, scored_rollout
from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.row_keys import DistinctKeys
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
def impossible_ratio(batch: Batch) -> Impossible | None:
    """The mean ratio of some rows, none of them empty, where it proves that a column is not what it is taken for."""
    tokens = Tokens.of(batch, CPU)
    rollout = scored_rollout(batch, "decoupled")
    keys = bootstrap.row_keys(rollout, batch.offsets, batch.row_keys)
    if DistinctKeys.of(keys, FEWEST).exact:
        return None
    # A rollout of few tokens is known by what tells rows apart.
    rollouts = np.where(batch.lengths < bootstrap.TELLING_TOKENS, keys, rollout_keys(batch))
    buckets = (rollouts % np.uint64(BUCKETS)).astype(np.int64)
    n, rho_minus_1, chi2 = (
        np.bincount(buckets, of_rows, minlength=BUCKETS).astype(np.float64)
        for of_rows in (
            batch.lengths,
            tokens.rho_minus_1_sum,
            tokens.rho_deviation + 2 * tokens.rho_minus_1_sum,  # rho^2 - 1 = (rho - 1)^2 + 2 (rho - 1)
        )
    )
    tail = Tail.of(tokens.log_ratio, WHOLE_SIZE)
    return proof(_mean(n, rho_minus_1, 1.0), _mean(n, chi2, 0.0), shape=tail.pareto_k, limit=tail.limit)


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
