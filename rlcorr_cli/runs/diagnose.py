"""diagnose(): why a dump's two policies differ, in one reading."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from rlcorr_cli.causes.features import Yardstick
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling, content_sample
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.results.diagnosed import COUNTS, DiagnosedDump, DiagnosisRun, GroupCounts, add_counts, diagnosis_of
from rlcorr_cli.runs.analyze import sampling_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import ShardReading, ShardWork, Watch, anomalies_of, check_quarantine, one_reading
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.row_sample import RowSample, SampleSum

Key = tuple[Any, ...]


def diagnose(
    request: ReadRequest,
    *,
    by: tuple[str, ...] = (),
    computing: Computing | None = None,
    watch: Watch | None = None,
    staging: Outputs | None = None,
    totals: bool = False,
    clean: Yardstick | None = None,
) -> DiagnosedDump:
    """Diagnose a dump, and each group of its rows.

    by: columns of levels beside those that are looked at unasked.  staging, totals, clean: as of `analyze`.
    """
    started = time.perf_counter()
    computing = computing or Computing()
    dump = open_dump(request, PlanColumns(levels=True, by=by))
    sampling = sampling_of(dump, groups=tuple(request.group_by))
    check_quarantine(dump)
    anomalies = anomalies_of(dump, computing)
    with one_reading(dump, computing, watch=watch, staging=staging) as reading:
        counts: dict[Key, GroupCounts] = {}
        samples_of_shards = SampleSum()
        contents: list[KeySample] = []
        work = DiagnoseShard(reading=ShardReading.of(dump, computing), sampling=sampling, takes_contents=totals)
        for _, part in reading.each(work):
            for key, of_group in part.counts.items():
                add_counts(counts, key, of_group)
            samples_of_shards.add(part.sample)
            sampling.least.raise_to(samples_of_shards.level)
            contents += [] if part.contents is None else [part.contents]
        reading.check()
        run = DiagnosisRun(
            counts=counts,
            sample=samples_of_shards.sample or RowSample(most=sampling.most),
            of=Provenance(
                plans={},
                settings={"levels": ", ".join(by), "sample": sampling.most},
                columns=dump.columns,
                groups=tuple(request.group_by),
            ),
            row_contents=reduce(add, contents) if contents else None,
            inputs=reading.inputs,
            notes=tuple(dump.notes),
            problems=reading.log.counts,
            anomalies=anomalies,
        )
        result = diagnosis_of(run, clean)
    return replace(result, seconds=time.perf_counter() - started, totals=run if totals else None)


@frozen(kw_only=True)
class ShardCounts:
    """What is counted of a shard, by group, and the sample of its rows; contents: of the rows by what they hold."""

    counts: dict[Key, GroupCounts]
    sample: RowSample
    contents: KeySample | None


@frozen(kw_only=True)
class DiagnoseShard(ShardWork[ShardCounts]):
    """Shard -> its counts and its sample.  takes_contents: whether a sample of the rows by what they hold is taken."""

    sampling: Sampling
    takes_contents: bool = False

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> ShardCounts:
        """Count one shard."""
        counts: dict[Key, GroupCounts] = {}
        contents: list[KeySample] = []
        sampler = RowSampler(self.sampling, self.reading.reader.roles)
        for rows in batches:
            for key, of_group in _counts(rows).items():
                add_counts(counts, key, of_group)
            sampler.take(rows)
            contents += [content_sample(rows.batch)] if self.takes_contents else []
        return ShardCounts(counts=counts, sample=sampler.sample, contents=reduce(add, contents) if contents else None)


def _counts(rows: CheckedRows) -> dict[Key, GroupCounts]:
    """COUNTS of each group of a batch's rows."""
    batch = rows.batch
    lengths, group = batch.lengths, batch.group_index
    of_rows = (np.ones(len(lengths)), lengths > 0, lengths == 0, lengths, batch.n_masked)
    sums = [np.bincount(group, values, len(batch.group_keys)) for values in of_rows]
    return {
        # Without a column of batches, the key begins with None.
        batch.group_keys[i][1:]: {name: int(values[i]) for name, values in zip(COUNTS, sums, strict=True)}
        for i in np.unique(group).tolist()
    }
