"""filter_dump(): the corrected dataset.

One pass reads, decides and writes, shard by shard in the dump's order.  A plan that divides weights by a batch mean,
and a resampling, first take a pass that only measures, a budget two that find its bound.  Rows in = rows out + rows
dropped + rows set aside, checked at the end.
"""

import json
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli import __version__
from rlcorr_cli.batch import GroupKey, Shard
from rlcorr_cli.core import device as devices
from rlcorr_cli.core.decisions import Verdict, verdict
from rlcorr_cli.core.observe import Observation, layout_of, observe
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.io.batches import CheckedRows, SetAside
from rlcorr_cli.io.corrected import Decided, Rows, check_added, chosen, corrected, drawn
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.outputs import Output, check_target, create
from rlcorr_cli.io.peek import samples
from rlcorr_cli.io.readers import read_checked
from rlcorr_cli.pipeline.analyze import Progress, Watch, measure, opened, reported, watched
from rlcorr_cli.pipeline.bad_rows import BadRowLog, bad_row_log, check_quarantine
from rlcorr_cli.pipeline.budget_search import Spending, spending
from rlcorr_cli.pipeline.scan import Computing, check_rereadable, run_of
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.quality.anomalies import suspect
from rlcorr_cli.report.filtered import Filtered, Target
from rlcorr_cli.requests import ReadRequest
from rlcorr_cli.totals.histogram import Floats, Histogram
from rlcorr_cli.totals.measured import Measured, gather
from rlcorr_cli.totals.normalize import factors


@dataclass(frozen=True)
class _Done:
    """One portion.  stays: which of its rows do, drawing apart.  rows: those, or all where rows are to be drawn; apart:
    the others, where they are to be written.  None where nothing is.  The rest adds up."""

    rows: Rows | None
    apart: Rows | None
    stays: NDArray[np.bool_]
    row_weights: Floats
    measured: Measured
    rejected: Mapping[str, int]
    distances: Mapping[str, Histogram]


@dataclass
class _Tally:
    """What adds up over portions."""

    measured: Measured = field(default_factory=Measured)
    rows_in: int = 0
    rows_out: int = 0
    rows_dropped: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    distances: dict[str, Histogram] = field(default_factory=dict[str, Histogram])

    def add(self, done: _Done) -> None:
        """All but where the rows went."""
        self.measured = gather((self.measured, done.measured))
        self.rows_in += len(done.stays)
        self.rejected.update(done.rejected)
        for name, histogram in done.distances.items():
            self.distances[name] = self.distances.get(name, Histogram.empty()) + histogram


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
    plan, dump = chosen.plan, opened(request, chosen)
    _check(dump, plan, target)
    suspected = suspect(samples(dump))
    observation = Observation(plan, has_current=dump.roles.current is not None, seed=None)
    computing = computing or Computing()
    run = _Run(dump, observation, computing, target, spending(dump, plan, computing))
    run.scale()
    draws = None if target.resample is None else run.draw(target.resample, target.seed)
    tally = _Tally()
    with ExitStack() as stack:
        progress, bad = stack.enter_context(watched(dump, watch)), stack.enter_context(bad_row_log(request.bad_rows))
        outputs = [
            None if path is None else stack.enter_context(create(path, target.rows_per_file, json.dumps(_about(plan))))
            for path in (target.path, target.rejected)
        ]
        with closing(run.portions(outputs, progress, bad)) as portions:
            for done in portions:
                _write(done, tally, draws, *outputs)
        found = reported(dump, chosen, run.observation, tally.measured, spent=run.spent, log=bad, suspected=suspected)
        report = replace(found, seconds=time.perf_counter() - started)
        done = Filtered(
            report,
            target,
            tally.rows_in + bad.counts.n_rows,
            tally.rows_out,
            tally.rows_dropped,
            bad.counts.n_rows,
            request.bad_rows.quarantine,
            0,
            tally.rejected,
            tally.distances,
        )
        _finish(done, *outputs)
        bad.finish()
        return replace(done, n_bytes=outputs[0].n_bytes if outputs[0] else 0)


def _check(dump: Dump, plan: Plan, target: Target) -> None:
    """Everything that can be refused before the scan."""
    inputs = [source.path for source in dump.sources]
    for path in (target.path, target.rejected):
        if path is not None:
            check_target(path, inputs, target.overwrite)
    quarantine = dump.request.bad_rows.quarantine
    check_quarantine(dump, target.overwrite)
    check_added(dump.available)
    if quarantine is not None and quarantine in (target.path, target.rejected):
        raise UsageError(f"{quarantine} cannot be both outputs.", "Name another --quarantine.")
    if target.path is not None and target.path == target.rejected:
        raise UsageError(f"{target.path} cannot be both outputs.", "Name another --rejected-output.")
    if target.rejected is not None and target.keep_rejected:
        raise UsageError("--rejected keep leaves nothing for --rejected-output.", "Use one of the two.")
    if target.resample is not None and (target.keep_rejected or target.rejected is not None):
        raise UsageError("--resample draws rows; what it leaves out is not kept apart.", "Use --resample alone.")
    if plan.batched or target.resample is not None:
        check_rereadable(dump)


@dataclass
class _Run:
    """One dump under one plan: passes over it.

    spent: what its budgets let stay.  scales: what the weights of each leaf are divided by.
    """

    dump: Dump
    observation: Observation
    computing: Computing
    target: Target
    spent: Spending
    scales: Mapping[GroupKey, float] | None = None

    def scale(self) -> None:
        """Measure batch means first, where the plan divides by them."""
        plan = self.observation.plan
        if plan.normalizes and plan.weighting is not None:
            measured, layout = measure(self.dump, self.observation, self.computing, self.spent.cuts)
            self.scales = factors(measured.leaves, layout, plan.weighting.scope == "token", self.dump.by_batch)

    def draw(self, n_rows: int, seed: int) -> NDArray[np.int64]:
        """How often each row is drawn: n_rows in all, with replacement, in proportion to the rows' weights."""
        weights = np.concatenate([done.row_weights for done in self.portions([])] or [np.zeros(0)])
        if not weights.sum() > 0:
            raise DataError("No row has any weight to be drawn by.", "Loosen the plan: it rejects every sequence.")
        return np.random.default_rng(seed).multinomial(n_rows, weights / weights.sum())

    def portions(
        self, outputs: Sequence[Output | None], progress: Progress | None = None, bad: BadRowLog | None = None
    ) -> Generator[_Done]:
        """The dump's portions in order, with corrected rows if there is any output to write them to."""
        writes = any(output is not None for output in outputs)
        run = run_of(self.dump, self.computing)
        tokens = layout_of(self.observation).sums.index("tokens")
        weighted = self.observation.plan.weighting is not None

        def work(shard: Shard) -> Iterator[_Done | SetAside]:
            with devices.worker(run.device, sparing=True):
                for portion in read_checked(self.dump, shard, run.batch_tokens, run.state, whole=True):
                    run.engine.check()
                    if isinstance(portion, SetAside):
                        yield portion
                        continue
                    observed = observe(portion.batch, self.observation, run.device, self.spent.cuts)
                    measured = Measured(observed.groups, rows={shard.path: portion.batch.n_rows})
                    yield self._one(portion, verdict(portion.batch, observed, weighted), measured, writes)

        shards = self.dump.shards
        total, so_far = sum(shard.n_bytes for shard in shards), 0
        for shard, results in zip(shards, run.engine.stream(shards, work), strict=True):
            so_far += shard.n_bytes
            n_tokens = 0.0
            for output in outputs:
                if output is not None:
                    output.done = so_far / total if total else 0.0
            for done in results:
                if isinstance(done, SetAside):
                    if bad is not None:
                        bad.add(shard, done)
                    continue
                n_tokens += sum(leaf.sums[tokens] for leaf in done.measured.leaves.values())
                yield done
            if progress is not None:
                progress(int(n_tokens), shard.n_bytes)

    def _one(self, portion: CheckedRows, found: Verdict, measured: Measured, writes: bool) -> _Done:
        weights, row_weights, batch = found.weights, found.row_weights, portion.batch
        if self.scales is not None and weights is not None:
            divisor = np.array([self.scales[key] for key in batch.keys])[batch.leaf]
            weights, row_weights = weights / np.repeat(divisor, np.diff(batch.offsets)), row_weights / divisor
        stays = (found.n_kept > 0) | self.target.keep_rejected
        rows = apart = None
        if writes:
            with np.errstate(invalid="ignore"):
                kept = found.n_kept / found.n_valid
            given = (weights, row_weights) if self.target.resample is None else (None, None)
            decided = Decided(given[0], found.keep, given[1], kept, found.rejected)
            rows = corrected(portion, decided, self.dump.roles)
            if self.target.rejected is not None:
                apart = chosen(rows, np.flatnonzero(~stays))
            if self.target.resample is None and not stays.all():
                rows = chosen(rows, np.flatnonzero(stays))
        rejected = {name: int(taken.sum()) for name, taken in found.rejected.items()}
        return _Done(rows, apart, stays, row_weights, measured, rejected, found.distances)


def _write(
    done: _Done, tally: _Tally, draws: NDArray[np.int64] | None, kept: Output | None, apart: Output | None
) -> None:
    """Send one portion's rows where they belong."""
    times, rows = done.stays.astype(np.int64), done.rows
    if draws is not None:
        times = draws[tally.rows_in : tally.rows_in + len(times)]
        rows = None if rows is None else drawn(rows, times)
    tally.add(done)
    tally.rows_out += int(times.sum())
    tally.rows_dropped += int((times == 0).sum())
    for output, some in ((kept, rows), (apart, done.apart)):
        if output is not None and some is not None:
            output.write(some)


def _finish(done: Filtered, kept: Output | None, apart: Output | None) -> None:
    """Hold the accounts against each other, then give the outputs their names."""
    for output, rows in ((kept, done.rows_out), (apart, done.rows_dropped)):
        if output is not None and output.rows != rows:
            raise AssertionError(f"{output.path}: {output.rows} rows written, {rows} meant to be")
    gone = done.rows_dropped + done.rows_bad
    if done.target.resample is None and done.rows_in != done.rows_out + gone:
        raise AssertionError(f"{done.rows_in} rows in, {done.rows_out} out, {gone} not")
    about = {**_about(done.report.plan), "counts": done.report.whole.counts, **done.rows}
    for output in (kept, apart):
        if output is not None and (output.rows or output is kept):
            output.finish(json.dumps(about))


def _about(plan: Plan) -> dict[str, Any]:
    return {"version": __version__, "plan": plan.to_dict()}
