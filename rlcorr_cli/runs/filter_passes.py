"""What filter does with a dump, pass by pass: measure batch means, draw rows, correct rows.

Each pass returns a value that the next one takes: scales, then draws, then the corrected rows in the dump's order.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure.decisions import decide_batch, storable
from rlcorr_cli.measure.observe import BudgetBounds, Observation, observe
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling
from rlcorr_cli.reading.batch import Decision, Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows
from rlcorr_cli.reading.datasets import Output
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.names import PROMPTS, STEPS
from rlcorr_cli.reading.rows_out import corrected
from rlcorr_cli.reading.values import coded
from rlcorr_cli.reading.whole_rows import OriginalRows
from rlcorr_cli.results.objective import BatchObjective
from rlcorr_cli.results.written import Target
from rlcorr_cli.runs.analyze import measure, provenance_of, sampling_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import Reading, ReadingNotes, ShardReading
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.measured import Measured, MeasuredSum
from rlcorr_cli.totals.provenance import Provenance
from rlcorr_cli.totals.row_keys import GroupRows, Keys
from rlcorr_cli.totals.row_sample import RowSample
from rlcorr_cli.totals.totals import GroupKey
from rlcorr_cli.totals.view import CANONICAL, Numbers, factors

Scales = Mapping[GroupKey, float]
"""Group -> what its weights, or its coefficients, are divided by."""


@frozen(kw_only=True)
class FilteredRows:
    """One batch under the plan.

    stays: bool[B], rows that keep a token, or are kept all the same.  longest: tokens of the
    longest row, masked too.  written: the corrected rows that stay, or all where rows are yet to be drawn.  dropped:
    the others, where they are to be written.  Both are None where nothing is written.  steps: of each row as a code,
    and what codes stand for; None of a dump without steps.  groups: the rows of each prompt; None of a dump that names
    none.  The rest adds up.
    """

    written: OriginalRows | None
    dropped: OriginalRows | None
    stays: NDArray[np.bool_]
    longest: int
    row_weights: Floats
    steps: tuple[NDArray[np.int64], tuple[Any, ...]] | None
    groups: GroupRows | None
    measured: Measured
    rejected: Mapping[str, int]
    n_clamped: int


@dataclass(kw_only=True)
class RowCounts:
    """What became of rows, as it adds up, in place.  of_steps: the rows out of each step."""

    rows_in: int = 0
    rows_out: int = 0
    rows_dropped: int = 0
    n_clamped: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    of_steps: Counter[Any] = field(default_factory=Counter[Any])
    groups: GroupRows | None = None

    def add(self, rows: FilteredRows, times: NDArray[np.int64]) -> None:
        """Add one batch.  times: how often each of its rows is written."""
        self.rows_in += len(times)
        self.rows_out += int(times.sum())
        self.rows_dropped += int((times == 0).sum())
        self.n_clamped += rows.n_clamped
        self.rejected.update(rows.rejected)
        codes, steps = rows.steps or (np.zeros(0, np.int64), ())
        there = np.bincount(codes, minlength=len(steps)) > 0
        out = np.bincount(codes, times if steps else None, len(steps)).astype(int).tolist()
        self.of_steps.update({step: n for step, n, is_there in zip(steps, out, there, strict=True) if is_there})
        self._add_groups(rows.groups)

    def add_all(self, others: "RowCounts") -> None:
        """Add what became of another part of the dump."""
        self.rows_in += others.rows_in
        self.rows_out += others.rows_out
        self.rows_dropped += others.rows_dropped
        self.n_clamped += others.n_clamped
        self.rejected.update(others.rejected)
        self.of_steps.update(others.of_steps)
        self._add_groups(others.groups)

    def _add_groups(self, groups: GroupRows | None) -> None:
        if groups is not None:
            self.groups = groups if self.groups is None else self.groups + groups


def _groups(keys: Keys | None, stays: NDArray[np.bool_]) -> GroupRows | None:
    """The rows of each prompt in a batch; rows that name none (0) are of no group."""
    if keys is None:
        return None
    named = keys != 0
    return GroupRows.of(keys[named], np.ones(int(named.sum()), np.int64), stays[named].astype(np.int64))


@frozen(kw_only=True)
class FilterShard:
    """Shard -> its rows, filtered, batch by batch.

    scales: of weights; divisors: of coefficients.  writes: whether corrected rows are wanted at all.  measures: whether
    totals and coefficients are wanted; totals take most of the time.
    """

    reading: ShardReading
    observation: Observation
    budget_bounds: BudgetBounds
    provenance: Provenance
    scales: Scales | None
    divisors: Scales | None
    target: Target
    writes: bool
    sampling: Sampling
    measures: bool = True

    def __call__(self, shard: Shard) -> Generator[FilteredRows | BadRows | RowSample | ReadingNotes]:
        """Filter one shard's rows, in order; last come the sample of them, where it is measured, and what its reading
        leaves beside them, but rows set aside."""
        notes = ReadingNotes()
        sampler = RowSampler(self.sampling, self.reading.reader.roles)
        with devices.worker(self.reading.device):
            for rows in self.reading.checked_rows(shard, notes):
                if self.measures and not isinstance(rows, BadRows):
                    sampler.take(rows)
                yield rows if isinstance(rows, BadRows) else self._filtered(rows, shard)
        if self.measures:
            yield sampler.sample
        yield notes

    def _filtered(self, rows: CheckedRows, shard: Shard) -> FilteredRows:
        batch = rows.batch
        device, bounds = self.reading.device, self.budget_bounds
        observed = observe(batch, self.observation, device, bounds, decides=True) if self.measures else None
        decided = (
            observed.decision if observed is not None else decide_batch(batch, self.observation.plan, device, bounds)
        )
        assert decided is not None
        decision, n_clamped = self._written_weights(self._written_coefs(decided, rows), rows)
        stays = (decision.n_kept > 0) | self.target.keep_rejected
        written = dropped = None
        if self.writes:
            draws = self.target.resample is not None
            written = corrected(rows, decision, self.reading.reader.roles, weights=not draws)
            if self.target.rejected is not None:
                dropped = written.take(np.flatnonzero(~stays))
            if not draws and not stays.all():
                written = written.take(np.flatnonzero(stays))
        step = dict(self.reading.reader.roles.levels).get(STEPS[0])
        return FilteredRows(
            written=written,
            dropped=dropped,
            stays=stays,
            longest=int(np.diff(rows.offsets).max(initial=0)),
            row_weights=decision.row_weights,
            steps=None if step is None else coded(rows.data.column(step)),
            groups=_groups(batch.cluster_keys, stays) if self.reading.reader.roles.cluster in PROMPTS else None,
            measured=Measured(
                provenance=self.provenance,
                totals=None if observed is None else observed.totals,
                rows={shard.path: batch.n_rows},
                whole=None if observed is None else observed.whole,
            ),
            rejected={name: int(taken.sum()) for name, taken in decision.rejected.items()},
            n_clamped=n_clamped,
        )

    def _written_weights(self, decision: Decision, rows: CheckedRows) -> tuple[Decision, int]:
        """The decision with its weights as they are written, and how many had to be made smaller for that."""
        if not self.observation.plan.applies_weights:
            return replace(decision, weights=None, row_weights=(decision.n_kept > 0).astype(np.float64)), 0
        weights, row_weights = decision.weights, decision.row_weights
        if weights is None:
            return decision, 0
        if self.scales is not None:  # the plan divides weights by the mean of their batch
            divisor = _of_rows(self.scales, rows)
            weights, row_weights = weights / np.repeat(divisor, rows.batch.lengths), row_weights / divisor
        (weights, n_clamped), (row_weights, _) = storable(weights), storable(row_weights)
        return replace(decision, weights=weights, row_weights=row_weights), n_clamped

    def _written_coefs(self, decision: Decision, rows: CheckedRows) -> Decision:
        """The decision with its coefficients as they are written: under weights of batch mean 1 where the plan's are,
        and over the batch's divisor where that is asked for."""
        objective = self.target.objective
        if decision.coefs is None or objective is None:
            return decision
        divisor = np.ones(rows.batch.n_rows)
        if self.scales is not None and objective.takes_weights:
            divisor = divisor * _of_rows(self.scales, rows)
        if self.divisors is not None:
            divisor = divisor * _of_rows(self.divisors, rows)
        return replace(decision, coefs=decision.coefs / np.repeat(divisor, rows.batch.lengths))


def filter_work(
    dump: Dump, chosen: ChosenPlan, target: Target, *, computing: Computing, budget_bounds: BudgetBounds, writes: bool
) -> FilterShard:
    """What is done with each shard under a plan; measures first what weights and coefficients are divided by."""
    plan, objective = chosen.plan, target.objective
    observation = Observation(
        plans=(plan,),
        seed=None,
        objectives={} if objective is None else {plan: objective},
        has_advantages=dump.has_advantages,
    )
    # A pass of its own measures the batch means of weights, and the batch divisors of coefficients.
    takes_pass = plan.normalizes or target.divides_coefs
    alone = Reading.alone(dump, computing)
    totals = measure(alone, observation, bounds=budget_bounds).totals if takes_pass else None
    scales = divisors = None
    if totals is not None and plan.normalizes:
        batch_mean = CANONICAL if chosen.profile is None else chosen.profile.batch_mean
        scales = dict(zip(totals.keys, factors(totals, plan, batch_mean).tolist(), strict=True))
    if totals is not None and objective is not None and target.divides_coefs:
        # Rows are grouped by nothing but their batch here.  Where nothing of one is kept, every coefficient is 0.
        divisors = {
            key: BatchObjective(Numbers.of_plan(totals, plan, at), objective).divisor or 1.0
            for at, key in enumerate(totals.keys)
        }
    return FilterShard(
        reading=ShardReading.of(dump, computing, whole=True, streams=True),
        observation=observation,
        budget_bounds=budget_bounds,
        provenance=provenance_of(dump, observation, budget_bounds),
        scales=scales,
        divisors=divisors,
        target=target,
        writes=writes,
        sampling=sampling_of(dump, plan.mode),
    )


def _of_rows(scales: Scales, rows: CheckedRows) -> Floats:
    """Each row's own, f64[B]."""
    return np.array([scales[key] for key in rows.batch.group_keys])[rows.batch.group_index]


def row_draws(dump: Dump, work: FilterShard, computing: Computing) -> NDArray[np.int64] | None:
    """How often each row is drawn, with replacement and in proportion to its weight; None where none is."""
    target = work.target
    if target.resample is None:
        return None
    weighing = replace(work, reading=work.reading.restarted(), writes=False, measures=False)
    row_weights = [rows.row_weights for rows in filtered_rows(Reading.alone(dump, computing), weighing)]
    weights = np.concatenate(row_weights or [np.zeros(0)])
    if not weights.sum() > 0:
        raise DataError("No row has any weight, so none can be drawn.", "Loosen the plan: it rejects every sequence.")
    return np.random.default_rng(target.seed).multinomial(target.resample, weights / weights.sum())


def filtered_rows(
    reading: Reading, work: FilterShard, *, outputs: Sequence[Output | None] = (), totals: MeasuredSum | None = None
) -> Generator[FilteredRows]:
    """The dump's batches in order.  outputs: told what share of the input they stand for.  totals: to which the samples
    of shards' rows are added."""
    ends = np.cumsum([shard.n_bytes for shard in reading.dump.shards])
    for shard, rows in reading.stream(work):
        if isinstance(rows, RowSample):
            if totals is not None:
                totals.add(Measured(provenance=work.provenance, sample=rows))
            continue
        for output in outputs:
            if output is not None:
                output.done = float(ends[shard.index] / (ends[-1] or 1))
        yield rows
