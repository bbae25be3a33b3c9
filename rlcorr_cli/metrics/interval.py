"""95% intervals from bootstrap replicates of a metric, also for few clusters and for skewed metrics.

The quantiles of the replicates hold the truth too rarely where clusters are few: n clusters know their own spread
badly, and a sample that misses the rare large values of a skewed metric underestimates it.  So an interval is that of
Student's t with n - 1 degrees of freedom, u = t sqrt(n / (n - 1)) standard deviations s of the replicates, and what is
skewed reaches farther to one side.  How far does not follow from the replicates' skewness, which 200 of them know to
+-0.17: ends differed by a factor of 3 from seed to seed.  It follows from standard deviations, known to 5%.

A metric that has an end of its range nearby (a mean that is never negative, a share, a correlation) lies at a distance
y from it.  Its relative error c is the geometric mean of s / y and the standard deviation of log y, whose own errors
partly cancel.  Towards that end the interval is one on the scale of logs, and never passes the end; away from it, it is
the longer, the more clusters differ, because then a sample often lacks the rare ones that decide the metric:

    towards the end y (1 - e^(-u c (1 + 4 c^2))),    away from it y u c (1 + k / n^(1/3)),
    k = 2.5 C^1.5 / (C + 0.35) + 7 h,    C = c sqrt(n),    h = max(0, r) L sqrt(n).

C is the coefficient of variation over clusters; 4 c^2 is for shares that a few clusters make, whose errors are those of
counts.  h is how much farther from the end the metric is in clusters of long sequences: r is its correlation with
length_mean over the replicates, L the relative error of length_mean.  A mean over tokens weights long clusters most,
and a sample that lacks the longest is off twice.  length_mean itself has h = 0.  A share v below 1/2 has k (1 - 2 v):
means of values between 0 and 1 are the less skewed, the nearer they are to the middle.

A metric without such an end, kl say, or a ratio around 1, has symmetric errors but for the part that it shares with the
size of the gap.  With R its correlation with k3_kl, and k3_kl's own arm a times its u s on the side to which both move
together, its arm there is u s (1 + sqrt|R| (a - 1)).  Without an ideal, as of a reward, it is u s.

The constants of k are fitted: with them the rates of tests/benchmarks/coverage.py (`rlcorr help intervals`) hold for
5 to 512 clusters.  Sources of the forms: Johnson, Modified t Tests and Confidence Intervals for Asymmetrical
Populations (JASA 73, 1978), whose interval of t moves with the skewness, by 1 / sqrt(n); n^(1/3) falls more slowly,
because the sample underestimates C; Zou and Donner, Construction of Confidence Limits about Effect Measures (Statistics
in Medicine 27, 2008) for arms of a whole from those of its parts; Wallace, Bounds on Normal Approximations to Student's
and the Chi-Square Distributions (Ann. Math. Stat. 30, 1959) for t.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from rlcorr_cli.metrics.metric import GAP, Metric

if TYPE_CHECKING:
    from rlcorr_cli.totals.flat import Floats
    from rlcorr_cli.totals.view import Value

Interval = tuple[float, float]
FEWEST_CLUSTERS = 5
"""With fewer clusters there is no interval and no test."""
FEW_CLUSTERS = 20
"""With fewer clusters a report says that intervals may hold the truth less often than 95% of the time."""
LEVEL = 0.95
WIDEST = 0.5
"""There is no interval where the standard deviation is a larger share than this of the distance to the nearer end of
the metric's range: a few clusters then decide the value, as of a share that one row in a thousand makes."""

LENGTH = "length_mean"
"""This metric's replicates and those of GAP tell how skewed others are."""
NEAREST = 0.1
"""A replicate that is closer to the end of the range than this share of the metric's own distance counts as so close:
at the end itself it has no log."""
ROUNDING = 1e-14
"""A standard deviation below this share of its metric is rounding: the replicates are all the same."""


def intervals(
    metrics: Sequence[Metric], values: "Mapping[str, Value]", draws: "Mapping[str, Floats]", n_clusters: int
) -> dict[str, Interval]:
    """The interval of each metric that has one, by name, in the metrics' order.

    values: the dump's metrics by name.  draws: the same in every replicate, f64[R], not finite where there is no value.
    An end stays within the metric's range, and of a metric whose true value is never negative the low end is 0 or more,
    unless the dump's own value is below 0.  There is no interval for fewer than FEWEST_CLUSTERS, for a metric that has
    no value or the same one in all replicates, but for rounding, and within 1 / WIDEST standard deviations of an end of
    the range.
    """
    import numpy as np

    known = {
        metric.name: metric
        for metric in metrics
        if values.get(metric.name) is not None and metric.name in draws and np.isfinite(draws[metric.name]).any()
    }
    if n_clusters < FEWEST_CLUSTERS or not known:
        return {}
    centres = np.array([values[name] for name in known], dtype=np.float64)
    replicates = np.stack([draws[name] for name in known])
    with np.errstate(all="ignore"):
        off = np.where(np.isfinite(replicates), replicates, np.nan) - centres[:, None]
        # Relative to the largest, so that no square of them leaves float64.
        largest = np.nanmax(np.abs(off), axis=1, keepdims=True, initial=0.0)
        off = np.where(largest > 0, off / largest, 0.0 * off)
        deviations = np.nanstd(off, axis=1, keepdims=True)
        spread, off = (largest * deviations)[:, 0], np.where(deviations > 0, off / deviations, off)
        arms = _arms(list(known.values()), centres, spread, off, n_clusters=n_clusters)
    ends: dict[str, Interval] = {}
    for metric, centre, sd, below, above in zip(known.values(), centres, spread, *arms, strict=True):
        is_inside = ROUNDING * abs(centre) < sd <= WIDEST * min(centre - metric.lowest, metric.highest - centre)
        if is_inside and math.isfinite(centre - below) and math.isfinite(centre + above):
            lowest = 0.0 if metric.is_positive_in_truth and centre >= 0 else metric.lowest
            ends[metric.name] = max(float(centre - below), lowest), min(float(centre + above), metric.highest)
    return ends


def _arms(
    metrics: Sequence[Metric], centres: "Floats", spread: "Floats", off: "Floats", *, n_clusters: int
) -> "Floats":
    """How far each interval reaches below the metric and above it, f64[2, M]; the letters are the module's docstring's.

    spread: the replicates' standard deviations, f64[M].  off: their differences from the value, in these, f64[M, R].
    """
    import numpy as np

    place, centred = {metric.name: i for i, metric in enumerate(metrics)}, off - np.nanmean(off, axis=1, keepdims=True)

    def correlation(name: str) -> "Floats":
        """With the replicates of the metric of this name; 0 where it has none."""
        other = centred[place[name]] if name in place else 0.0
        return np.nan_to_num(np.nanmean(centred * other, axis=1))

    u = t_quantile((1 + LEVEL) / 2, n_clusters)
    lowest, highest = (np.array([getattr(metric, end) for metric in metrics]) for end in ("lowest", "highest"))
    distance = np.minimum(centres - lowest, highest - centres)
    outward = np.where(centres - lowest <= highest - centres, 1.0, -1.0)
    share = np.nan_to_num(spread / distance)
    nearer = 1 + off * (outward * share)[:, None]
    error = np.sqrt(share * np.nanstd(np.log(np.maximum(nearer, NEAREST)), axis=1))
    variation = error * math.sqrt(n_clusters)
    in_longer = np.maximum(0.0, outward * correlation(LENGTH)) * [name != LENGTH for name in place]
    in_longer *= variation[place[LENGTH]] if LENGTH in place else 0.0
    skewness = 2.5 * variation**1.5 / (variation + 0.35) + 7 * in_longer
    skewness *= np.where(outward > 0, 1 - 2 * distance / (highest - lowest), 1.0)
    back, away = -np.expm1(-u * error * (1 + 4 * error**2)), u * error * (1 + skewness / n_clusters ** (1 / 3))
    arms = distance * np.where(outward > 0, (back, away), (away, back))
    # Without an end, by the part that is shared, as far as the gap's own.
    symmetric, shared = u * spread, np.where([metric.ideal is None for metric in metrics], 0.0, correlation(GAP))
    of_gap = np.nan_to_num((arms / symmetric)[:, [place[GAP]]], nan=1.0) if GAP in place else np.ones((2, 1))
    stretched = 1 + np.sqrt(np.abs(shared)) * (np.where(shared > 0, of_gap, of_gap[::-1]) - 1)
    has_end = np.isfinite(distance) & [metric.unit != "ratio" for metric in metrics]
    return np.where(has_end, arms, symmetric * stretched)


def t_quantile(probability: float, n_clusters: int) -> float:
    """The quantile of Student's t with n - 1 degrees of freedom, times sqrt(n / (n - 1)), because the variance of a
    bootstrap divides by n: u of the module's docstring.  Accurate to 0.5% for 5 clusters, to 0.1% for 8."""
    freedom = n_clusters - 1
    z = NormalDist().inv_cdf(probability) * (8 * freedom + 3) / (8 * freedom + 1)
    t = math.sqrt(freedom * math.expm1(z * z / freedom))
    return math.copysign(t, probability - 0.5) * math.sqrt(n_clusters / freedom)


def t_probability(deviations: float, n_clusters: int) -> float:
    """The two-sided p of an estimate that lies so many of its bootstrap's standard deviations away."""
    freedom = n_clusters - 1
    t = deviations * math.sqrt(freedom / n_clusters)
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return 2 * NormalDist().cdf(-z)
