"""A Sweep: what one free bound does at every threshold, and the threshold that a target comes to; as values."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import reduce
from operator import add
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from rlcorr_cli.causes.search import search
from rlcorr_cli.errors import DataError, UsageError, plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.comparison import INFO, K3_LEFT, KEPT, LENGTH, SHIFT, SHIFT_SE
from rlcorr_cli.metrics.metric import evaluated
from rlcorr_cli.plans.flags import Swept
from rlcorr_cli.plans.plan import Bounds, Weighting
from rlcorr_cli.records.fields import HIDDEN, Form, Key, Number, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.groups import Counts, Inputs, counts as counts_of, of_inputs, with_bad_rows
from rlcorr_cli.results.saved_runs import MeasuredRun
from rlcorr_cli.results.story import Story, story_of
from rlcorr_cli.results.suggest import ROOM, shortest
from rlcorr_cli.totals.comparison import LOGS, ComparedTotals, divides_by_mean, weight_means
from rlcorr_cli.totals.limits import log
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.sweep import Candidates, Curve, NormalizedCurve, UnitTotals, ess, place_of_share
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import Value

N_POINTS = 25
"""Of a curve."""
BISECTIONS = 200
MOST_BATCHES = 300
"""Training batches whose units are kept apart by bucket: at most about 1 MB each."""


@frozen
class Targets:
    """What is asked of the bound: a share of the units to keep, or an effective sample size; at most one of them."""

    keep: float | None = None
    ess: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("target_keep", self.keep), ("target_ess", self.ess)):
            if value is not None and not 0 < value <= 1:
                raise UsageError(
                    f"⟦{option}⟧ must lie in (0, 1], got {value:g}.", f"Give a share, such as ⟦{option} 0.95⟧."
                )
        if self.keep is not None and self.ess is not None:
            raise UsageError("⟦target_keep⟧ and ⟦target_ess⟧ are two targets.", "Give one of them.")

    @property
    def wanted(self) -> bool:
        """Whether there is a target."""
        return self.keep is not None or self.ess is not None


PointValues = Annotated[
    Mapping[str, Number], Form(keys=("kept", "info", "k3_left", "length", "shift", "shift_se", "ess"))
]


@frozen(kw_only=True)
class Point(Record):
    """The numbers at one pair of bounds.

    kept_units: units inside (of a weighting that caps: not capped), as a share.  values: kept (share of tokens), info,
    k3_left, length, shift, shift_se, ess; None where the units cannot tell.
    """

    low: float | None
    high: float | None
    n_inside: int
    kept_units: float
    values: Annotated[PointValues, Key(inline=True)]


@frozen(kw_only=True)
class TargetResult(Record):
    """What a target comes to.

    point: the numbers there; threshold is None where nothing reaches the target, and the point then the best one.
    option: to copy.  note: what else should be known.
    """

    kind: Literal["keep", "ess"]
    share: float
    point: Point
    note: str = ""
    reached: Annotated[bool, HIDDEN]
    option: Annotated[str, HIDDEN]

    @property
    @computed("The bounds; null where nothing reaches the target, and point is then the best one.", after="share")
    def threshold(self) -> Bounds | None:
        """The bounds that reach it."""
        return Bounds(self.point.low, self.point.high) if self.reached else None

    @property
    @computed("To copy; null where none is needed, or nothing reaches the target.", name="option", after="point")
    def copied_option(self) -> str | None:
        """The option that sets these bounds."""
        return self.option or None if self.reached else None


@frozen(kw_only=True)
class Sweep(Output):
    """The curve, from the tightest bounds to the loosest.

    what: the record whose bound moves, in words.  story: what is to be told of the dump first.
    """

    OUTPUT = "sweep"
    inputs: Inputs
    counts: Counts
    story: Story = field(default_factory=Story)
    what: Annotated[str, Key(name="swept")]
    units: Literal["tokens", "sequences"]
    is_cap: Annotated[bool, HIDDEN]
    n_units: int
    points: Annotated[tuple[Point, ...], Form(least=1)]
    target: TargetResult | None
    notes: tuple[str, ...]
    seconds: Annotated[float, HIDDEN] = 0.0
    totals: Annotated["SweepRun | None", HIDDEN] = None
    """What it was made of, where that was asked for."""

    def __repr__(self) -> str:
        option = "" if self.target is None else f", {self.target.option or self.target.note}"
        points = plural(len(self.points), "threshold")
        return f"<Sweep of {of_inputs(self.inputs)}: {self.what} at {points}{option}>"


@frozen(kw_only=True)
class SweepRun(MeasuredRun):
    """What one run of `sweep` added up, or several together.

    measured: totals of the plan without the free bound.  units: of the statistic, by training batch.  sample: of the
    rows by what they hold, where it was asked for.
    """

    command: ClassVar[str] = "sweep"
    swept: Swept
    units: Mapping[Any, UnitTotals]
    sample: KeySample | None = None

    @property
    def provenance(self) -> Provenance:
        """What the totals are of, the free bound among it."""
        of = self.measured.provenance
        assert of is not None
        record = self.swept.record
        name = record.scope if isinstance(record, Weighting) else f"{record.statistic}.{record.scope}"
        return replace(of, settings={**of.settings, "free bound": name, "side": self.swept.side})

    @property
    def contents(self) -> KeySample | None:
        """A sample of the rows by what they hold."""
        return self.sample

    @classmethod
    def added(cls, runs: Iterable[Self]) -> Self:
        """The sum of runs, taken one at a time."""
        units: dict[Any, UnitTotals] = {}
        samples: list[KeySample] = []

        def without_units() -> Iterator[Self]:
            for run in runs:
                add_units(units, run.units)
                if run.sample is not None:
                    samples.append(run.sample)
                yield replace(run, units={})

        measured = super().added(without_units())
        return replace(measured, units=units, sample=reduce(add, samples) if samples else None)

    @property
    def curve(self) -> Curve | None:
        """The curve of the units; None of a dump without any."""
        observed = self.measured.totals
        if not self.units or observed is None:
            return None
        record = self.swept.record
        outside = "capped" if isinstance(record, Weighting) and record.outside != "zero" else "dropped"
        whole = reduce(add, self.units.values())
        if not divides_by_mean(self.swept.base):
            return Curve(whole, self.swept.side, outside)
        batches = {batch: Curve(of_batch, self.swept.side, outside) for batch, of_batch in self.units.items()}
        means = None if isinstance(record, Weighting) else weight_means(observed, self.swept.base)
        return NormalizedCurve(whole, self.swept.side, outside, batches=batches, means=means)


def add_units(totals: dict[Any, UnitTotals], units: Mapping[Any, UnitTotals]) -> None:
    """Add units to totals by training batch, which keep their buckets for each, in place."""
    for batch, of_batch in units.items():
        totals[batch] = totals[batch] + of_batch if batch in totals else of_batch
    if len(totals) > MOST_BATCHES:
        raise UsageError(
            f"More than {MOST_BATCHES} training batches: so many can be swept where each has a mean weight of its own.",
            "⟦batch_by none⟧ takes all rows for one batch, ⟦normalize none⟧ leaves the weights as they are.",
        )


def sweep_of(run: SweepRun, *, targets: Targets, candidates: Mapping[int, Candidates]) -> Sweep:
    """The sweep of a run, of all rows as one group.  candidates: by their group's place on the curve, those that
    targets cut."""
    measured, swept, curve = run.measured, run.swept, run.curve
    totals = None if measured.totals is None else measured.totals.whole
    counts = with_bad_rows(counts_of(totals, swept.base.mode), run.problems.n_rows, run.inputs)
    assert totals is not None
    assert curve is not None, "a dump with a valid token has units"
    if not len(curve.thresholds):
        gated = "have advantages that these weights act on"
        acted_on = gated if curve.totals.n_always else "lie inside the other bound"
        raise DataError(
            f"The bound has no effect: none of the {swept.units} {acted_on}.",
            "Sweep other weights: ⟦is_ token:,2⟧ ⟦vary is.high⟧.",
        )
    reading = _Reading(totals, curve, swept)
    record = swept.record
    what = f"{record.scope} weights" if isinstance(record, Weighting) else f"{record.statistic}.{record.scope}"
    story = Story() if measured.sample is None else story_of(run.anomalies, search(measured.sample).diagnosis)
    return Sweep(
        inputs=run.inputs,
        counts=counts,
        what=what,
        units=swept.units,
        is_cap=curve.outside == "capped",
        n_units=curve.n_units,
        points=tuple(reading.point_at(place) for place in _shown_places(curve, swept)),
        target=reading.target(targets, candidates),
        notes=(*run.notes, *run.problems.changed_notes),
        story=story,
    )


def _shown_places(curve: Curve, swept: Swept) -> list[int]:
    """Places of the curve, evenly by how many units are inside, the loosest last.  Bounds of weights begin at 1: a cap
    below it, and a floor above it, would only scale most weights."""
    least, most = curve.totals.n_always, int(curve.n_inside[-1])
    first = int(np.searchsorted(curve.thresholds, 0.0)) if isinstance(swept.record, Weighting) else 0
    if 0 < first < len(curve.thresholds):
        least = int(curve.n_inside[first - 1])
    wanted = least + (most - least) * np.arange(1, N_POINTS + 1) / N_POINTS
    return sorted(set(np.searchsorted(curve.n_inside, np.ceil(wanted - 1e-9)).tolist()))


def crossing_of_ess(curve: Curve, target: float) -> int | None:
    """The group in which the effective sample size of capped weights falls below a target for good, the bounds growing
    looser: the first one of all where it is below throughout; None where the loosest bounds have it."""
    reaching = np.flatnonzero(curve.sample_sizes("weight", "weight_squared") >= target)
    # Sizes begin a place before the first, so that the last one's number is that of the place after it.
    place = int(reaching[-1]) if len(reaching) else 0
    return place if place < len(curve.thresholds) else None


@frozen
class _Reading:
    """Numbers at thresholds of a curve."""

    totals: Totals
    curve: Curve
    swept: Swept

    def point_at(self, place: int) -> Point:
        """The point of a bucket's edge."""
        threshold = self.curve.reach(place)
        return self.point(self.swept.bounds(threshold), int(self.curve.n_inside[place]), self.curve.at(place))

    def point(self, bounds: Bounds, n_inside: int, sums: Mapping[str, float]) -> Point:
        """The point of these sums."""
        sums = {name: float(value) for name, value in sums.items()}
        base = ComparedTotals.of(self.totals, self.swept.base, 0)
        assert base.logs is not None
        of_sequences = self.swept.units == "sequences"
        logs = {**base.logs, **{name: log(sums[name]) for name in LOGS if name in sums}}
        totals = replace(base, plan=sums, logs=logs, mass=None)
        metrics = (KEPT, INFO, K3_LEFT, *((LENGTH, SHIFT, SHIFT_SE) if of_sequences else ()))
        values = evaluated(metrics, totals)
        values = {name: values.get(name) for name in ("kept", "info", "k3_left", "length", "shift", "shift_se")}
        values["ess"] = self._ess(sums)
        return Point(
            low=bounds.low, high=bounds.high, n_inside=n_inside, kept_units=n_inside / self.curve.n_units, values=values
        )

    def _ess(self, sums: Mapping[str, float]) -> Value:
        """Of the weights that are swept; of a rejection, of the true weights e^S (tokens: rho) of what it keeps."""
        names = ("weight", "weight_squared") if self._is_weighting else ("ratio", "ratio_squared")
        return ess(sums, self.curve.n_units, *names)

    @property
    def _is_weighting(self) -> bool:
        return isinstance(self.swept.record, Weighting)

    def target(self, targets: Targets, candidates: Mapping[int, Candidates]) -> TargetResult | None:
        """What a target comes to; None without one."""
        if targets.keep is not None:
            return self._keeping(targets.keep, candidates)
        if targets.ess is None:
            return None
        return self._capped(targets.ess, candidates) if self.curve.outside == "capped" else self._loosest(targets.ess)

    def _keeping(self, share: float, candidates: Mapping[int, Candidates]) -> TargetResult:
        """The tightest bounds that keep a share of the units, with the fewest digits that keep the same ones."""
        place, nth = place_of_share(self.curve, share)
        if place == len(self.curve.thresholds):
            return self._out_of_reach("keep", share, place - 1, "The loosest:")
        group = candidates[place]
        threshold = float(group.distances[nth - 1])
        n_inside = int(np.searchsorted(group.distances, threshold, side="right"))
        beyond = float(group.distances[n_inside]) if n_inside < len(group.distances) else self.curve.least(place + 1)
        bounds, threshold = self._shortened(threshold, beyond)
        point = self.point(bounds, self._n_before(place) + n_inside, self.curve.cut(place, threshold, group))
        return TargetResult(kind="keep", share=share, reached=True, point=point, option=self.swept.option(bounds))

    def _capped(self, share: float, candidates: Mapping[int, Candidates]) -> TargetResult:
        """The loosest cap whose weights have an effective sample size, by bisection inside one group."""
        place = crossing_of_ess(self.curve, share)
        if place is None:
            point = self.point_at(len(self.curve.thresholds) - 1)
            note = "The weights reach it without this bound: none is needed."
            return TargetResult(kind="ess", share=share, reached=True, point=point, option="", note=note)
        group = candidates[place]
        low, high = self.curve.reach(place - 1), self.curve.reach(place)
        if (ess(self.curve.at(place - 1), self.curve.n_units, "weight", "weight_squared") or 0.0) < share:
            sizes = self.curve.sample_sizes("weight", "weight_squared")[1:]
            return self._out_of_reach("ess", share, int(np.argmax(sizes)), "The nearest:")
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            sums = self.curve.cut(place, middle, group)
            reached = (ess(sums, self.curve.n_units, "weight", "weight_squared") or 0.0) >= share
            low, high = (middle, high) if reached else (low, middle)
        if self.swept.side == "low" and low < 0:
            # exp(-distance) is the bound, and one above 1 would only scale every weight up.
            place = min(int(np.searchsorted(self.curve.thresholds, 0.0)), len(self.curve.thresholds) - 1)
            note = "That needs a lower bound above 1, which scales the loss up. The tightest bound below 1:"
            return self._out_of_reach("ess", share, place, note)
        bounds = _tightened(self.swept, low)
        threshold = _distance(self.swept, bounds)
        n_inside = self._n_before(place) + int(np.searchsorted(group.distances, threshold, side="right"))
        point = self.point(bounds, n_inside, self.curve.cut(place, threshold, group))
        return TargetResult(kind="ess", share=share, reached=True, point=point, option=self.swept.option(bounds))

    def _out_of_reach(self, kind: Literal["keep", "ess"], share: float, place: int, note: str) -> TargetResult:
        """A target that nothing reaches, with the best place for it."""
        point = self._short_point(place)
        option = self.swept.option(Bounds(point.low, point.high))
        return TargetResult(kind=kind, share=share, reached=False, point=point, option=option, note=note)

    def _shortened(self, threshold: float, beyond: float) -> tuple[Bounds, float]:
        """The bounds of a threshold in the fewest digits that keep the same units, the next of which lie `beyond`; and
        the threshold that they are."""
        if not math.isfinite(beyond):
            # Nothing lies farther out: a little room for a bound of few digits.
            beyond = threshold + max(ROOM * abs(threshold), 1e-9)
        bounds = _short(self.swept, threshold, beyond) if beyond > threshold else self.swept.bounds(threshold)
        # What is capped has the very bound for its weight.
        return bounds, _distance(self.swept, bounds) if self.curve.outside == "capped" else threshold

    def _short_point(self, place: int) -> Point:
        """The point of a bucket's edge, its bounds in few digits."""
        bounds, threshold = self._shortened(self.curve.reach(place), self.curve.least(place + 1))
        return self.point(bounds, int(self.curve.n_inside[place]), self.curve.past(place, threshold))

    def _n_before(self, place: int) -> int:
        """Units inside the group before a place."""
        return int(self.curve.n_inside[place - 1]) if place else self.curve.totals.n_always

    def _loosest(self, share: float) -> TargetResult:
        """The loosest bounds on the curve whose kept units have an effective sample size; else the best ones."""
        names = ("weight", "weight_squared") if self._is_weighting else ("ratio", "ratio_squared")
        sizes = self.curve.sample_sizes(*names)[1:]
        reaching = np.flatnonzero(sizes >= share)
        if not len(reaching):
            return self._out_of_reach("ess", share, int(np.argmax(sizes)), "The nearest:")
        point = self._short_point(int(reaching[-1]))
        what = "weights that are zeroed" if self._is_weighting else "a rejection"
        return TargetResult(
            kind="ess",
            share=share,
            reached=True,
            point=point,
            option=self.swept.option(Bounds(point.low, point.high)),
            note=f"The sample size of {what} rises and falls with the bounds: these are the loosest that have it.",
        )


def _short(swept: Swept, threshold: float, beyond: float) -> Bounds:
    """Bounds at any distance from the threshold up to, and without, `beyond`, in the fewest digits."""
    inner, outer = swept.bounds(threshold), swept.bounds(beyond)
    is_cap = isinstance(swept.record, Weighting)
    low = inner.low if is_cap and swept.side != "low" else _shortest(outer.low, inner.low, upward=False)
    high = inner.high if is_cap and swept.side == "low" else _shortest(inner.high, outer.high, upward=True)
    return Bounds(low, high)


def _shortest(start: float | None, end: float | None, *, upward: bool) -> float | None:
    """As `shortest`, of bounds that may be missing."""
    if start is None or end is None:
        return end if start is None else start
    return shortest(start, end, upward=upward)


def _tightened(swept: Swept, distance: float) -> Bounds:
    """A cap in six digits, on the tight side of the exact one."""
    exact = swept.bounds(distance)
    if swept.side == "low":
        assert exact.low is not None
        return Bounds(_rounded(exact.low, math.ceil), exact.high)
    assert exact.high is not None
    return Bounds(exact.low, _rounded(exact.high, math.floor))


def _rounded(value: float, round_: Any) -> float:
    scale = 10.0 ** min(5 - math.floor(math.log10(value)), 300)
    return float(round_(value * scale) / scale)


def _distance(swept: Swept, bounds: Bounds) -> float:
    """The threshold of a weighting's bound."""
    bound = bounds.low if swept.side == "low" else bounds.high
    assert bound is not None
    return -math.log(bound) if swept.side == "low" else math.log(bound)
