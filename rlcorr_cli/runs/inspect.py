"""inspect(): how a dump is read, and what is wrong with it.  Bad rows are counted, never an end."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rlcorr_cli.causes.diagnosis import standing
from rlcorr_cli.causes.of_tokens import COPIES
from rlcorr_cli.causes.search import search
from rlcorr_cli.errors import NoTrainedPolicy
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.inspected import DumpCounts, Inspected, Values
from rlcorr_cli.runs.analyze import opened, plan_columns, sampling_of
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import OpenDump, ShardReading, ShardWork, anomalies_of, check_quarantine, one_reading
from rlcorr_cli.totals.row_sample import RowSample, SampleSum


@frozen(kw_only=True)
class InspectShard(ShardWork[tuple[DumpCounts, RowSample | None]]):
    """Shard -> what is counted of its sound rows, and a sample of them.  sampling: how rows are sampled, in which the
    cause of the gap is sought; None where there is but one policy."""

    sampling: Sampling | None = None

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> tuple[DumpCounts, RowSample | None]:
        """Look at one shard."""
        tally = DumpCounts()
        sampler = None if self.sampling is None else RowSampler(self.sampling, self.reading.reader.roles)
        for rows in batches:
            tally += _tally(rows, self.reading.reader.roles)
            if sampler is not None:
                sampler.take(rows)
        return tally, None if sampler is None else sampler.sample


def ignoring_bad_rows(request: ReadRequest) -> ReadRequest:
    """The same reading past any number of bad rows."""
    policy = request.bad_rows
    action = "skip" if policy.stops else policy.action
    return replace(request, bad_rows=replace(policy, action=action, max_fraction=1.0))


def inspect(request: ReadRequest, chosen: ChosenPlan, computing: Computing) -> Inspected:
    """Read a dump once, past its bad rows.  request: as of `ignoring_bad_rows`."""
    lacks = ""
    try:
        dump = opened(request, chosen)
    except NoTrainedPolicy as error:  # a framework's file may hold the rollout policy alone
        lacks = f"{error.message} {error.hint}"
        dump = open_dump(request, replace(plan_columns(request, chosen), compares=False, needed=()))
    check_quarantine(dump)
    anomalies = () if lacks else anomalies_of(dump, computing)
    tally = DumpCounts()
    sampling = None if lacks else sampling_of(dump, chosen.plan.mode)
    work = InspectShard(reading=ShardReading.of(dump, computing), sampling=sampling)
    samples_of_shards = SampleSum()
    with one_reading(OpenDump(dump=dump, computing=computing)) as reading:
        for _, (of_shard, sample) in reading.each(work):
            tally += of_shard
            if sample is not None:
                samples_of_shards.add(sample)
        cause, facts = None, list[str]()
        if (sample := samples_of_shards.sample) is not None:
            diagnosis = search(sample).diagnosis
            anomalies, cause = standing(anomalies, diagnosis)
            facts = [fact.sentence for fact in diagnosis.facts if fact.name == COPIES]
        step = {} if dump.step is None else {"step": dump.step}  # read as `analyze` reads it, which follows steps
        return Inspected(
            inputs=tuple(replace(file, columns={**file.columns, **step}) for file in reading.inputs),
            schema={field.name: str(field.type) for field in next(iter(dump.all_columns.values()))},
            columns={**dump.columns, **dump.marks, **dump.of_rows},
            uses=dump.uses,
            tally=tally,
            is_partial=any(index.losses for index in dump.indexes.values()),
            bad_rows=reading.n_bad_rows,
            problems=reading.problems,
            anomalies=anomalies,
            cause=cause,
            notes=(*((lacks,) if lacks else ()), *dump.notes, *reading.log.counts.changed_notes, *facts),
        )


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
