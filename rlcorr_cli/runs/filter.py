"""filter_dump(): the corrected dataset; correct(): the corrected rows of one table, in memory.

One pass reads, decides and writes: shard by shard in the dump's order here, or each shard's parts of a directory where
it is read, by an engine whose workers share no memory.  A plan that divides weights by a batch mean, and a resampling,
first take a pass that only measures, a budget two that find its bound; a resampling writes in up to MOST_ROUNDS passes.
Rows in = rows out + rows dropped + rows set aside, checked at the end.

Where shards are read by workers that share no memory, each writes its shard's parts and sends back what they came to.
What a worker is sent and what it sends back are small, so that the driver holds none of the rows; it gives out the
directories, adds up, and says what the whole is.

convert(): a dump, a framework's own files most of all, as canonical rows that any tool reads.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli import __version__
from rlcorr_cli.errors import DataError, FaultError, UsageError, plural
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.correct import MAX_WEIGHT
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Schema, Shard
from rlcorr_cli.reading.batches import BadRows
from rlcorr_cli.reading.convert import RESCORED, SCORED, Partner, canonical_rows
from rlcorr_cli.reading.datasets import (
    Output,
    OutputFile,
    PartsOutput,
    PartsPlace,
    ShardParts,
    dataset,
    is_saved,
    is_table,
)
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.formats import container
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.rows_out import check_added, columns_of, drawn
from rlcorr_cli.reading.tables import Table, one_table
from rlcorr_cli.reading.whole_rows import OriginalRows
from rlcorr_cli.records.fields import as_json
from rlcorr_cli.results.build import report_of
from rlcorr_cli.results.groups import order
from rlcorr_cli.results.objective import ObjectiveReport
from rlcorr_cli.results.written import Converted, Filtered, PromptCounts, Target
from rlcorr_cli.runs.analyze import opened, run_totals
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.filter_passes import FilteredRows, FilterShard, RowCounts, filter_work, filtered_rows, row_draws
from rlcorr_cli.runs.reading import (
    OpenDump,
    Reading,
    ReadingNotes,
    ShardReading,
    ShardResult,
    Watch,
    anomalies_of,
    check_quarantine,
    check_rereadable,
    one_reading,
    quarantine,
    watched,
)
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.row_sample import RowSample

MOST_ROUNDS = 4
"""How often a dump is read to write rows that are drawn.  Of as many draws as rows, 1 row in 270 has two copies in one
round."""


def filter_dump(
    request: ReadRequest,
    chosen: ChosenPlan,
    target: Target,
    *,
    computing: Computing | None = None,
    watch: Watch | None = None,
) -> Filtered:
    """Write the corrected rows of a dump, and report what the plan did to it."""
    started = time.perf_counter()
    plan, dump = chosen.plan, opened(request, chosen, target.objective, clusters=True)
    _check_before_scan(dump, plan, target)
    places = kept_rows(target), rejected_rows(target)
    computing = computing or Computing()
    anomalies = anomalies_of(dump, computing)
    if any(place is not None and place.directory for place in places):
        computing = computing.as_named  # names of parts are an engine's own
    budgets = search_budgets(dump, plan, computing)
    writes = target.path is not None or target.rejected is not None
    work = filter_work(dump, chosen, target, computing=computing, budget_bounds=budgets.bounds, writes=writes)
    draws = row_draws(dump, work, computing)
    with (
        one_reading(OpenDump(dump=dump, computing=computing, watch=watch), overwrite=target.overwrite) as reading,
        ExitStack() as stack,
    ):
        writing = Writing(reading=reading, work=work, places=places, about=json.dumps(_about(plan)))
        if writing.is_apart:
            counts, measured, outputs = written_apart(writing)
        else:
            counts, measured, outputs = _written_in_order(writing, draws, stack)
        notes = _filter_notes(plan, target, counts.n_clamped, outputs)
        measured = replace(measured, provenance=work.provenance, covered=frozenset(shard.id for shard in dump.shards))
        chosen = replace(chosen, notes=(*chosen.notes, *notes))
        report = report_of(run_totals(reading, chosen, measured, budgets=budgets, anomalies=anomalies))
        if report.objective is not None:
            report = replace(report, notes=(*report.notes, _coefficients(report.objective, target)))
        if report.story.is_fault and not target.force and target.path is not None:
            what = f"{report.story.do[0]} Nothing was written; ⟦force True⟧ writes all the same."
            raise FaultError(report.story.headline, what)
        filtered = Filtered(
            report=replace(report, seconds=time.perf_counter() - started),
            target=target,
            rows_in=counts.rows_in + reading.n_bad_rows,
            rows_out=counts.rows_out,
            rows_dropped=counts.rows_dropped,
            rows_bad=reading.n_bad_rows,
            quarantine=request.bad_rows.quarantine,
            n_bytes=0,
            rejected_rows=counts.rejected,
            prompts=None if target.resample is not None else PromptCounts.of(counts.groups),
            n_steps=len(counts.of_steps),
            empty_steps=tuple(
                as_json(step) for step in sorted(counts.of_steps, key=order) if not counts.of_steps[step]
            ),
        )
        _finish_outputs(filtered, outputs)
    return replace(filtered, n_bytes=outputs[0].n_bytes if outputs[0] else 0)


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


def _written_in_order(
    writing: Writing, draws: NDArray[np.int64] | None, stack: ExitStack
) -> tuple[RowCounts, Measured, tuple[Output | None, ...]]:
    """Have the rows come here, and write them in the dump's order.  stack: closes the outputs."""
    counts, totals = RowCounts(), MeasuredSum()
    outputs = tuple(
        None if place is None else stack.enter_context(_row_output(place, writing)) for place in writing.places
    )
    copies = None if draws is None else _Copies(draws=draws, kept=outputs[0])
    with closing(
        filtered_rows(writing.reading, writing.work, outputs=outputs if copies is None else (), totals=totals)
    ) as batches:
        for batch in batches:
            times = batch.stays.astype(np.int64) if copies is None else copies.write(batch, counts.rows_in, 0)
            counts.add(batch, times)
            totals.add(batch.measured)
            if copies is None:
                _write(batch, outputs)
    if copies is not None and copies.kept is not None:
        copies.write_further(writing)
    return counts, totals.measured, outputs


def _write(batch: FilteredRows, outputs: Sequence[Output | ShardParts | None]) -> None:
    """A batch's rows to where each kind goes.  outputs: of the rows that stay and of the others."""
    for output, rows in zip(outputs, (batch.written, batch.dropped), strict=True):
        if output is not None and rows is not None:
            output.write(rows)


@frozen(kw_only=True)
class _Copies:
    """Copies of drawn rows on their way to an output, in rounds: each round reads the dump and writes an equal share of
    each row's copies, so that copies of a row stand apart.

    draws: how often each row of the dump is drawn, i64[rows].
    """

    draws: NDArray[np.int64]
    kept: Output | None

    @property
    def n_rounds(self) -> int:
        """How often the dump is read for them."""
        return min(int(self.draws.max()), MOST_ROUNDS)

    def write(self, batch: FilteredRows, first_row: int, number: int) -> NDArray[np.int64]:
        """A batch's copies of one round; how often each of its rows is drawn, in all rounds together."""
        times = self.draws[first_row : first_row + len(batch.stays)]
        if self.kept is not None and batch.written is not None:
            for rows in drawn(batch.written, times, batch.longest, number=number, n_rounds=self.n_rounds):
                self.kept.done = (self.kept.rows + len(rows)) / int(self.draws.sum())
                self.kept.write(rows)
        return times

    def write_further(self, writing: Writing) -> None:
        """All rounds after the first."""
        dump, computing = writing.reading.dump, writing.reading.computing
        for number in range(1, self.n_rounds):
            work = replace(writing.work, reading=writing.work.reading.restarted(), measures=False)
            row = 0
            with closing(filtered_rows(Reading.alone(dump, computing), work)) as batches:
                for batch in batches:
                    row += len(self.write(batch, row, number))


def _row_output(place: Destination, writing: Writing) -> Output:
    reading, rows_per_file = writing.reading, writing.work.target.rows_per_file
    columns = reading.dump.table_columns if is_table(place) else None
    sealed = not reading.computing.engine.shares_memory
    return Output(reading.staging, place, rows_per_file, writing.about, columns=columns, sealed=sealed)


def destinations(request: ReadRequest, target: Target) -> list[Destination]:
    """Where a run with these arguments writes."""
    places = (kept_rows(target), rejected_rows(target), quarantine(request.bad_rows, target.overwrite))
    return [place for place in places if place is not None]


def kept_rows(target: Target) -> Destination | None:
    """Where the corrected rows go, if anywhere."""
    return None if target.path is None else dataset(target.path, "⟦output⟧", target.overwrite)


def rejected_rows(target: Target) -> Destination | None:
    """Where the rows without a token left go, if anywhere."""
    return None if target.rejected is None else dataset(target.rejected, "⟦rejected_output⟧", target.overwrite)


def _filter_notes(
    plan: Plan, target: Target, n_clamped: int, outputs: Sequence[Output | PartsOutput | None]
) -> Iterator[str]:
    """Where weights are not written because the plan's loss does not apply them; what rows are drawn by, and in which
    order they are written; which weights were too large to be written down, and which values JSON lines have no form
    for."""
    if plan.weighting is not None and not plan.applies_weights:
        reason = (
            "in bypass mode PPO's ratio current / rollout carries the correction, and a weight would count it twice"
        )
        yield f"The weights are measured, not written: {reason}."
    if target.resample is not None:
        if plan.weighting is not None and plan.applies_weights and plan.weighting.scope == "token":
            yield "Rows are drawn by the mean weight of their tokens; token weights are not written."
        yield "Copies of a row are spread over the output, numbered in rlcorr_draw."
    if n_clamped:
        yield (
            f"Weights above {MAX_WEIGHT:.3g}, the largest float32, are written as that: {plural(n_clamped, 'token')}. "
            "A bound (--is token:,1000) avoids this."
        )
    losses = [output.losses for output in outputs if output is not None]
    n_numbers, n_texts = sum(loss.numbers for loss in losses), sum(loss.texts for loss in losses)
    if n_numbers:
        yield f"Numbers that are NaN or infinite, which JSON lacks, are written as null: {n_numbers:,}."
    if n_texts:
        yield (
            f"Strings that are not UTF-8 are written with their other bytes as \\x..: {n_texts:,}; .parquet keeps them."
        )


def _coefficients(made: ObjectiveReport, target: Target) -> str:
    """A note on what the coefficients are divided by, or still to be."""
    name, divisor = made.objective.name, made.objective.divisor
    if made.objective.is_sum:
        return f"rlcorr_coef is {name}'s, of a sum over the tokens of a batch, which nothing divides."
    if target.divides_coefs:
        return f"rlcorr_coef is {name}'s, divided by the {divisor} of its batch."
    (first, *others) = made.batches
    number = f"the {first.divisor:,.0f} {divisor}" if not others else f"the {divisor}"
    where = "" if not others else ": their numbers are in the file's metadata and in the JSON report"
    return f"rlcorr_coef is {name}'s, to be divided by {number} of its batch{where}."


def _check_before_scan(dump: Dump, plan: Plan, target: Target) -> None:
    """Everything that can be refused before the scan."""
    check_quarantine(dump)
    check_added(dump.available)
    if any(is_table(place) for place in destinations(dump.request, target)):
        _ = dump.table_columns  # an error, if files cannot be written as one
    if target.rejected is not None and target.keep_rejected:
        raise UsageError("With ⟦rejected keep⟧ there are no dropped rows for ⟦rejected_output⟧.", "Use one of the two.")
    if target.resample is not None and (target.keep_rejected or target.rejected is not None):
        raise UsageError("⟦resample⟧ draws rows, so there are no dropped rows to write apart.", "Use ⟦resample⟧ alone.")
    if target.resample is not None and target.objective is not None:
        raise UsageError(
            "⟦resample⟧ draws rows by their weights, and ⟦coef⟧ includes the same weights.", "Use one of the two."
        )
    if plan.batched or target.resample is not None or target.divides_coefs:
        check_rereadable(dump)


def _finish_outputs(filtered: Filtered, outputs: Sequence[Output | PartsOutput | None]) -> None:
    """Hold the accounts against each other, then have the outputs ready to be published."""
    kept, dropped = outputs
    for output, rows in ((kept, filtered.rows_out), (dropped, filtered.rows_dropped)):
        if output is not None and output.rows != rows:
            raise AssertionError(f"{output.destination.path}: {output.rows} rows written, {rows} meant to be")
    gone = filtered.rows_dropped + filtered.rows_bad
    if filtered.target.resample is None and filtered.rows_in != filtered.rows_out + gone:
        raise AssertionError(f"{filtered.rows_in} rows in, {filtered.rows_out} out, {gone} not")
    about = {**_about(filtered.report.plan), "counts": filtered.report.whole.counts, **filtered.rows}
    if filtered.report.story.is_fault:
        about |= {"forced_over": list(filtered.report.story.fault_names)}
    about |= {} if filtered.coefs is None else {"coefs": filtered.coefs.to_dict()}
    if kept is not None:
        kept.finish(json.dumps(about))
    if dropped is not None:
        dropped.finish_or_remove(json.dumps(about))


def _about(plan: Plan) -> dict[str, Any]:
    return {"version": __version__, "plan": plan.to_dict()}


def correct(request: ReadRequest, chosen: ChosenPlan, computing: Computing) -> Table:
    """The rows as a pyarrow.Table, as `filter` would write them with all rows kept.

    The table is one training batch to a plan that looks at whole ones.
    """
    dump = opened(request, chosen)
    check_added(dump.available)
    budget_bounds = search_budgets(dump, chosen.plan, computing).bounds
    work = filter_work(
        dump,
        chosen,
        Target(path=None, keep_rejected=True),
        computing=computing,
        budget_bounds=budget_bounds,
        writes=True,
    )
    work = replace(work, measures=False)
    corrected = [
        batch.written for batch in filtered_rows(Reading.alone(dump, computing), work) if batch.written is not None
    ]
    if not corrected:
        raise DataError("The table has no rows.", "Give a table that holds at least one sequence.")
    return one_table(corrected)


@frozen
class ShardWritten:
    """What a worker made of a shard: what became of its rows, their totals, and the parts of the rows that stay and of
    the others."""

    counts: RowCounts
    measured: Measured
    parts: tuple[tuple[OutputFile, ...], ...]


@frozen(kw_only=True)
class WriteParts:
    """Shard -> its parts, written.

    reading: with which `filtering` reads.  places: where parts of the rows that stay and of the others are put; None
    where these are not written.
    """

    reading: ShardReading
    filtering: FilterShard
    places: tuple[PartsPlace | None, ...]

    def __call__(self, shard: Shard) -> ShardResult[ShardWritten]:
        """Filter one shard's rows and write them."""
        counts, totals, notes, bad_rows = RowCounts(), MeasuredSum(), ReadingNotes(), list[BadRows]()
        filtering = replace(self.filtering, reading=self.reading)
        with ExitStack() as stack:
            outputs = [
                None if place is None else stack.enter_context(ShardParts(place, shard.index)) for place in self.places
            ]
            for rows in stack.enter_context(closing(filtering(shard))):
                if isinstance(rows, ReadingNotes):
                    notes = rows
                elif isinstance(rows, BadRows):
                    bad_rows.append(rows)
                elif isinstance(rows, RowSample):
                    totals.add(Measured(provenance=filtering.provenance, sample=rows))
                else:
                    counts.add(rows, rows.stays.astype(np.int64))
                    totals.add(rows.measured)
                    _write(rows, outputs)
            parts = tuple(() if output is None else output.finish() for output in outputs)
        notes.bad_rows = bad_rows
        return ShardResult(ShardWritten(counts, totals.measured, parts), notes)


def written_apart(writing: Writing) -> tuple[RowCounts, Measured, tuple[PartsOutput | None, ...]]:
    """Have the workers write all parts; what became of the rows, their totals, and the outputs."""
    reading = writing.reading
    dump = reading.dump
    first = _first_columns(dump, writing.work) if writing.work.writes else None
    begin = partial(PartsOutput, n_shards=len(dump.shards), first=first)
    about = writing.work.target.rows_per_file, writing.about
    outputs = tuple(
        None if place is None else begin(reading.staging, place, *about, columns=dump.table_columns)
        for place in writing.places
    )
    counts, totals = RowCounts(), MeasuredSum()
    places = tuple(None if output is None else output.place for output in outputs)
    shards = ShardReading.of(dump, reading.computing, whole=True)
    for _, written in reading.each(WriteParts(reading=shards, filtering=writing.work, places=places)):
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


ANY_POLICY = PlanColumns(compares=False)


def converted_to(path: Path, overwrite: bool) -> Destination:
    """Where the rows go."""
    return dataset(path, "⟦output⟧", overwrite)


def convert(
    request: ReadRequest,
    path: Path,
    *,
    join: ReadRequest | None = None,
    on: Sequence[str] = ("sample_id",),
    overwrite: bool = False,
    rows_per_file: int = 100_000,
    watch: Watch | None = None,
) -> Converted:
    """Write every row in canonical columns, in the order of the files named and the rows in them.

    join: another dump of the same tokens, whose rollout log-probs become old_log_probs, or rescored_log_probs where the
    dump has a trained policy; on: what tells its rows.
    """
    dump = open_dump(request, ANY_POLICY)
    partner = None
    if join is not None:
        column = RESCORED if dump.roles.old or dump.roles.current else SCORED
        partner = Partner.of(open_dump(join, ANY_POLICY), on, column)
    place = converted_to(path, overwrite)
    n_rows, unmatched, columns = Counter[str](), 0, dict[str, str]()
    with ExitStack() as stack:
        progress = stack.enter_context(watched(dump, watch))
        staging = stack.enter_context(Outputs())
        about = json.dumps({"version": __version__})
        table = dump.table_columns if is_table(place) and partner is None else None
        output = stack.enter_context(Output(staging, place, rows_per_file, about, columns=table))
        for shard, rows in canonical_rows(dump):
            paired = rows if partner is None else partner.with_partners(rows, shard.path)
            if progress is not None:
                progress(0, shard.n_bytes * (shard.path not in n_rows))
            n_rows[shard.path] += len(rows)
            unmatched += len(rows) - len(paired)
            columns = columns or {field.name: str(field.type) for field in paired.table.schema}
            if len(paired):
                output.write(paired)
        if join is not None and not output.rows:
            what = f"No row matches a row of {join.paths[0]}."
            raise DataError(what, f"They were joined on {', '.join(on)}; see ⟦on⟧.")
        if not output.rows:
            raise DataError(
                f"{dump.sources[0].path}: there are no rows to write.", "`rlcorr inspect` shows what it holds."
            )
        output.finish(about)
        staging.publish()
        return Converted(
            path=path,
            inputs=tuple(dump.inputs(n_rows)),
            columns=columns,
            rows=output.rows,
            n_bytes=output.n_bytes,
            notes=dump.notes,
            unmatched=None if partner is None else (unmatched, len(partner.rows) - len(partner.used)),
        )
