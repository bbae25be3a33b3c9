"""diagnose(): why a dump's two policies differ, in one reading."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.anomalies import find_anomalies
from rlcorr_cli.causes.diagnosis import unexplained
from rlcorr_cli.causes.features import Context
from rlcorr_cli.causes.judge import diagnose as diagnose_totals
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure.gap import gap_totals
from rlcorr_cli.measure.worst import largest
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.peek import samples
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.row_places import all_resolved
from rlcorr_cli.reading.token_context import row_id, token_context
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup
from rlcorr_cli.results.groups import key_order, refuse_empty
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import ShardReading, ShardWork, Watch, check_quarantine, one_reading
from rlcorr_cli.totals.gap import WORST, GapTotals, WorstRow, WorstRows
from rlcorr_cli.totals.histogram import Floats

FILE = "file"
"""The column of levels that a dump's files are."""
MOST_GROUPS = 100
"""Groups of one dump that are diagnosed each; each takes up to 6 MB."""
COUNTS = ("rows", "sequences", "empty_sequences", "tokens", "masked_tokens")
Key = tuple[Any, ...]


def diagnose(
    request: ReadRequest,
    *,
    by: tuple[str, ...] = (),
    computing: Computing | None = None,
    watch: Watch | None = None,
    staging: Outputs | None = None,
) -> DiagnosedDump:
    """Diagnose a dump, and each group of its rows.

    by: columns of levels beside those that are looked at unasked.  staging: as of `analyze`.
    """
    started = time.perf_counter()
    computing = (computing or Computing()).in_portions(devices.DIAGNOSING_TOKENS)
    dump = open_dump(request, PlanColumns(levels=True, by=by))
    check_quarantine(dump)
    anomalies = find_anomalies(samples(dump))
    with one_reading(dump, computing, watch=watch, staging=staging) as reading:
        gathered = _RunningGaps()
        work = DiagnoseShard(reading=ShardReading.of(dump, computing), has_files=len(dump.sources) > 1)
        for _, part in reading.each(work):
            gathered.add(part)
        reading.check()
        inputs = reading.inputs
        whole = sum((group for group in gathered.groups.values()), GroupGaps())
        n_bad = reading.n_bad_rows
        counts = {**whole.counts, "rows": whole.counts["rows"] + n_bad, "bad_rows": n_bad}
        refuse_empty(counts, inputs)
        context = Context(dump.roles.rollout, dump.roles.train, dump.roles.row_advantage or dump.roles.reward)
        keys = sorted(gathered.groups, key=key_order) if request.group_by else []
        diagnosed = _diagnosed({}, counts, whole.totals, context)
        result = DiagnosedDump(
            inputs=inputs,
            columns=(dump.roles.rollout, dump.roles.train),
            whole=diagnosed,
            groups=tuple(
                _diagnosed(dict(zip(request.group_by, key, strict=True)), dict(group.counts), group.totals, context)
                for key in keys
                for group in (gathered.groups[key],)
            ),
            anomalies=unexplained(anomalies, diagnosed.diagnosis),
            problems=reading.problems,
            notes=tuple(dump.notes),
        )
    return replace(result, seconds=time.perf_counter() - started)


@dataclass(frozen=True)
class GroupGaps:
    """A group's counts and statistics.  + adds both."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    totals: GapTotals = field(default_factory=GapTotals)

    def __add__(self, other: "GroupGaps") -> "GroupGaps":
        counts = {name: self.counts[name] + other.counts[name] for name in COUNTS}
        return GroupGaps(counts, self.totals + other.totals)


@dataclass
class _RunningGaps:
    """The sum so far, by group."""

    groups: dict[Key, GroupGaps] = field(default_factory=dict[Key, GroupGaps])

    def add(self, part: Mapping[Key, GroupGaps]) -> None:
        """Add one more part, in place; a UsageError for more groups than are kept."""
        for key, gaps in part.items():
            self.groups[key] = self.groups[key] + gaps if key in self.groups else gaps
        if len(self.groups) > MOST_GROUPS:
            raise UsageError(
                f"There are over {MOST_GROUPS} groups, more than are diagnosed.",
                "Group by a column of fewer values; --by COLUMN looks at its levels within one diagnosis.",
            )


@dataclass(frozen=True, kw_only=True)
class DiagnoseShard(ShardWork[dict[Key, GroupGaps]]):
    """Shard -> the statistics of its rows, by group.  has_files: whether the dump has several, which are levels."""

    has_files: bool = False

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> dict[Key, GroupGaps]:
        """Add up one shard."""
        gathered = _RunningGaps()
        for rows in batches:
            gathered.add(self._of_batch(rows))
        return gathered.groups

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


def _diagnosed(
    key: Mapping[str, Any], counts: Mapping[str, int], totals: GapTotals, context: Context
) -> DiagnosedGroup:
    totals = replace(totals, odd_rows=_placed(totals.odd_rows), far_rows=_placed(totals.far_rows))
    return DiagnosedGroup(key=key, counts=counts, diagnosis=diagnose_totals(totals, context), totals=totals)


def _placed(worst: WorstRows) -> WorstRows:
    """The same with places counted from the start of each file."""
    places = all_resolved([row.place for row in worst.rows])
    return WorstRows(tuple(replace(row, place=place) for row, place in zip(worst.rows, places, strict=True)))
