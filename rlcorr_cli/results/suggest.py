"""Suggested bounds: for a rejection that takes too much, the bounds that would keep the target share of its units.

They come from how far the units lie from where the statistic keeps everything: |log| of a ratio, else the statistic
itself.  Of sequences the largest distances are among the totals, from which the bounds are exact, in the fewest digits
that keep the same ones (16,384 of a whole dump: to 163,840 sequences for nine tenths of them, 327,680 for 95%; 2,048
of a group).  Beyond, and of tokens, they come from a histogram, and keep at least what is said.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from rlcorr_cli.errors import plain
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Rejection
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.bins import HISTOGRAM_RELATIVE_ERROR, Histogram
from rlcorr_cli.totals.limits import exp
from rlcorr_cli.totals.tail import Tail
from rlcorr_cli.totals.view import Value

TARGET = 0.9
"""The share of its units that a suggested bound keeps."""
WIDE = 10.0
"""A ratio above which bounds correct hardly anything: one that they keep counts for so many of the others.  No
bounds on such a statistic are advised."""
MAX_LOG = 700.0
"""Beyond this float64 has no exp."""
ROOM = 0.01
"""How far past the last value a bound may lie, relative to it, where nothing lies farther out."""


@frozen(kw_only=True)
class SuggestedBounds(Record):
    """Bounds under which a rejection would keep `kept_fraction` of its units, where it now rejects `lost_fraction`.

    low or high is None where the rejection has no such bound, or needs none.  exact: whether it keeps just that share;
    else at least that.
    """

    rejection: str
    statistic: str
    scope: str
    units: Literal["tokens", "sequences"]
    lost_fraction: float
    low: float | None
    high: float | None
    kept_fraction: float
    exact: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether such bounds keep their share only by letting pass what a rejection of ratios is there to take."""
        return self.statistic == "ratio" and self.high is not None and self.high > WIDE


@frozen(kw_only=True)
class GeometricBounds(Record):
    """Bounds on a sequence's geometric mean ratio e^g that would keep `kept_fraction` of the sequences.

    exact: whether they keep just that share; else at least that.
    """

    low: float
    high: float
    kept_fraction: float
    exact: bool = False

    @property
    def option(self) -> str:
        """As an option of the command line."""
        return f"--rs ratio.seq_mean:{plain(self.low)},{plain(self.high)}"


@frozen
class Distances:
    """How far units lie out.  tail: the largest distances; None where they are not kept."""

    histogram: Histogram
    tail: Tail | None = None

    def reach(self, share: float) -> "_Reach | None":
        """What keeps a share of the units; None without a unit, or where no float64 can hold the bounds."""
        boundary = None if self.tail is None else self.tail.boundary(share)
        if boundary is not None:
            if not abs(boundary.value) < MAX_LOG:
                return None
            return _Reach(boundary.value, boundary.beyond, boundary.n_inside / boundary.n, exact=True)
        distance = self.histogram.quantile(share)
        if distance is None or not abs(distance) < MAX_LOG:
            return None
        # A little farther than a histogram's quantile, so that what lies at its bucket's far end is kept.
        least = abs(distance) * (1 + 3 * HISTOGRAM_RELATIVE_ERROR)
        return _Reach(least, math.inf, _share_within(self.histogram, distance), exact=False)


@frozen
class _Reach:
    """A distance that keeps a share of the units, and the next one beyond, which keeps more; inf of none."""

    least: float
    beyond: float
    kept_fraction: float
    exact: bool

    @property
    def end(self) -> float:
        """Where bounds of few digits must end."""
        return self.beyond if math.isfinite(self.beyond) else self.least + max(ROOM * self.least, 1e-9)

    @property
    def low(self) -> float:
        """The lower bound of a ratio."""
        return shortest(exp(-self.end), exp(-self.least), upward=False)

    @property
    def high(self) -> float:
        """The upper bound of a ratio."""
        return shortest(exp(self.least), exp(self.end), upward=True)

    @property
    def value(self) -> float:
        """The upper bound of any other statistic."""
        return shortest(self.least, self.end, upward=True)


def geometric_bounds(distances: Distances, target: float = TARGET) -> GeometricBounds | None:
    """The bounds that keep a share of the sequences; None without a sequence, or where no float64 can hold them.

    distances: |g| of every sequence.
    """
    reach = distances.reach(target)
    if reach is None:
        return None
    return GeometricBounds(low=reach.low, high=reach.high, kept_fraction=reach.kept_fraction, exact=reach.exact)


def suggestions(
    rejections: Iterable[Rejection], values: Mapping[str, Value], distances: Mapping[str, Distances]
) -> Iterator[SuggestedBounds]:
    """Looser bounds for each rejection that keeps less than TARGET, where one distance from its ideal can tell them."""
    for rejection in rejections:
        units = "tokens" if rejection.scope == "token" else "sequences"
        part = "masked_fraction" if units == "tokens" else "seq_masked_fraction"
        lost = values.get(f"rollout_rs_{rejection.name}_{part}")
        of_units = distances.get(rejection.name) if rejection.by_distance else None
        if lost is None or 1 - lost >= TARGET or of_units is None:
            continue
        reach = of_units.reach(TARGET)
        if reach is None:
            continue
        low, high = _bounds(rejection, reach)
        is_ratio = rejection.statistic == "ratio"
        yield SuggestedBounds(
            rejection=rejection.name,
            statistic=rejection.statistic,
            scope=rejection.scope,
            units=units,
            lost_fraction=lost,
            low=low,
            high=high,
            kept_fraction=reach.kept_fraction,
            # One bound of a ratio keeps what lies far out on the other side, too.
            exact=reach.exact and not (is_ratio and (low is None or high is None)),
        )


def _bounds(rejection: Rejection, reach: _Reach) -> tuple[float | None, float | None]:
    """The bounds at a distance from where the statistic keeps everything."""
    if rejection.statistic != "ratio":
        return None, reach.value
    return None if rejection.bounds.low is None else reach.low, None if rejection.bounds.high is None else reach.high


def _share_within(histogram: Histogram, distance: float) -> float:
    values, counts = histogram.by_value
    return float(counts[values <= distance].sum() / counts.sum())


def shortest(start: float, end: float, *, upward: bool) -> float:
    """The number with the fewest decimals in [start, end), or of a lower bound in (start, end]."""
    inner, outer = (start, end) if upward else (end, start)
    # The bound is compared by its log, which may be off by a unit in the last place.
    slack = 4e-16 * max(abs(inner), 1e-300)
    inner = inner + slack if upward else inner - slack
    for decimals in range(18):
        scale = 10.0**decimals
        rounded = math.ceil(inner * scale) / scale if upward else math.floor(inner * scale) / scale
        if (inner <= rounded < outer) if upward else (outer < rounded <= inner):
            return rounded
    return inner
