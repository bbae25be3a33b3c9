"""sweep_totals(): what one bound does, at every threshold, in one reading; an exact target takes a second."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import sweep as sweeping
from rlcorr_cli.measure.observe import Observation
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling, content_sample
from rlcorr_cli.measure.sweep import Units
from rlcorr_cli.plans.flags import Swept
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.request import NO_BATCH, PlanColumns, ReadRequest
from rlcorr_cli.results.swept import SweepRun, Targets, add_units, crossing_of_ess
from rlcorr_cli.runs.analyze import provenance_of, sampling_of
from rlcorr_cli.runs.reading import (
    OpenDump,
    Reading,
    ShardReading,
    ShardWork,
    anomalies_of,
    check_quarantine,
    one_reading,
)
from rlcorr_cli.totals.bins import FLOAT_BITS
from rlcorr_cli.totals.comparison import divides_by_mean
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.sweep import Candidates, Curve, NormalizedCurve, UnitTotals, place_of_share


def sweep_totals(read: OpenDump, swept: Swept) -> SweepRun:
    """What the curve of one free bound is drawn from."""
    dump, computing = read.dump, read.computing
    check_quarantine(dump)
    observation = Observation(plans=(swept.base,), seed=None, compares=True)
    anomalies = anomalies_of(dump, computing)
    with one_reading(read) as reading:
        work = SweepShard(
            reading=ShardReading.of(dump, computing),
            observation=observation,
            swept=swept,
            provenance=provenance_of(dump, observation, {}),
            sampling=sampling_of(dump, dump.plan_columns.mode),
            takes_sample=read.saved,
        )
        gathering = MeasuredSum()
        units: dict[Any, UnitTotals] = {}
        taken: list[KeySample] = []
        for _, (part, of_shard, sample) in reading.each(work):
            gathering.add(part)
            add_units(units, of_shard)
            taken += [] if sample is None else [sample]
        reading.check()
        return SweepRun(
            measured=gathering.measured,
            swept=swept,
            units=units,
            sample=reduce(add, taken) if taken else None,
            inputs=reading.inputs,
            notes=tuple(dump.notes),
            problems=reading.log.counts,
            anomalies=anomalies,
        )


def units_at_targets(read: OpenDump, run: SweepRun, targets: Targets) -> Mapping[int, Candidates]:
    """The units that targets cut, by their group's place on the curve: one more reading brings those of its buckets."""
    curve = run.curve
    places = set[int]() if curve is None else _places(curve, targets)
    if curve is None or not places:
        return {}
    bins = np.unique(np.concatenate([curve.bins(place) for place in places]))
    picking = PickUnits(reading=ShardReading.of(read.dump, read.computing), swept=run.swept, bins=bins)
    picked: dict[Any, list[Units]] = {}
    for _, of_shard in Reading.alone(read.dump, read.computing).each(picking):
        for batch, of_batch in of_shard:
            picked.setdefault(batch, []).append(of_batch)
    return {place: candidates_of(picked, curve, place) for place in places}


def sweep_columns(request: ReadRequest, plan: Plan) -> PlanColumns:
    """What the plan reads; training batches, where weights are divided by their mean, as `analyze` takes them."""
    batch = None if not divides_by_mean(plan) or request.batch_by == NO_BATCH else request.batch_by or "step"
    required = batch is not None and request.batch_by is not None
    return PlanColumns(
        mode=plan.mode, needed=plan.needs, wanted=("advantages",), batch=batch, batch_required=required, levels=True
    )


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


@frozen(kw_only=True)
class SweepShard(ShardWork[tuple[Measured, dict[Any, UnitTotals], KeySample | None]]):
    """Shard -> its totals, its units by training batch, and a sample of its rows, where one is taken."""

    observation: Observation
    swept: Swept
    provenance: Provenance
    sampling: Sampling
    takes_sample: bool = False

    def made(
        self, shard: Shard, batches: Iterator[CheckedRows]
    ) -> tuple[Measured, dict[Any, UnitTotals], KeySample | None]:
        """Sweep one shard."""
        gathering = MeasuredSum()
        totals: dict[Any, UnitTotals] = {}
        taken: list[KeySample] = []
        sampler = RowSampler(self.sampling, self.reading.reader.roles)
        for rows in batches:
            sampler.take(rows)
            observed, units = sweeping.sweep(rows.batch, self.observation, self.swept, self.reading.device)
            gathering.add(Measured(provenance=self.provenance, totals=observed.totals))
            add_units(totals, units)
            taken += [content_sample(rows.batch)] if self.takes_sample else []
        measured = replace(
            gathering.measured, provenance=self.provenance, covered=frozenset({shard.id}), sample=sampler.sample
        )
        return measured, totals, reduce(add, taken) if taken else None


@frozen(kw_only=True)
class PickUnits(ShardWork[list[tuple[Any, Units]]]):
    """Shard -> for each of its portions the units in some buckets, by training batch."""

    swept: Swept
    bins: "np.ndarray[tuple[int], np.dtype[np.uint16]]"

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> list[tuple[Any, Units]]:
        """Pick one shard's units."""
        picked: list[tuple[Any, Units]] = []
        for rows in batches:
            for batch, units in sweeping.swept_units(rows.batch, self.swept, self.reading.device).items():
                moving = units.moving
                picked.append((batch, moving.of(np.isin(FLOAT_BITS.bins_of(moving.values), self.bins))))
        return picked
