"""sweep(): what one bound does, at every threshold, in one reading; an exact target takes a second."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.measure import sweep as sweeping
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.measure.sweep import Units
from rlcorr_cli.plans.plan import Plan, Weighting
from rlcorr_cli.plans.swept import Swept
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.request import NO_BATCH, PlanColumns, ReadRequest
from rlcorr_cli.results.swept import Sweep, Targets, crossing_of_ess, swept_report
from rlcorr_cli.runs.analyze import provenance_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import (
    Reading,
    ShardReading,
    ShardWork,
    Watch,
    check_quarantine,
    check_rereadable,
    one_reading,
)
from rlcorr_cli.totals.bins import FLOAT_BITS
from rlcorr_cli.totals.comparison import divides_by_mean, weight_means
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.sweep import Candidates, Curve, NormalizedCurve, UnitTotals, place_of_share
from rlcorr_cli.totals.totals import Totals

MOST_BATCHES = 300
"""Training batches whose units are kept apart by bucket: at most about 1 MB each."""


def sweep(
    request: ReadRequest,
    swept: Swept,
    targets: Targets,
    *,
    n_points: int,
    computing: Computing | None = None,
    watch: Watch | None = None,
    staging: Outputs | None = None,
) -> Sweep:
    """The curve of one free bound.  staging: as of `analyze`."""
    started = time.perf_counter()
    computing = computing or Computing()
    plan = swept.plan(swept.bounds(0.0))
    dump = open_dump(request, _columns(request, plan))
    check_quarantine(dump)
    observation = Observation(plans=(swept.base,), seed=None, compares=True)
    if targets.wanted:
        check_rereadable(dump)
    with one_reading(dump, computing, watch=watch, staging=staging) as reading:
        work = SweepShard(
            reading=ShardReading.of(dump, computing),
            observation=observation,
            swept=swept,
            provenance=provenance_of(dump, observation, {}),
        )
        gathering = MeasuredSum()
        totals: dict[Any, UnitTotals] = {}
        for _, (part, units) in reading.each(work):
            gathering.add(part)
            _add(totals, units)
        measured = gathering.measured
        reading.check()
        curve = curve_of(totals, swept, measured.totals) if totals and measured.totals is not None else None
        candidates = {} if curve is None else _candidates(dump, computing, swept=swept, curve=curve, targets=targets)
        result = swept_report(
            None if measured.totals is None else measured.totals.whole,
            curve,
            swept,
            targets=targets,
            candidates=candidates,
            n_points=n_points,
            inputs=reading.inputs,
            notes=tuple(dump.notes),
            n_bad_rows=reading.n_bad_rows,
        )
    return replace(result, seconds=time.perf_counter() - started)


def _columns(request: ReadRequest, plan: Plan) -> PlanColumns:
    """What the plan reads; training batches, where weights are divided by their mean, as `analyze` takes them."""
    batch = None if not divides_by_mean(plan) or request.batch_by == NO_BATCH else request.batch_by or "step"
    required = batch is not None and request.batch_by is not None
    return PlanColumns(mode=plan.mode, needed=plan.needs, wanted=("advantages",), batch=batch, batch_required=required)


def curve_of(totals: Mapping[Any, UnitTotals], swept: Swept, observed: Totals) -> Curve:
    """The curve of finished totals by training batch.  observed: those of the observation."""
    outside = "capped" if isinstance(swept.record, Weighting) and swept.record.outside != "zero" else "dropped"
    whole = reduce(add, totals.values())
    if not divides_by_mean(swept.base):
        return Curve(whole, swept.side, outside)
    batches = {batch: Curve(of_batch, swept.side, outside) for batch, of_batch in totals.items()}
    means = None if isinstance(swept.record, Weighting) else weight_means(observed, swept.base)
    return NormalizedCurve(whole, swept.side, outside, batches=batches, means=means)


def _candidates(
    dump: Dump, computing: Computing, *, swept: Swept, curve: Curve, targets: Targets
) -> Mapping[int, Candidates]:
    """The units of the groups of buckets that targets cut, by the group's place; one more reading of the dump."""
    places = _places(curve, targets)
    if not places:
        return {}
    bins = {place: curve.bins(place) for place in places}
    work = PickUnits(
        reading=ShardReading.of(dump, computing), swept=swept, bins=np.unique(np.concatenate(list(bins.values())))
    )
    picked: dict[Any, list[Units]] = {}
    for _, of_shard in Reading.alone(dump, computing).each(work):
        for batch, units in of_shard:
            picked.setdefault(batch, []).append(units)
    return {place: candidates_of(picked, curve, place) for place in places}


def candidates_of(units: Mapping[Any, Sequence[Units]], curve: Curve, place: int) -> Candidates:
    """Those of a training batch's units, by batch, that stand in the group of a place."""
    bins = curve.bins(place)

    def among(listed: Iterable[Units]) -> Candidates:
        of_group = [each.of(np.isin(FLOAT_BITS.bins_of(each.values), bins)) for each in listed]
        values = np.concatenate([each.values for each in of_group])
        columns = {name: np.concatenate([each.columns[name] for each in of_group]) for name in of_group[0].columns}
        return Candidates.of(values, columns, curve.side)

    whole = among(each for listed in units.values() for each in listed)
    if not isinstance(curve, NormalizedCurve):
        return whole
    return replace(whole, by_batch={batch: among(listed) for batch, listed in units.items()})


def _places(curve: Curve, targets: Targets) -> set[int]:
    """The groups whose units must be read again."""
    places: set[int] = set()
    if targets.keep is not None:
        place, _ = place_of_share(curve, targets.keep)
        places |= {place} if place < len(curve.thresholds) else set()
    if targets.ess is not None and curve.outside == "capped":
        crossing = crossing_of_ess(curve, targets.ess)
        places |= set() if crossing is None else {crossing}
    return places


def _add(totals: dict[Any, UnitTotals], units: Mapping[Any, UnitTotals]) -> None:
    """Add units to totals by training batch, which keep their buckets for each."""
    for batch, of_batch in units.items():
        totals[batch] = totals[batch] + of_batch if batch in totals else of_batch
    if len(totals) > MOST_BATCHES:
        raise UsageError(
            f"More than {MOST_BATCHES} training batches: so many can be swept where each has a mean weight of its own.",
            "--batch-by none takes all rows for one batch, --normalize none leaves the weights as they are.",
        )


@dataclass(frozen=True, kw_only=True)
class SweepShard(ShardWork[tuple[Measured, dict[Any, UnitTotals]]]):
    """Shard -> its totals, and its units by training batch."""

    observation: Observation
    swept: Swept
    provenance: Provenance

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> tuple[Measured, dict[Any, UnitTotals]]:
        """Sweep one shard."""
        gathering = MeasuredSum()
        totals: dict[Any, UnitTotals] = {}
        for rows in batches:
            observed, units = sweeping.sweep(rows.batch, self.observation, self.swept, self.reading.device)
            gathering.add(Measured(provenance=self.provenance, totals=observed.totals))
            _add(totals, units)
        return replace(gathering.measured, provenance=self.provenance, covered=frozenset({shard.id})), totals


@dataclass(frozen=True, kw_only=True)
class PickUnits(ShardWork[list[tuple[Any, Units]]]):
    """Shard -> for each of its portions the units in some buckets, by training batch."""

    swept: Swept
    bins: "np.ndarray[tuple[int], np.dtype[np.uint16]]"

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> list[tuple[Any, Units]]:
        """Pick one shard's units."""
        picked: list[tuple[Any, Units]] = []
        for rows in batches:
            if not rows.batch.n_tokens:
                continue
            for batch, units in sweeping.swept_units(rows.batch, self.swept, self.reading.device).items():
                moving = units.moving
                picked.append((batch, moving.of(np.isin(FLOAT_BITS.bins_of(moving.values), self.bins))))
        return picked
