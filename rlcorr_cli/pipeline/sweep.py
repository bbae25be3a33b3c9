"""sweep(): what one bound does, at every threshold, in one reading; an exact target takes a second."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from rlcorr_cli.atomic import Staging
from rlcorr_cli.batch import Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.core import sweep as core
from rlcorr_cli.core.observe import Observation, layouts_of
from rlcorr_cli.io.dump import Dump, open_dump
from rlcorr_cli.pipeline.analyze import Watch, provenance_of, watched
from rlcorr_cli.pipeline.bad_rows import bad_row_log, check_quarantine
from rlcorr_cli.pipeline.scan import Beside, Computing, ShardReading, ShardResult, check_rereadable, scan
from rlcorr_cli.plans.plan import Weighting
from rlcorr_cli.plans.swept import Swept
from rlcorr_cli.report.swept import Sweep, Targets, crossing_of_ess, swept_report
from rlcorr_cli.requests import PlanColumns, ReadRequest
from rlcorr_cli.totals.bins import FLOAT_BITS, Binned, FloatBits
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.measured import Gathering, Measured
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.summary import total
from rlcorr_cli.totals.sweep import Candidates, Curve, place_of_share


def sweep(
    request: ReadRequest,
    swept: Swept,
    targets: Targets,
    *,
    n_points: int,
    computing: Computing | None = None,
    watch: Watch | None = None,
    staging: Staging | None = None,
) -> Sweep:
    """The curve of one free bound.  staging: as of `analyze`."""
    started = time.perf_counter()
    computing = computing or Computing()
    plan = swept.plan(swept.bounds(0.0))
    dump = open_dump(request, PlanColumns(mode=plan.mode, needed=plan.needs, wanted=("advantages",)))
    check_quarantine(dump)
    observation = Observation((swept.base,), has_current=dump.roles.current is not None, seed=None, compares=True)
    if targets.wanted:
        check_rereadable(dump)
    with watched(dump, watch) as progress, Staging() as own, bad_row_log(dump, staging or own) as log:
        work = SweepShard(
            reading=ShardReading.of(dump, computing),
            observation=observation,
            swept=swept,
            provenance=provenance_of(dump, observation, {}),
        )
        gathering = Gathering()
        totals: Binned[FloatBits] | None = None
        for shard, (measured, binned) in scan(dump, computing, work, log):
            rows = {shard.path: sum(summary.counts["rows"] for summary in measured.groups.values())}
            gathering.add(replace(measured, rows=rows))
            if binned is not None:
                totals = binned if totals is None else totals + binned
            if progress is not None:
                progress(0, shard.n_bytes)
        measured = gathering.measured
        log.check(sum(measured.rows.values()))
        summary = total(measured.groups.values(), layouts_of(observation))
        curve = None if totals is None else curve_of(totals, swept)
        candidates = {} if curve is None else _candidates(dump, computing, swept, curve, targets)
        result = swept_report(
            summary,
            curve,
            swept,
            targets,
            candidates,
            n_points=n_points,
            inputs=tuple(dump.inputs(Counter(measured.rows) + log.rows)),
            notes=tuple(dump.notes),
            n_bad_rows=log.counts.n_rows,
        )
        log.finish()
        own.publish()
    return replace(result, seconds=time.perf_counter() - started)


def curve_of(totals: Binned[FloatBits], swept: Swept) -> Curve:
    """The curve of finished totals."""
    capped = isinstance(swept.record, Weighting) and swept.record.outside != "zero"
    return Curve(totals, swept.side, "capped" if capped else "dropped")


def _candidates(
    dump: Dump, computing: Computing, swept: Swept, curve: Curve, targets: Targets
) -> Mapping[int, Candidates]:
    """The units of the groups of buckets that targets cut, by the group's place; one more reading of the dump."""
    places = _places(curve, targets)
    if not places:
        return {}
    bins = {place: curve.bins(place) for place in places}
    work = PickUnits(
        reading=ShardReading.of(dump, computing), swept=swept, bins=np.unique(np.concatenate(list(bins.values())))
    )
    values: list[Floats] = []
    columns: list[dict[str, Floats]] = []
    for _, picked in scan(dump, computing, work):
        for of_values, of_columns in picked:
            values.append(of_values)
            columns.append(of_columns)
    all_values = np.concatenate(values)
    at = FLOAT_BITS.bins_of(all_values)
    all_columns = {name: np.concatenate([part[name] for part in columns]) for name in curve.totals.sums}
    chosen = {place: np.isin(at, of_place) for place, of_place in bins.items()}
    return {
        place: Candidates.of(all_values[mask], {name: column[mask] for name, column in all_columns.items()}, swept.side)
        for place, mask in chosen.items()
    }


def _places(curve: Curve, targets: Targets) -> set[int]:
    """The groups whose units must be read again."""
    places: set[int] = set()
    if targets.keep is not None:
        places.add(place_of_share(curve, targets.keep)[0])
    if targets.ess is not None and curve.outside == "capped":
        crossing = crossing_of_ess(curve, targets.ess)
        places |= set() if crossing is None else {crossing}
    return places


@dataclass(frozen=True, kw_only=True)
class SweepShard:
    """Shard -> its totals, and its units by bucket (None without a token)."""

    reading: ShardReading
    observation: Observation
    swept: Swept
    provenance: Provenance

    def __call__(self, shard: Shard) -> ShardResult[tuple[Measured, Binned[FloatBits] | None]]:
        """Sweep one shard."""
        beside = Beside()
        gathering = Gathering()
        binned: list[Binned[FloatBits]] = []
        device = self.reading.device
        with devices.worker(device):
            for rows in self.reading.sound_rows(shard, beside):
                observed, units = core.sweep(rows.batch, self.observation, self.swept, device)
                gathering.add(Measured(provenance=self.provenance, groups=observed.groups))
                if units is not None:
                    binned.append(units)
        covering = replace(gathering.measured, provenance=self.provenance, covered=frozenset({shard.id}))
        return ShardResult((covering, reduce(add, binned) if binned else None), beside)


@dataclass(frozen=True, kw_only=True)
class PickUnits:
    """Shard -> for each batch the values and parts of the units in some buckets."""

    reading: ShardReading
    swept: Swept
    bins: "np.ndarray[tuple[int], np.dtype[np.uint16]]"

    def __call__(self, shard: Shard) -> ShardResult[list[tuple[Floats, dict[str, Floats]]]]:
        """Pick one shard's units."""
        picked: list[tuple[Floats, dict[str, Floats]]] = []
        beside = Beside()
        with devices.worker(self.reading.device):
            for rows in self.reading.sound_rows(shard, beside):
                if not rows.batch.n_tokens:
                    continue
                values, columns = core.swept_units(rows.batch, self.swept, self.reading.device)
                mask = np.isin(FLOAT_BITS.bins_of(values), self.bins)
                picked.append((values[mask], {name: column[mask] for name, column in columns.items()}))
        return ShardResult(picked, beside)
