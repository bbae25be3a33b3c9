"""filter_dump(): the corrected dataset.

One pass reads, decides and writes, shard by shard in the dump's order.  A plan that divides weights by a batch mean,
and a resampling, first take a pass that only measures, a budget two that find its bound.  Rows in = rows out + rows
dropped + rows set aside, checked at the end.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli import __version__
from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.core.correct import MAX_WEIGHT
from rlcorr_cli.core.observe import layouts_of
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.io.corrected import check_added, drawn
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.outputs import Output, dataset, is_table
from rlcorr_cli.io.peek import samples
from rlcorr_cli.pipeline.analyze import Watch, opened, run_totals, watched
from rlcorr_cli.pipeline.bad_rows import BadRowLog, bad_row_log, check_quarantine, quarantine
from rlcorr_cli.pipeline.budget_search import search_budgets
from rlcorr_cli.pipeline.filter_passes import FilteredRows, filter_work, filtered_rows, row_draws
from rlcorr_cli.pipeline.scan import Computing, check_rereadable
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.quality.anomalies import find_anomalies
from rlcorr_cli.report.filtered import Filtered, Target
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.run_totals import report_of
from rlcorr_cli.requests import ReadRequest
from rlcorr_cli.totals.measured import Gathering


@dataclass
class _Tally:
    """What adds up over batches, in place."""

    totals: Gathering = field(default_factory=Gathering)
    rows_in: int = 0
    rows_out: int = 0
    rows_dropped: int = 0
    n_clamped: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])

    def add(self, batch: FilteredRows, times: NDArray[np.int64]) -> None:
        """A batch.  times: how often each of its rows is written."""
        self.totals.add(batch.measured)
        self.n_clamped += batch.n_clamped
        self.rows_in += len(times)
        self.rows_out += int(times.sum())
        self.rows_dropped += int((times == 0).sum())
        self.rejected.update(batch.rejected)


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
    plan, dump = chosen.plan, opened(request, chosen, target.objective)
    _check(dump, plan, target)
    anomalies = find_anomalies(samples(dump))
    computing = computing or Computing()
    budgets = search_budgets(dump, plan, computing)
    writes = target.path is not None or target.rejected is not None
    work = filter_work(dump, chosen, target, computing, budgets.bounds, writes=writes)
    draws = row_draws(dump, work, computing)
    tally = _Tally()
    with ExitStack() as stack:
        progress = stack.enter_context(watched(dump, watch))
        staging = stack.enter_context(Staging())
        log = stack.enter_context(bad_row_log(dump, staging, overwrite=target.overwrite))
        kept, dropped = outputs = [
            place and stack.enter_context(_output(place, staging, dump, plan, target))
            for place in (kept_rows(target), rejected_rows(target))
        ]
        of_input = outputs if draws is None else ()
        batches = filtered_rows(dump, work, computing, outputs=of_input, progress=progress, log=log)
        with closing(batches):
            for batch in batches:
                _write(batch, tally, draws, kept, dropped)
        more_notes = (*_unused_weights(plan, target), *_clamped(tally.n_clamped), *_losses(outputs))
        chosen = replace(chosen, notes=(*chosen.notes, *more_notes))
        measured = replace(
            tally.totals.measured, provenance=work.provenance, covered=frozenset(shard.id for shard in dump.shards)
        )
        run = run_totals(dump, chosen, measured, budgets=budgets, log=log, anomalies=anomalies)
        report = report_of(run, layouts_of(work.observation))
        report = replace(report, notes=(*report.notes, *_coefs(report, target)))
        filtered = Filtered(
            report=replace(report, seconds=time.perf_counter() - started),
            target=target,
            rows_in=tally.rows_in + log.counts.n_rows,
            rows_out=tally.rows_out,
            rows_dropped=tally.rows_dropped,
            rows_bad=log.counts.n_rows,
            quarantine=request.bad_rows.quarantine,
            n_bytes=0,
            rejected_rows=tally.rejected,
        )
        _finish(filtered, kept, dropped, log)
        staging.publish()
        return replace(filtered, n_bytes=kept.n_bytes if kept else 0)


def _output(place: Destination, staging: Staging, dump: Dump, plan: Plan, target: Target) -> Output:
    columns = dump.table_columns if is_table(place) else None
    return Output(staging, place, target.rows_per_file, json.dumps(_about(plan)), columns=columns)


def destinations(request: ReadRequest, target: Target) -> list[Destination]:
    """Where a run with these arguments writes."""
    places = (kept_rows(target), rejected_rows(target), quarantine(request.bad_rows, target.overwrite))
    return [place for place in places if place is not None]


def kept_rows(target: Target) -> Destination | None:
    """Where the corrected rows go, if anywhere."""
    return None if target.path is None else dataset(target.path, "-o", target.overwrite)


def rejected_rows(target: Target) -> Destination | None:
    """Where the rows without a token left go, if anywhere."""
    return None if target.rejected is None else dataset(target.rejected, "--rejected-output", target.overwrite)


def _unused_weights(plan: Plan, target: Target) -> tuple[str, ...]:
    """A note where weights are not written because the plan's loss does not apply them."""
    if plan.weighting is None or plan.applies_weights or target.unused_weights:
        return ()
    reason = "in bypass mode PPO's ratio current / rollout carries the correction, and a weight would count it twice"
    return (f"The weights are measured, not written: {reason}. --write-unused-weights writes them.",)


def _clamped(n_tokens: int) -> tuple[str, ...]:
    """A note where weights were too large to be written down."""
    if not n_tokens:
        return ()
    written = f"written as {MAX_WEIGHT:.3g}, the largest float32"
    return (f"Tokens whose weight is {written}, for being larger: {n_tokens:,}; a bound (--is-high) avoids this.",)


def _coefs(report: Report, target: Target) -> tuple[str, ...]:
    """A note on what the coefficients are divided by, or still to be."""
    made = report.objective
    if made is None:
        return ()
    name, divisor = made.objective.name, made.objective.divisor
    if target.divides_coefs:
        return (f"rlcorr_coef is {name}'s, divided by the {divisor} of its batch.",)
    (first, *others) = made.batches
    number = f"the {first.divisor:,.0f} {divisor}" if not others else f"the {divisor}"
    where = "" if not others else ": their numbers are in the file's metadata and in the JSON report"
    return (f"rlcorr_coef is {name}'s, to be divided by {number} of its batch{where}.",)


def _losses(outputs: Sequence[Output | None]) -> tuple[str, ...]:
    """Notes on values that JSON lines have no form for."""
    losses = [output.losses for output in outputs if output is not None]
    n_numbers, n_texts = sum(loss.numbers for loss in losses), sum(loss.texts for loss in losses)
    numbers = f"Numbers that are NaN or infinite, which JSON has not, are written as null: {n_numbers:,}."
    texts = f"Texts that are not UTF-8 are written with their other bytes as \\x..: {n_texts:,}; .parquet keeps them."
    return (numbers,) * bool(n_numbers) + (texts,) * bool(n_texts)


def _check(dump: Dump, plan: Plan, target: Target) -> None:
    """Everything that can be refused before the scan."""
    check_quarantine(dump)
    check_added(dump.available)
    if any(is_table(place) for place in destinations(dump.request, target)):
        _ = dump.table_columns  # an error, if files cannot be written as one
    if target.rejected is not None and target.keep_rejected:
        raise UsageError("--rejected keep leaves nothing for --rejected-output.", "Use one of the two.")
    if target.resample is not None and (target.keep_rejected or target.rejected is not None):
        raise UsageError("--resample draws rows; what it leaves out is not kept apart.", "Use --resample alone.")
    if target.resample is not None and target.objective is not None:
        raise UsageError("--resample draws rows by their weights, which --coef has in it.", "Use one of the two.")
    if plan.batched or target.resample is not None or target.divides_coefs:
        check_rereadable(dump)


def _write(
    batch: FilteredRows, tally: _Tally, draws: NDArray[np.int64] | None, kept: Output | None, dropped: Output | None
) -> None:
    """Send one batch's rows where they belong."""
    times = batch.stays.astype(np.int64)
    if draws is not None:
        times = draws[tally.rows_in : tally.rows_in + len(times)]
    tally.add(batch, times)
    if kept is not None and batch.written is not None:
        for rows in (batch.written,) if draws is None else drawn(batch.written, times, batch.longest):
            if draws is not None:
                kept.done = (kept.rows + len(rows)) / int(draws.sum())
            kept.write(rows)
    if dropped is not None and batch.dropped is not None:
        dropped.write(batch.dropped)


def _finish(filtered: Filtered, kept: Output | None, dropped: Output | None, log: BadRowLog) -> None:
    """Hold the accounts against each other, then have the outputs ready to be published."""
    for output, rows in ((kept, filtered.rows_out), (dropped, filtered.rows_dropped)):
        if output is not None and output.rows != rows:
            raise AssertionError(f"{output.destination.path}: {output.rows} rows written, {rows} meant to be")
    gone = filtered.rows_dropped + filtered.rows_bad
    if filtered.target.resample is None and filtered.rows_in != filtered.rows_out + gone:
        raise AssertionError(f"{filtered.rows_in} rows in, {filtered.rows_out} out, {gone} not")
    about = {**_about(filtered.report.plan), "counts": filtered.report.whole.counts, **filtered.rows}
    about |= {} if filtered.coefs is None else {"coefs": filtered.coefs}
    if kept is not None:
        kept.finish(json.dumps(about))
    if dropped is not None:
        dropped.finish_or_remove(json.dumps(about))
    log.finish()


def _about(plan: Plan) -> dict[str, Any]:
    return {"version": __version__, "plan": plan.to_dict()}
