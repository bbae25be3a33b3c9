"""Filtering where shards are read: each worker writes its shard's parts and sends back what they came to.

What a worker is sent and what it sends back are small, so that the driver holds none of the rows; it gives out the
directories, adds up, and says what the whole is.
"""

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows
from rlcorr_cli.reading.datasets import OutputFile, PartsOutput, PartsPlace, ShardParts
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.formats import container
from rlcorr_cli.reading.rows_out import columns_of
from rlcorr_cli.reading.whole_rows import OriginalRows
from rlcorr_cli.runs.analyze import Progress
from rlcorr_cli.runs.bad_rows import BadRowLog
from rlcorr_cli.runs.filter_passes import Account, FilteredRows, FilterShard, Tally
from rlcorr_cli.runs.scan import Computing, ShardNotes, ShardReading, ShardResult, scan

Schema = Any
"""An Arrow schema, which only io looks into."""


@dataclass(frozen=True)
class ShardWritten:
    """What a worker made of a shard: its account, and the parts of the rows that stay and of the others."""

    account: Account
    parts: tuple[tuple[OutputFile, ...], tuple[OutputFile, ...]]


@dataclass(frozen=True, kw_only=True)
class WriteParts:
    """Shard -> its parts, written.

    reading: with which `filtering` reads.  kept, dropped: where parts are put; None where these rows are not written.
    """

    reading: ShardReading
    filtering: FilterShard
    kept: PartsPlace | None
    dropped: PartsPlace | None

    def __call__(self, shard: Shard) -> ShardResult[ShardWritten]:
        """Filter one shard's rows and write them."""
        tally, beside = Tally(), ShardNotes()
        filtering = replace(self.filtering, reading=self.reading)
        with ExitStack() as stack:
            kept, dropped = (
                None if place is None else stack.enter_context(ShardParts(place, shard.index))
                for place in (self.kept, self.dropped)
            )
            for rows in stack.enter_context(closing(filtering(shard))):
                if isinstance(rows, ShardNotes):
                    beside.met = rows.met
                elif isinstance(rows, BadRows):
                    beside.set_aside.append(rows)
                else:
                    tally.add(Account.of(rows, rows.stays.astype(np.int64)))
                    _write(kept, rows.written)
                    _write(dropped, rows.dropped)
            parts = kept.finish() if kept else (), dropped.finish() if dropped else ()
        written = ShardWritten(tally.account, parts)
        return ShardResult(written, beside)


def _write(parts: ShardParts | None, rows: OriginalRows | None) -> None:
    if parts is not None and rows is not None:
        parts.write(rows)


@dataclass(frozen=True, kw_only=True)
class Writing:
    """What a pass that writes needs.  places: for the rows that stay and for the others; about: the outputs'
    metadata, as far as it is known before the end."""

    dump: Dump
    work: FilterShard
    computing: Computing
    places: tuple[Destination | None, Destination | None]
    about: str
    progress: Progress | None
    staging: Outputs
    log: BadRowLog

    @property
    def is_apart(self) -> bool:
        """Whether workers write: they share no memory, and what they write are directories.  A draw is written here,
        because the order of its rows is that of the dump."""
        shares_memory = self.computing.engine_for(self.dump).shares_memory
        directories = all(place is None or place.directory for place in self.places)
        return directories and not shares_memory and self.work.target.resample is None


def written_apart(writing: Writing) -> tuple[Tally, tuple[PartsOutput | None, ...]]:
    """Have the workers write all parts; what they came to."""
    tally, outputs = Tally(), _outputs(writing)
    kept, dropped = (None if output is None else output.place for output in outputs)
    reading = ShardReading.of(writing.dump, writing.computing, whole=True)
    write_parts = WriteParts(reading=reading, filtering=writing.work, kept=kept, dropped=dropped)
    for shard, written in scan(writing.dump, writing.computing, write_parts, writing.log):
        tally.add(written.account)
        for output, parts in zip(outputs, written.parts, strict=True):
            if output is not None:
                output.add(parts)
        if writing.progress is not None:
            writing.progress(int(writing.work.n_tokens(written.account.measured)), shard.n_bytes)
    return tally, outputs


def _outputs(writing: Writing) -> tuple[PartsOutput | None, ...]:
    dump, first = writing.dump, first_columns(writing.dump, writing.work) if writing.work.writes else None
    return tuple(
        None
        if place is None
        else PartsOutput(
            writing.staging,
            place,
            writing.work.target.rows_per_file,
            writing.about,
            n_shards=len(dump.shards),
            columns=dump.table_columns,
            first=first,
        )
        for place in writing.places
    )


def first_columns(dump: Dump, work: FilterShard) -> Schema:
    """The columns that the first rows fix for all parts, where files do not; None where they do.

    A worker meets other rows first than another one, and yet all parts are one table.
    """
    if all(container(source.format).fixed_columns for source in dump.sources):
        return None
    everything = replace(work, target=replace(work.target, keep_rejected=True))
    rows = _first_batch(dump, work) or _first_batch(dump, everything)
    return None if rows is None else columns_of(rows, dump.table_columns)


def _first_batch(dump: Dump, work: FilterShard) -> OriginalRows | None:
    """What is to be written of the first batch; None where that is nothing."""
    reading = replace(work, reading=work.reading.afresh())
    for shard in dump.shards:
        with closing(reading(shard)) as batches:
            for rows in batches:
                if isinstance(rows, FilteredRows):
                    return rows.written or None
    return None
