"""Suggested bounds: for a rejection that takes too much, the bounds that would keep the target share of its units.

They come from the histogram of how far the units lie from where the statistic keeps everything, one of the totals of
a plan with such rejections: |log| of a ratio, else the statistic itself.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rlcorr_cli.plans.plan import Rejection
from rlcorr_cli.totals.families import Value
from rlcorr_cli.totals.histogram import HISTOGRAM_RELATIVE_ERROR, Histogram

TARGET = 0.9
"""The share of its units that a suggested bound keeps."""
MAX_LOG = 700.0
"""Beyond this float64 has no exp."""


@dataclass(frozen=True, kw_only=True)
class SuggestedBounds:
    """Bounds under which a rejection would keep `kept_fraction` of its units, where it now rejects `lost_fraction`.

    low or high is None where the rejection has no such bound, or needs none.
    """

    rejection: str
    statistic: str
    scope: str
    units: Literal["tokens", "sequences"]
    lost_fraction: float
    low: float | None
    high: float | None
    kept_fraction: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class GeometricBounds:
    """Bounds on a sequence's geometric mean ratio e^g that would keep `kept_fraction` of the sequences."""

    low: float
    high: float
    kept_fraction: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def geometric_bounds(distances: Histogram, target: float = TARGET) -> GeometricBounds | None:
    """The bounds that keep a share of the sequences; None without a sequence, or where no float64 can hold them.

    distances: |g| of every sequence.
    """
    distance = distances.quantile(target)
    if distance is None or not abs(distance) < MAX_LOG:
        return None
    reach = _reach(distance)
    return GeometricBounds(
        low=_down(math.exp(-reach)), high=_up(math.exp(reach)), kept_fraction=_share_within(distances, distance)
    )


def suggestions(
    rejections: Iterable[Rejection], values: Mapping[str, Value], distances: Mapping[str, Histogram]
) -> Iterator[SuggestedBounds]:
    """Looser bounds for each rejection that keeps less than TARGET, where one distance from its ideal can tell them."""
    for rejection in rejections:
        units = "tokens" if rejection.scope == "token" else "sequences"
        part = "masked_fraction" if units == "tokens" else "seq_masked_fraction"
        lost = values.get(f"rollout_rs_{rejection.name}_{part}")
        histogram = distances.get(rejection.name) if rejection.by_distance else None
        if lost is None or 1 - lost >= TARGET or histogram is None:
            continue
        distance = histogram.quantile(TARGET)
        if distance is None or not abs(distance) < MAX_LOG:
            continue
        low, high = _bounds(rejection, _reach(distance))
        yield SuggestedBounds(
            rejection=rejection.name,
            statistic=rejection.statistic,
            scope=rejection.scope,
            units=units,
            lost_fraction=lost,
            low=low,
            high=high,
            kept_fraction=_share_within(histogram, distance),
        )


def _reach(distance: float) -> float:
    """A little farther than a histogram's quantile, so that what lies at its bucket's far end is kept."""
    return abs(distance) * (1 + 3 * HISTOGRAM_RELATIVE_ERROR)


def _bounds(rejection: Rejection, distance: float) -> tuple[float | None, float | None]:
    """The bounds at a distance from where the statistic keeps everything."""
    if rejection.statistic != "ratio":
        return None, _up(distance)
    low = None if rejection.bounds.low is None else _down(math.exp(-distance))
    return low, None if rejection.bounds.high is None else _up(math.exp(distance))


def _share_within(histogram: Histogram, distance: float) -> float:
    values, counts = histogram.by_value
    return float(counts[values <= distance].sum() / counts.sum())


def _up(value: float) -> float:
    """Rounded up to three significant digits of |value - 1|: near 1 it is the difference that counts."""
    return float(f"{math.ceil(value * _scale(value)) / _scale(value):.12g}")


def _down(value: float) -> float:
    return float(f"{math.floor(value * _scale(value)) / _scale(value):.12g}")


def _scale(value: float) -> float:
    distance = min(abs(value - 1) or 1.0, abs(value) or 1.0)
    return 10.0 ** (2 - math.floor(math.log10(distance)))
