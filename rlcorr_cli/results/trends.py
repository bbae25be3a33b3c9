"""What binned totals and groups show: where the gap grows, what length does, who carries the weight.

First the curves (`profile`, `lorenz`, `course`), then the conclusions drawn from them (`Trends`).  Figures draw
the curves and word the conclusions; a new conclusion is a field of `Trends` and a function from `BinnedTotals`.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.metric import GAP
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.course import is_known
from rlcorr_cli.results.groups import Group
from rlcorr_cli.totals.bins import POSITION, Binned, BinnedTotals, Bins, Histogram, Octaves
from rlcorr_cli.totals.flat import Floats

MIN_BIN_COUNT = 20
"""Bins with fewer values are left out: their spread says nothing."""
MIN_LENGTH_COUNT = 5
"""The same for bins of sequence lengths, of which there are fewer."""
MOST_LABELS = 12
"""Groups that have no order stand side by side, so many at most."""
SURPRISE_FACTOR = 2.0
"""How many times wider one end must be for the spread to depend on surprise."""
SHIFTED_ERRORS, SHIFTED_SHARE = 5.0, 0.5
"""A mean of so many standard errors, and of such a share of the spread, is no noise."""
POSITION_FACTOR = 1.2
"""The same of the last positions against the first."""
LAST_TOKENS = 500
"""The last positions are those of the last bins that hold so many tokens: of fewer the spread is chance."""


class Missing(Exception):
    """A curve that a report does not hold; the message says why, in a sentence."""


@frozen(kw_only=True)
class Profile:
    """Bins that hold enough, their centres and counts, and the mean and std of a quantity in them."""

    bins: Bins
    centre: Floats
    count: Floats
    mean: Floats
    std: Floats


def profile(binned: Binned[Octaves], min_count: int = MIN_BIN_COUNT) -> Profile:
    """The mean and std by bin, from counts, sums and sums of squares."""
    n = binned.counts.astype(np.float64)
    use = n >= min_count if (n >= min_count).any() else n > 0
    n, sums, squares = n[use], binned.sums["sum"][use], binned.sums["sum_of_squares"][use]
    mean = sums / n
    variance = squares / n - mean**2
    # What is left of a constant by cancellation is no spread.
    std = np.sqrt(np.where(variance > 1e-12 * squares / n, variance, 0.0))
    return Profile(bins=binned.bins[use], centre=binned.binning.centres(binned.bins[use]), count=n, mean=mean, std=std)


@frozen
class Lorenz:
    """sequences, weight: cumulative shares from the lightest on, from (0, 0) to (1, 1).  top: what the heaviest 1% of
    sequences carry (at least one)."""

    sequences: Floats
    weight: Floats
    top: float


def lorenz(loads: Histogram) -> Lorenz:
    """Who carries the weight, of the sequences' total weights; to the buckets' 0.4%."""
    values, counts = loads.by_value
    total = float((values * counts).sum())
    if not total > 0:
        raise Missing("No sequence carries any weight: everything is rejected or weighs nothing.")
    n = np.concatenate([[0], np.cumsum(counts)])
    weight = np.concatenate([[0.0], np.cumsum(values * counts)]) / total
    top = max(1.0, 0.01 * n[-1])
    return Lorenz(n / n[-1], weight, float(1 - np.interp(n[-1] - top, n, weight)))


@frozen(kw_only=True)
class Course:
    """Metrics along one column: places f64[G]; values and the ends of intervals by metric, f64[G] and f64[2, G], NaN
    where there is none.

    rough: bool[G] by metric, values that are drawn though too little is effective to know them.  labels: what stands at
    the places, where the column's values are no numbers.  n_left_out: further such groups.
    """

    name: str
    places: Floats
    values: dict[str, Floats]
    intervals: dict[str, Floats]
    rough: dict[str, NDArray[np.bool_]]
    labels: tuple[Any, ...] = ()
    n_left_out: int = 0


def course(groups: Sequence[Group], metrics: Sequence[str]) -> Course:
    """The groups in the order of their one key: along its numbers, or side by side.

    Of more than MOST_LABELS side by side, those of the largest k3_kl.  What a group does not know `is_known` says; an
    effective sample size is drawn however small it is, because its fall is what the curve is there for, as rough.
    """
    single = [group for group in groups if len(group.key) == 1]
    if not single:
        raise Missing("There are no steps to follow: no column `step`. Group by another column.")
    name = next(iter(single[0].key))
    placed = [(float(group.key[name]), group) for group in single if _is_number(group.key[name])]
    labels: tuple[Any, ...] = ()
    if len(placed) < len(single):
        widest = sorted(single, key=lambda group: group.values.get(GAP) or 0.0, reverse=True)[:MOST_LABELS]
        placed = [(float(i), group) for i, group in enumerate(group for group in single if group in widest)]
        labels = tuple(group.key[name] for _, group in placed)
    placed.sort(key=lambda item: item[0])
    values = {
        metric: np.array([group.values[metric] if _is_drawn(group, metric) else np.nan for _, group in placed], float)
        for metric in metrics
    }
    nowhere = (np.nan, np.nan)
    intervals = {
        metric: np.array(
            [group.intervals.get(metric, nowhere) if _is_drawn(group, metric) else nowhere for _, group in placed]
        ).T
        for metric in metrics
    }
    places = np.array([place for place, _ in placed])
    rough = {
        metric: np.array([_is_drawn(group, metric) and not is_known(group, metric) for _, group in placed], bool)
        for metric in metrics
    }
    return Course(
        name=name,
        places=places,
        values=values,
        intervals=intervals,
        rough=rough,
        labels=labels,
        n_left_out=len(single) - len(placed),
    )


def _is_drawn(group: Group, metric: str) -> bool:
    return is_known(group, metric) or (metric == "seq_ess" and group.values.get(metric) is not None)


def _is_number(value: object) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and np.isfinite(float(str(value)))
    except ValueError:
        return False


# ---------------------------------------------------------------- conclusions


@frozen(kw_only=True)
class SurpriseTrend(Record):
    """Whether the log-ratio spreads wider for unlikely tokens; std in nats at either end."""

    change: Literal["grows", "shrinks", "level"]
    likely_std: float
    unlikely_std: float


@frozen(kw_only=True)
class PositionTrend(Record):
    """Whether the gap widens along the sequence; std in nats up to position `early_end` and from `late_start` on,
    counted from 1."""

    change: Literal["widens", "narrows", "level"]
    early_std: float
    late_std: float
    early_end: int
    late_start: int


@frozen(kw_only=True)
class LengthTrend(Record):
    """Size in nats of S, the log of the sequence ratio, at the shortest and the longest lengths.

    trap: whether it grows beyond a ratio of 2, so that a bound on the product rejects long sequences more often.
    """

    shortest: float
    longest: float
    trap: bool


@frozen(kw_only=True)
class Concentration(Record):
    """What share of the applied weight the heavier half of the sequences carries, and what the heaviest 1%."""

    heavier_half: float
    heaviest_percent: float


@frozen(kw_only=True)
class Trends(Record):
    """The conclusions from binned totals; None where there is too little to tell."""

    surprise: SurpriseTrend | None
    position: PositionTrend | None
    length: LengthTrend | None
    concentration: Concentration | None


def trends(binned: BinnedTotals, *, normalizes: bool) -> Trends:
    """Every conclusion from binned totals.

    normalizes: whether weights are yet to be divided by batch means, so that nothing follows from the loads.
    """
    if not binned.spread:
        return Trends(surprise=None, position=None, length=None, concentration=None)
    return Trends(
        surprise=surprise_trend(profile(binned.spread["surprise"])),
        position=position_trend(profile(binned.spread["position"])),
        length=length_trend(profile(binned.spread["length"], MIN_LENGTH_COUNT)),
        concentration=None if normalizes else concentration(binned.histograms["loads"]),
    )


def surprise_trend(by_surprise: Profile) -> SurpriseTrend | None:
    """Whether the spread grows with surprise, from the two outermost bins; None of a single one."""
    if len(by_surprise.std) < 2:
        return None
    likely, unlikely = float(by_surprise.std[0]), float(by_surprise.std[-1])
    change: Literal["grows", "shrinks", "level"] = "level"
    if max(likely, unlikely) > SURPRISE_FACTOR * min(likely, unlikely):
        change = "grows" if unlikely > likely else "shrinks"
    return SurpriseTrend(change=change, likely_std=likely, unlikely_std=unlikely)


def turn(bins: Profile, factor: float, *ends: float) -> tuple[Literal["largest", "smallest"], int] | None:
    """The bin between the ends where the spread is so many times larger than at either, or smaller; None without one.

    Bins of fewer than LAST_TOKENS say nothing here.
    """
    (known,) = np.nonzero(bins.count >= LAST_TOKENS)
    if len(known) and bins.std[known].max() > factor * max(ends):
        return "largest", int(known[bins.std[known].argmax()])
    if len(known) and factor * bins.std[known].min() < min(ends):
        return "smallest", int(known[bins.std[known].argmin()])
    return None


def shifted_mean(by_surprise: Profile) -> tuple[float, float] | None:
    """The log-prob where the mean log-ratio lies furthest from 0, and that mean; None where noise may leave them all.

    A mean counts as shifted beyond SHIFTED_ERRORS standard errors and SHIFTED_SHARE of the spread around it: with many
    tokens, rounding has a significant mean, too.
    """
    size = np.abs(by_surprise.mean)
    errors = by_surprise.std / np.sqrt(by_surprise.count)
    shifted = np.where((size > SHIFTED_ERRORS * errors) & (size > SHIFTED_SHARE * by_surprise.std), size, 0.0)
    if not shifted.any():
        return None
    i = int(shifted.argmax())
    return -float(by_surprise.centre[i]), float(by_surprise.mean[i])


def position_trend(by_position: Profile) -> PositionTrend | None:
    """Whether the spread grows along the sequence: the last bins that hold LAST_TOKENS against the first half of all.

    None of a single bin.
    """
    n_bins, half = len(by_position.std), len(by_position.std) // 2
    if n_bins < 2:
        return None
    from_end = np.cumsum(by_position.count[: half - 1 if half else None : -1])
    last = max(half, n_bins - 1 - int(np.searchsorted(from_end, LAST_TOKENS)))
    early, late = _pooled_std(by_position, slice(half)), _pooled_std(by_position, slice(last, None))
    change: Literal["widens", "narrows", "level"] = "level"
    if late > POSITION_FACTOR * early or late < early / POSITION_FACTOR:
        change = "widens" if late > early else "narrows"
    edges = POSITION.edges
    return PositionTrend(
        change=change,
        early_std=early,
        late_std=late,
        early_end=math.ceil(edges[by_position.bins[half - 1] + 1]) - 1,
        late_start=math.ceil(edges[by_position.bins[last]]),
    )


def _pooled_std(bins: Profile, part: slice) -> float:
    """The std of all values in some bins."""
    n, mean = bins.count[part], float(np.average(bins.mean[part], weights=bins.count[part]))
    return math.sqrt(float(np.average(bins.std[part] ** 2 + (bins.mean[part] - mean) ** 2, weights=n)))


def length_trend(by_length: Profile) -> LengthTrend | None:
    """What length does to S, from the shortest bin and the longest (they may be the same); None without bins."""
    if not len(by_length.std):
        return None
    shortest, longest = (float(math.hypot(by_length.mean[i], by_length.std[i])) for i in (0, -1))
    return LengthTrend(shortest=shortest, longest=longest, trap=longest > max(math.log(2), 2 * shortest))


def concentration(loads: Histogram) -> Concentration | None:
    """How the weight is spread over sequences, read off the Lorenz curve; None where nothing carries any weight."""
    try:
        curve = lorenz(loads)
    except Missing:
        return None
    half = 1 - float(np.interp(0.5, curve.sequences, curve.weight))
    return Concentration(heavier_half=half, heaviest_percent=curve.top)
