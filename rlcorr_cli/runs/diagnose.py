"""diagnose(): why a dump's two policies differ, in one reading."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.anomalies import find_anomalies
from rlcorr_cli.causes.features import Context
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure.chosen_rows import content_sample
from rlcorr_cli.measure.gap import gap_totals
from rlcorr_cli.measure.worst import largest
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.peek import samples
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.row_places import all_resolved
from rlcorr_cli.reading.token_context import row_id, token_context
from rlcorr_cli.results.diagnosed import COUNTS, DiagnosedDump, DiagnosisRun, GroupGaps, add_group, diagnosis_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import ShardReading, ShardWork, Watch, check_quarantine, one_reading
from rlcorr_cli.totals.gap import WORST, GapTotals, WorstRow, WorstRows
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample

FILE = "file"
"""The column of levels that a dump's files are."""
Key = tuple[Any, ...]


def diagnose(
    request: ReadRequest,
    *,
    by: tuple[str, ...] = (),
    computing: Computing | None = None,
    watch: Watch | None = None,
    staging: Outputs | None = None,
    totals: bool = False,
) -> DiagnosedDump:
    """Diagnose a dump, and each group of its rows.

    by: columns of levels beside those that are looked at unasked.  staging, totals: as of `analyze`.
    """
    started = time.perf_counter()
    computing = (computing or Computing()).in_portions(devices.DIAGNOSING_TOKENS)
    dump = open_dump(request, PlanColumns(levels=True, by=by))
    check_quarantine(dump)
    anomalies = find_anomalies(samples(dump))
    with one_reading(dump, computing, watch=watch, staging=staging) as reading:
        groups: dict[Key, GroupGaps] = {}
        taken: list[KeySample] = []
        work = DiagnoseShard(
            reading=ShardReading.of(dump, computing),
            has_files=len(dump.sources) > 1 or totals,
            takes_sample=totals,
        )
        for _, (part, sample) in reading.each(work):
            for key, gaps in part.items():
                add_group(groups, key, gaps)
            taken += [] if sample is None else [sample]
        reading.check()
        run = DiagnosisRun(
            groups={key: replace(gaps, totals=_placed(gaps.totals)) for key, gaps in groups.items()},
            of=Provenance(
                plans={}, settings={"levels": ", ".join(by)}, columns=dump.columns, groups=tuple(request.group_by)
            ),
            context=Context(dump.roles.rollout, dump.roles.train, dump.roles.row_advantage or dump.roles.reward),
            sample=reduce(add, taken) if taken else None,
            inputs=reading.inputs,
            notes=tuple(dump.notes),
            problems=reading.log.counts,
            anomalies=anomalies,
        )
        result = diagnosis_of(run)
    return replace(result, seconds=time.perf_counter() - started, totals=run if totals else None)


@dataclass(frozen=True, kw_only=True)
class DiagnoseShard(ShardWork[tuple[dict[Key, GroupGaps], KeySample | None]]):
    """Shard -> the statistics of its rows, by group, and a sample of the rows by what they hold, where one is taken.

    has_files: whether files are levels, because there are several, or may be once totals are added.
    """

    has_files: bool = False
    takes_sample: bool = False

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> tuple[dict[Key, GroupGaps], KeySample | None]:
        """Add up one shard."""
        groups: dict[Key, GroupGaps] = {}
        taken: list[KeySample] = []
        for rows in batches:
            for key, gaps in self._of_batch(rows).items():
                add_group(groups, key, gaps)
            taken += [content_sample(rows.batch)] if self.takes_sample else []
        return groups, reduce(add, taken) if taken else None

    def _of_batch(self, rows: CheckedRows) -> dict[Key, GroupGaps]:
        batch, roles = rows.batch, self.reading.reader.roles
        around = token_context(rows, roles)
        if self.has_files and FILE not in around.levels:
            file = np.zeros(batch.n_rows, np.int64), (os.path.basename(rows.places.path),)
            around = replace(around, levels={**around.levels, FILE: file})
        lengths = batch.lengths
        gaps: dict[Key, GroupGaps] = {}
        for group in np.unique(batch.group_index).tolist():
            at = np.flatnonzero(batch.group_index == group)
            of_group = gap_totals(batch, around, at, device=self.reading.device)
            odd, far = (WorstRows.of(self._worst(rows, at, values)) for values in (of_group.odd, of_group.far))
            of_rows = lengths[at]
            values = (
                len(at),
                np.count_nonzero(of_rows),
                np.count_nonzero(of_rows == 0),
                of_rows.sum(),
                batch.n_masked[at].sum(),
            )
            counts = {name: int(value) for name, value in zip(COUNTS, values, strict=True)}
            # Without a column of batches, the key begins with None.
            gaps[batch.group_keys[group][1:]] = GroupGaps(counts, replace(of_group.totals, odd_rows=odd, far_rows=far))
        return gaps

    def _worst(self, rows: CheckedRows, at: NDArray[np.int64], values: Floats) -> Iterable[WorstRow]:
        """The rows of the largest values that are known."""
        known = np.flatnonzero(~np.isnan(values))
        for i in known[largest(values[known], WORST)].tolist():
            row = int(at[i])
            n_tokens = int(rows.batch.offsets[row + 1] - rows.batch.offsets[row])
            yield WorstRow(float(values[i]), rows.places[row], row_id(rows, self.reading.reader.roles, row), n_tokens)


def _placed(totals: GapTotals) -> GapTotals:
    """The same with the places of rows counted from the start of each file."""

    def placed(worst: WorstRows) -> WorstRows:
        places = all_resolved([row.place for row in worst.rows])
        return WorstRows(tuple(replace(row, place=place) for row, place in zip(worst.rows, places, strict=True)))

    return replace(totals, odd_rows=placed(totals.odd_rows), far_rows=placed(totals.far_rows))
