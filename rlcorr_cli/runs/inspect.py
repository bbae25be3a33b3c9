"""inspect(): how a dump is read, what is wrong with it, and where it is worst.  Bad rows are counted, never an end."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcorr_cli.causes.anomalies import find_anomalies
from rlcorr_cli.causes.diagnosis import standing
from rlcorr_cli.causes.search import search
from rlcorr_cli.errors import DataError, NoTrainedPolicy, UsageError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure.decisions import rule_results
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling
from rlcorr_cli.measure.tokens import trained_policies
from rlcorr_cli.measure.worst import worst
from rlcorr_cli.places import Place
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.peek import TEXTS, Found, find_row, samples
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.reading.row_places import all_resolved
from rlcorr_cli.reading.token_context import row_id
from rlcorr_cli.results.inspected import DumpCounts, Inspected, OneRow, RejectionVote, Values, Worst
from rlcorr_cli.runs.analyze import opened, plan_columns, sampling_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.reading import ShardReading, ShardWork, check_quarantine, one_reading
from rlcorr_cli.totals.row_sample import RowSample, SampleSum


@dataclass(frozen=True)
class Candidate:
    """A sequence, or a token (from 0 among the row's valid ones), that may be among the worst."""

    place: Place
    sample_id: str | None
    n_tokens: int
    token: int | None = None


class _Worst:
    """The n largest values of a stream, the earlier first among equals, in a heap."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._heap: list[tuple[float, int, Candidate]] = []
        self._count = 0

    def offer(self, value: float, candidate: Candidate) -> None:
        """Take the value in if it is among the largest so far."""
        self._count += 1
        push = heapq.heappushpop if len(self._heap) == self._n else heapq.heappush
        push(self._heap, (value, -self._count, candidate))  # the rank settles ties: candidates are never compared

    def extend(self, ranked: Iterable[tuple[float, Candidate]]) -> None:
        """Offer each, in order."""
        for value, candidate in ranked:
            self.offer(value, candidate)

    @property
    def ranked(self) -> tuple[tuple[float, Candidate], ...]:
        """Largest first."""
        return tuple((value, candidate) for value, _, candidate in sorted(self._heap, reverse=True))


@dataclass(frozen=True, kw_only=True)
class ShardInspection:
    """What is seen in one shard's sound rows.  sequences, tokens: its worst, largest first."""

    tally: DumpCounts
    sequences: tuple[tuple[float, Candidate], ...]
    tokens: tuple[tuple[float, Candidate], ...]
    sample: RowSample | None


@dataclass(frozen=True, kw_only=True)
class InspectShard(ShardWork[ShardInspection]):
    """Shard -> what is seen in it.  n_worst: how many of its worst sequences and tokens to name, by which measure.
    sampling: of the rows in which the cause of the gap is sought; None where there is but one policy."""

    n_worst: int
    by: str
    sampling: Sampling | None = None

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> ShardInspection:
        """Look at one shard."""
        sequences, tokens = _Worst(self.n_worst), _Worst(self.n_worst)
        tally = DumpCounts()
        sampler = None if self.sampling is None else RowSampler(self.sampling, self.reading.reader.roles)
        for rows in batches:
            tally += _tally(rows, self.reading.reader.roles)
            if sampler is not None:
                sampler.take(rows)
            if self.n_worst:
                self._offer(rows, sequences, tokens)
        return ShardInspection(
            tally=tally,
            sequences=sequences.ranked,
            tokens=tokens.ranked,
            sample=None if sampler is None else sampler.sample,
        )

    def _offer(self, rows: CheckedRows, sequences: _Worst, tokens: _Worst) -> None:
        largest = worst(rows.batch, self.by, self.n_worst, self.reading.device)
        lengths = rows.batch.lengths

        def candidate(row: int, token: int | None = None) -> Candidate:
            return Candidate(rows.places[row], row_id(rows, self.reading.reader.roles, row), int(lengths[row]), token)

        for row, value in zip(largest.rows.tolist(), largest.values.tolist(), strict=True):
            sequences.offer(value, candidate(row))
        for (row, token), value in zip(largest.at.tolist(), largest.token_values.tolist(), strict=True):
            tokens.offer(value, candidate(row, token))


def ignoring_bad_rows(request: ReadRequest) -> ReadRequest:
    """The same reading past any number of bad rows."""
    policy = request.bad_rows
    action = "skip" if policy.stops else policy.action
    return replace(request, bad_rows=replace(policy, action=action, max_fraction=1.0))


def inspect(
    request: ReadRequest, chosen: ChosenPlan, computing: Computing, *, n_worst: int = 0, by: str = "k3"
) -> Inspected:
    """Read a dump once; n_worst: how many of the worst sequences and tokens to name."""
    request = ignoring_bad_rows(request)
    dump, lacks = _opened_for_looking(request, chosen)
    if lacks and n_worst:
        raise UsageError("--worst ranks rows by the gap between two policies, and the dump has one.", lacks)
    check_quarantine(dump)
    anomalies = () if lacks else find_anomalies(samples(dump))
    sequences, tokens = _Worst(n_worst), _Worst(n_worst)
    tally = DumpCounts()
    sampling = None if lacks else sampling_of(dump, chosen.plan.mode)
    work = InspectShard(reading=ShardReading.of(dump, computing), n_worst=n_worst, by=by, sampling=sampling)
    samples_of_shards = SampleSum()
    with one_reading(dump, computing) as reading:
        for _, inspection in reading.each(work):
            tally += inspection.tally
            if inspection.sample is not None:
                samples_of_shards.add(inspection.sample)
            sequences.extend(inspection.sequences)
            tokens.extend(inspection.tokens)
        cause = None
        if (sample := samples_of_shards.sample) is not None:
            anomalies, cause = standing(anomalies, search(sample).diagnosis)
        step = {} if dump.step is None else {"step": dump.step}  # read as `analyze` reads it, which follows steps
        return Inspected(
            inputs=tuple(replace(file, columns={**file.columns, **step}) for file in reading.inputs),
            schema={field.name: str(field.type) for field in next(iter(dump.all_columns.values()))},
            columns={**dump.columns, **dump.marks},
            tally=tally,
            bad_rows=reading.n_bad_rows,
            problems=reading.problems,
            anomalies=anomalies,
            cause=cause,
            notes=(*((lacks,) if lacks else ()), *dump.notes),
            by=by if n_worst else None,
            worst_sequences=_named(sequences.ranked),
            worst_tokens=_named(tokens.ranked),
        )


def _opened_for_looking(request: ReadRequest, chosen: ChosenPlan) -> tuple[Dump, str]:
    """The dump, and what it lacks to be compared: a framework's file may hold the rollout policy alone."""
    try:
        return opened(request, chosen), ""
    except NoTrainedPolicy as error:
        columns = replace(plan_columns(request, chosen), compares=False, needed=())
        return open_dump(request, columns), f"{error.message} {error.hint}"


def _tally(rows: CheckedRows, roles: Roles) -> DumpCounts:
    batch = rows.batch
    lengths = batch.lengths
    known, counts = np.unique(lengths[lengths > 0], return_counts=True)
    policies = (
        (roles.rollout, batch.rollout_logp if batch.unscored is None else batch.rollout_logp[~batch.unscored]),
        (roles.old, batch.old_logp),
        (roles.current, batch.current_logp),
    )
    log_probs = {name: values for name, values in policies if name is not None and values is not None}
    values = {
        name: Values(
            n=len(x),
            min=float(x.min()),
            max=float(x.max()),
            total=float(x.sum(dtype=np.float64)),
            zeros=int((x == 0).sum()),
        )
        for name, x in log_probs.items()
        if len(x)
    }
    lengths_of = Counter(dict(zip(known.tolist(), counts.tolist(), strict=True)))
    return DumpCounts(int((lengths == 0).sum()), int(batch.n_masked.sum()), lengths_of, values)


def _named(ranked: Sequence[tuple[float, Candidate]]) -> tuple[Worst, ...]:
    """The worst with their places as reports show them."""
    places = all_resolved([candidate.place for _, candidate in ranked])
    return tuple(
        Worst(
            value=value,
            place=place.text,
            sample_id=candidate.sample_id,
            n_tokens=candidate.n_tokens,
            token=candidate.token,
        )
        for (value, candidate), place in zip(ranked, places, strict=True)
    )


def one_row(request: ReadRequest, chosen: ChosenPlan, computing: Computing, name: str) -> OneRow:
    """One sequence by its sample_id or number, and what the plan says about it."""
    plan, dump = chosen.plan, opened(ignoring_bad_rows(request), chosen)
    found = find_row(dump, name)
    if isinstance(found.read, BadRows):
        return _bad(found, found.read, dump)
    rows = found.read
    device, budget_bounds = devices.resolve(computing.device), search_budgets(dump, plan, computing).bounds
    batch, valid = rows.batch, rows.valid
    training_logp, _ = trained_policies(batch, plan.mode)
    observation = Observation(plans=(plan,), seed=None)
    decision = observe(batch, observation, device, budget_bounds, decides=True).decision
    weights = None if decision is None else decision.weights
    says = [
        RejectionVote(rule.name, rule.rule, None if rule.scope == "token" else float(values[0]), tuple(keep.tolist()))
        for rule, values, keep in rule_results(batch, plan, device, budget_bounds)
    ]
    n = int(rows.offsets[-1])
    return OneRow(
        place=found.place,
        facts=_facts(found.values),
        texts=_texts(found.values),
        tokens=_tuple(found.tokens(n)),
        valid=(True,) * n if valid is None else tuple(valid.tolist()),
        log_probs={column: tuple(found.values[column]) for column in dump.roles.log_probs},
        log_ratios=tuple((training_logp.astype(np.float64) - batch.rollout_logp).tolist()),
        weights=None if weights is None else tuple(weights.tolist()),
        says=tuple(says),
    )


def _bad(found: Found, aside: BadRows, dump: Dump) -> OneRow:
    """A row that cannot be compared, as it stands."""
    if not aside.reasons:
        raise DataError(f"{found.place} cannot be shown.", "Look at the file itself.")
    lists = {name: found.values.get(name) for name in dump.roles.log_probs}
    log_probs = {name: tuple(value) for name, value in lists.items() if isinstance(value, list)}
    mask = found.values.get(dump.roles.mask) if dump.roles.mask else None
    n = max([len(values) for values in log_probs.values()], default=0)
    valid = tuple(value == 1 for value in mask) if isinstance(mask, list) else (True,) * n
    return OneRow(
        place=found.place,
        facts=_facts(found.values),
        texts=_texts(found.values),
        tokens=_tuple(found.tokens(n)),
        valid=valid,
        log_probs=log_probs,
        problem=aside.reasons[0],
    )


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in TEXTS and not isinstance(value, (list, dict))}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: values[name] for name in TEXTS if isinstance(values.get(name), str)}


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
