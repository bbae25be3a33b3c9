"""diagnosis_totals(): what is counted and sampled of a dump to tell why its two policies differ, in one reading."""

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling, content_sample
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.request import PlanColumns
from rlcorr_cli.results.diagnosed import COUNTS, DiagnosisRun, GroupCounts, add_counts
from rlcorr_cli.runs.analyze import sampling_of
from rlcorr_cli.runs.reading import OpenDump, ShardReading, ShardWork, anomalies_of, check_quarantine, one_reading
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.row_sample import RowSample, SampleSum

Key = tuple[Any, ...]


DIAGNOSIS_COLUMNS = PlanColumns(levels=True)
"""What is read of a dump to diagnose it."""


def diagnosis_totals(read: OpenDump) -> DiagnosisRun:
    """Read a dump for its diagnosis, and for that of each group of its rows."""
    dump, computing = read.dump, read.computing
    group_by = dump.request.group_by
    sampling = sampling_of(dump, groups=group_by)
    check_quarantine(dump)
    anomalies = anomalies_of(dump, computing)
    with one_reading(read) as reading:
        counts: dict[Key, GroupCounts] = {}
        samples_of_shards = SampleSum()
        contents: list[KeySample] = []
        work = DiagnoseShard(reading=ShardReading.of(dump, computing), sampling=sampling, takes_contents=read.saved)
        for _, part in reading.each(work):
            for key, of_group in part.counts.items():
                add_counts(counts, key, of_group)
            samples_of_shards.add(part.sample)
            sampling.least.raise_to(samples_of_shards.level)
            contents += [] if part.contents is None else [part.contents]
        reading.check()
        return DiagnosisRun(
            counts=counts,
            sample=samples_of_shards.sample or RowSample(most=sampling.most),
            of=Provenance(
                plans={},
                settings={"levels": ", ".join(dump.plan_columns.by), "sample": sampling.most},
                columns=dump.columns,
                groups=group_by,
            ),
            row_contents=reduce(add, contents) if contents else None,
            inputs=reading.inputs,
            notes=tuple(dump.notes),
            problems=reading.log.counts,
            anomalies=anomalies,
        )


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
