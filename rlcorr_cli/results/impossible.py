"""What cannot be: a mean ratio away from 1.

Under the policy that drew the tokens the mean of rho = e^l is 1, whatever the other policy; and so the mean of rho^2 is
at least 1, a chi-square at least 0.  A sample's mean differs by its sampling error only, unless a few unseen tokens
carry the rest of it.  So nothing is concluded on a mean alone: below 1, the mean of rho^2 must be below 1, too, as it
never is where large ratios are about; above 1, the tail of the ratios must be one whose mean can be trusted.

That the mean is 1 holds within every prompt, so rollouts are what is independent here, not prompts: the errors come
from buckets of rollouts, and not from the bootstrap's draws of prompts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.records import Interval, Record
from rlcorr_cli.totals.exact import Floats
from rlcorr_cli.totals.families import Value
from rlcorr_cli.totals.whole import WholeDump

LOWERED_BY = ("top_p", "min_p", "top_k", "temperature_and_truncation", "padded_vocabulary")
"""Causes of a gap that put the mean ratio below 1: what is named as one of them explains it."""
STANDARD_ERRORS = 5.0
"""How many standard errors a mean must lie away.  Dumps without such a fault reach 3.6, with one 5 to 31."""
LEAST = 0.001
"""What the storage of log-probs may move a mean by."""
FEWEST = 20
"""Distinct sequences that it takes to know a standard error."""
ROUNDING = 1e-12
"""A standard error below this share of its mean is rounding."""


@dataclass(frozen=True)
class Impossible(Record):
    """A metric that cannot have its value, its 95 % interval, and the sentence of what that proves."""

    metric: str
    value: float
    interval: Interval
    proves: str

    def follows_from(self, cause: str) -> bool:
        """Whether the cause of a gap explains the value, so that there is nothing else to look for."""
        return self.value < 1 and cause in LOWERED_BY


TOO_LOW = (
    "the training policy gives probability to tokens that the rollout column rules out: it holds processed log-probs "
    "(after top-p, top-k or min-p), or the training column sums over more than the vocabulary that was drawn from"
)
TOO_HIGH = (
    "the rollout column is not the distribution that the tokens were drawn from: a wrong or swapped column, log-probs "
    "scaled after the softmax, or truncated storage"
)


def ratio_intervals(ratios: Floats) -> dict[str, tuple[float, float]]:
    """95 % intervals of ratio_mean and chi2_token over independent rollouts; ratios: as a WholeDump has them.

    Of Student's t, with the standard error of sum x / sum n over m buckets that hold any:
    sqrt(m / (m - 1) sum (x_g - mean n_g)^2) / sum n.  Sums whose squares float64 does not hold have none.
    """
    import numpy as np

    filled = ratios[ratios[:, 0] > 0]
    n_buckets, n = len(filled), filled[:, 0]
    if n_buckets < 2:
        return {}
    ends: dict[str, tuple[float, float]] = {}
    for name, one, x in (("ratio_mean", 1.0, filled[:, 1]), ("chi2_token", 0.0, filled[:, 2])):
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(x.sum() / n.sum())
            reach = t_quantile(0.975, n_buckets) * math.sqrt(((x - mean * n) ** 2).sum()) / float(n.sum())
        if math.isfinite(reach):
            ends[name] = one + mean - reach, one + mean + reach
    return ends


def impossible_in(values: Mapping[str, Value], of_whole: WholeDump | None) -> Impossible | None:
    """The same of what is kept of a whole dump; nothing where its errors are not known."""
    if of_whole is None or of_whole.rows is None or of_whole.ratios is None:
        return None
    return impossible_ratio(values, ratio_intervals(of_whole.ratios), of_whole.rows.n_distinct)


def impossible_ratio(
    values: Mapping[str, Value], intervals: Mapping[str, tuple[float, float]], n_distinct: int
) -> Impossible | None:
    """The mean ratio of a dump, where it proves that a column is not what it is taken for; values: canonical.

    intervals: of ratio_mean and chi2_token over independent rollouts.
    """
    mean, interval = values.get("ratio_mean"), intervals.get("ratio_mean")
    if mean is None or interval is None or n_distinct < FEWEST or abs(mean - 1) < LEAST:
        return None
    away = _errors_away(mean, 1.0, interval)
    if away < -STANDARD_ERRORS and _is_negative(values.get("chi2_token"), intervals.get("chi2_token")):
        return Impossible("ratio_mean", mean, interval, TOO_LOW)
    shape, limit = values.get("pareto_k_token"), values.get("pareto_k_token_limit")
    healthy = shape is not None and limit is not None and shape <= limit
    if away > STANDARD_ERRORS and healthy:
        return Impossible("ratio_mean", mean, interval, TOO_HIGH)
    return None


def _is_negative(value: Value, interval: tuple[float, float] | None) -> bool:
    return value is not None and interval is not None and _errors_away(value, 0.0, interval) < -STANDARD_ERRORS


def _errors_away(value: float, true: float, interval: tuple[float, float]) -> float:
    """Distance in standard errors, of which a 95 % interval is 3.92 wide.

    0 where the error is 0 but for rounding, as of ratios that are all the same.
    """
    error = (interval[1] - interval[0]) / 3.92
    return (value - true) / error if error > ROUNDING * max(abs(value), abs(true)) else 0.0
