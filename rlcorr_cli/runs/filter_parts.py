"""Filtering where shards are read: each worker writes its shard's parts and sends back what they came to.

What a worker is sent and what it sends back are small, so that the driver holds none of the rows; it gives out the
directories, adds up, and says what the whole is.
"""

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np

from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows
from rlcorr_cli.reading.datasets import OutputFile, PartsOutput, PartsPlace, ShardParts, is_saved
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.formats import container
from rlcorr_cli.reading.rows_out import columns_of
from rlcorr_cli.reading.whole_rows import OriginalRows
from rlcorr_cli.runs.filter_passes import FilteredRows, FilterShard, RowCounts
from rlcorr_cli.runs.reading import Reading, ReadingNotes, ShardReading, ShardResult
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.row_sample import RowSample

Schema = Any
"""An Arrow schema, which only io looks into."""


@frozen
class ShardWritten:
    """What a worker made of a shard: what became of its rows, their totals, and the parts of the rows that stay and of
    the others."""

    counts: RowCounts
    measured: Measured
    parts: tuple[tuple[OutputFile, ...], tuple[OutputFile, ...]]


@frozen(kw_only=True)
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
        counts, totals, notes, n_tokens = RowCounts(), MeasuredSum(), ReadingNotes(), 0
        filtering = replace(self.filtering, reading=self.reading)
        with ExitStack() as stack:
            kept, dropped = (
                None if place is None else stack.enter_context(ShardParts(place, shard.index))
                for place in (self.kept, self.dropped)
            )
            for rows in stack.enter_context(closing(filtering(shard))):
                if isinstance(rows, ReadingNotes):
                    notes.seen_ids = rows.seen_ids
                elif isinstance(rows, BadRows):
                    notes.bad_rows.append(rows)
                elif isinstance(rows, RowSample):
                    totals.add(Measured(provenance=filtering.provenance, sample=rows))
                else:
                    counts.add(rows, rows.stays.astype(np.int64))
                    totals.add(rows.measured)
                    n_tokens += rows.n_tokens
                    if kept is not None and rows.written is not None:
                        kept.write(rows.written)
                    if dropped is not None and rows.dropped is not None:
                        dropped.write(rows.dropped)
            parts = kept.finish() if kept else (), dropped.finish() if dropped else ()
        notes = replace(notes, n_rows=counts.rows_in, n_tokens=n_tokens)
        return ShardResult(ShardWritten(counts, totals.measured, parts), notes)


@frozen(kw_only=True)
class Writing:
    """What a pass that writes needs.  places: for the rows that stay and for the others; about: the outputs'
    metadata, as far as it is known before the end."""

    reading: Reading
    work: FilterShard
    places: tuple[Destination | None, Destination | None]
    about: str

    @property
    def is_apart(self) -> bool:
        """Whether workers write: they share no memory, and what they write are directories.  A draw is written here,
        because the order of its rows is that of the dump."""
        shares_memory = self.reading.computing.engine_for(self.reading.dump).shares_memory
        directories = all(place is None or (place.directory and not is_saved(place)) for place in self.places)
        return directories and not shares_memory and self.work.target.resample is None


def written_apart(writing: Writing) -> tuple[RowCounts, Measured, tuple[PartsOutput | None, ...]]:
    """Have the workers write all parts; what became of the rows, their totals, and the outputs."""
    reading = writing.reading
    dump = reading.dump
    first = _first_columns(dump, writing.work) if writing.work.writes else None
    outputs = tuple(
        None
        if place is None
        else PartsOutput(
            reading.staging,
            place,
            writing.work.target.rows_per_file,
            writing.about,
            n_shards=len(dump.shards),
            columns=dump.table_columns,
            first=first,
        )
        for place in writing.places
    )
    counts, totals = RowCounts(), MeasuredSum()
    kept, dropped = (None if output is None else output.place for output in outputs)
    shards = ShardReading.of(dump, reading.computing, whole=True)
    for _, written in reading.each(WriteParts(reading=shards, filtering=writing.work, kept=kept, dropped=dropped)):
        counts.add_all(written.counts)
        totals.add(written.measured)
        for output, parts in zip(outputs, written.parts, strict=True):
            if output is not None:
                output.add(parts)
    return counts, totals.measured, outputs


def _first_columns(dump: Dump, work: FilterShard) -> Schema:
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
    reading = replace(work, reading=work.reading.restarted())
    for shard in dump.shards:
        with closing(reading(shard)) as batches:
            for rows in batches:
                if isinstance(rows, FilteredRows):
                    return rows.written or None
    return None
