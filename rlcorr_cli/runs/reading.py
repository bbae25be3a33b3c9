"""One reading of a dump, for every kind of result: `one_reading` is the frame, `Reading.each` the loop.

Before it, the first rows of the files are looked at for what whole files show (`anomalies_of`).

Work on a shard is a ShardWork: a frozen dataclass, sent to a worker and called with the shard; what it needs of the
dump is in its ShardReading.  What else the worker's reading leaves travels in ReadingNotes, because the log of bad rows
is the driver's.  So do the ids that a worker saw, where it knows nothing of the others': the driver looks whether one
came twice.  The bad rows of the dump are counted, held against the limit, and written apart where that is asked for.

Work goes on in smaller batches where a GPU's memory runs out.  How much a batch takes depends on the plan, on what else
is on the GPU, and on how many workers share it; so it is tried, and a shard whose batch does not fit is begun anew with
batches of half the tokens.  That takes a shard that is read by itself: one that shares with others what it has seen
would meet its own rows again.
"""

import json
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from rlcorr_cli import __version__
from rlcorr_cli.causes.anomalies import FileSigns, find_anomalies, signs
from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.engines.in_order import Engine, check
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import output_path
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.reading.bad_rows import BadRowCounts, BadRowPolicy, Problems
from rlcorr_cli.reading.batch import Input, Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows, resolved
from rlcorr_cli.reading.dump import Dump, ReadState, ShardReader
from rlcorr_cli.reading.formats import holding
from rlcorr_cli.reading.peek import looked_at, sample_of
from rlcorr_cli.reading.values import SeenIds
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.totals.row_keys import Keys

if TYPE_CHECKING:
    from rlcorr_cli.reading.datasets import Output

R = TypeVar("R")
Device = Any
"""Where arrays live, a measure.arrays.Device."""
Progress = Callable[[int, int], None]
"""Called after each shard with its tokens and bytes."""
Watch = Callable[[int], AbstractContextManager[Progress]]
"""Given the bytes to come, a context around the reading that yields a Progress."""
LEAST_TOKENS = 1 << 14
"""Batches are not halved below this size: what fills the GPU then is something else."""
_LOG = logging.getLogger(__name__)


def anomalies_of(dump: Dump, computing: Computing) -> tuple[AnomalyFinding, ...]:
    """What the first rows of the files show; threads look at several files at once."""

    def look(shard: Shard) -> FileSigns | None:
        sample = sample_of(dump, shard)
        return None if sample is None else signs(sample)

    seen = computing.engine.local().map(looked_at(dump), look)
    return find_anomalies(file for file in seen if file is not None)


@frozen(kw_only=True)
class OpenDump:
    """A dump that is open, and how it is read and computed.

    watch: shows the progress of the reading.  staging: where the rows set aside are left for the caller to publish;
    None publishes them when they are read.  saved: whether the totals are to be saved, for which they hold more.
    """

    dump: Dump
    computing: Computing
    watch: Watch | None = None
    staging: Outputs | None = None
    saved: bool = False


@frozen(kw_only=True)
class Reading:
    """A reading of a dump that is under way.

    progress: as of a Watch, if anybody watches.  log: of bad rows.  staging: where outputs are staged; `one_reading`
    publishes them, or the caller that passed its own.  rows: good ones per input, so far.
    """

    dump: Dump
    computing: Computing
    log: "BadRowLog"
    staging: Outputs = field(default_factory=Outputs)
    progress: Progress | None = None
    rows: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def alone(cls, dump: Dump, computing: Computing) -> "Reading":
        """One that nobody watches, and whose bad rows are only counted."""
        return cls(dump=dump, computing=computing, log=BadRowLog())

    def each(self, work: "Callable[[Shard], ShardResult[R]]") -> Iterator[tuple[Shard, R]]:
        """What `work` makes of each shard, in the dump's order."""
        results = running(self.dump, self.computing).map(self.dump.shards, RetriedSmaller(work))
        ids = IdsAcrossShards(self.dump)
        for shard, result in zip(self.dump.shards, results, strict=True):
            repeated = ids.add(shard, result.notes.seen_ids)
            if len(repeated):
                unlike: Any = work
                result = RetriedSmaller(replace(unlike, reading=replace(unlike.reading, known=repeated)))(shard)
            for bad_rows in result.notes.bad_rows:
                self.log.add(shard, bad_rows)
            self.took(shard, result.notes.n_rows, result.notes.n_tokens)
            yield shard, result.value

    def stream(self, work: "Callable[[Shard], Iterator[R | BadRows | ReadingNotes]]") -> Generator[tuple[Shard, R]]:
        """What `work` yields of each shard, beside rows set aside and notes, in the dump's order."""
        engine, ids = running(self.dump, self.computing, streams=True), IdsAcrossShards(self.dump)
        results = engine.stream(self.dump.shards, RetriedSmallerStream(work))
        for shard, values in zip(self.dump.shards, results, strict=True):
            for value in values:
                if isinstance(value, ReadingNotes):
                    ids.add(shard, value.seen_ids)
                    self.took(shard, value.n_rows, value.n_tokens)
                elif isinstance(value, BadRows):
                    self.log.add(shard, value)
                else:
                    yield shard, value

    def took(self, shard: Shard, n_rows: int, n_tokens: int) -> None:
        """That a shard is done, with so many good rows and valid tokens."""
        self.rows[shard.path] += n_rows
        if self.progress is not None:
            self.progress(n_tokens, shard.n_bytes)

    def check(self) -> None:
        """A DataError if a larger share of rows was left out than the limit."""
        n_good, n_bad, limit = self.rows.total(), self.log.rows.total(), self.dump.request.bad_rows.limit
        share = n_bad / max(n_bad + n_good, 1)
        if share <= limit:
            return
        classes = self.problems
        listed = ", ".join(f"{name} {left_out.rows:,}" for name, left_out in classes.items())
        first = next(iter(classes.values())).first
        raise DataError(
            f"{n_bad:,} of {n_bad + n_good:,} rows are bad ({100 * share:.2f}%), which exceeds "
            f"⟦max_bad_fraction {limit:g}⟧: {listed}; {first}.",
            "`⟦inspect(DUMP)⟧` counts them; a larger ⟦max_bad_fraction⟧ goes on without them.",
        )

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The files, with how many rows each has."""
        return tuple(self.dump.inputs(self.rows + self.log.rows))

    @property
    def problems(self) -> Problems:
        """The bad rows, by class."""
        return self.log.counts.by_class()

    @property
    def n_bad_rows(self) -> int:
        """How many rows are bad."""
        return self.log.counts.n_rows


@contextmanager
def one_reading(read: OpenDump, *, overwrite: bool | None = None) -> Generator[Reading]:
    """A reading of a dump; what the block leaves without an error is published as it ends.

    overwrite: as of `quarantine`.
    """
    dump = read.dump
    with (
        watched(dump, read.watch) as progress,
        Outputs() as own,
        bad_row_log(dump, read.staging or own, overwrite=overwrite) as log,
    ):
        yield Reading(dump=dump, computing=read.computing, log=log, staging=read.staging or own, progress=progress)
        log.finish()
        own.publish()


def watched(dump: Dump, watch: Watch | None) -> AbstractContextManager[Progress | None]:
    """A context around reading the dump once."""
    return watch(dump.n_bytes) if watch else nullcontext()


@dataclass
class ReadingNotes:
    """What a reading of a shard leaves beside what is made of its sound rows: how many there were, and their valid
    tokens; the bad rows; and the ids that it saw, sorted, where no other shard knows of them."""

    n_rows: int = 0
    n_tokens: int = 0
    bad_rows: list[BadRows] = field(default_factory=list[BadRows])
    seen_ids: Keys | None = None


@frozen(kw_only=True)
class ShardReading:
    """How a worker reads a shard's checked rows, batch by batch.  whole: with all columns, or their lines.

    state: what all shards know together; None where each is read by itself, and knows of the others' ids just `known`.
    """

    reader: ShardReader
    state: ReadState | None
    device: Device
    batch_tokens: int
    whole: bool = False
    known: Keys | None = None

    @classmethod
    def of(cls, dump: Dump, computing: Computing, *, whole: bool = False, streams: bool = False) -> "ShardReading":
        """A fresh reading of a dump.  streams: as of `Computing.engine_for`."""
        device, reader = devices.resolve(computing.device), dump.reader
        # Shards know of each other's rows where they must, and where that finds an id that came twice soonest.  One
        # that is computed on a GPU does not, because it is read anew where its batch is too large for that.
        in_one_memory = (
            reader.limit is not None
            or dump.is_here
            or (
                streams
                if reader.leaves_out_repeated
                else device.type == "cpu" and computing.engine_for(dump).shares_memory
            )
        )
        return cls(
            reader=reader,
            state=reader.state() if in_one_memory else None,
            device=device,
            batch_tokens=computing.batch_tokens or devices.DEFAULT_BATCH_TOKENS[device.type],
            whole=whole,
        )

    def restarted(self) -> "ShardReading":
        """The same for another pass over the dump, which has seen no row yet."""
        return replace(self, state=None if self.state is None else self.reader.state())

    def checked_rows(self, shard: Shard, notes: ReadingNotes) -> Iterator[CheckedRows | BadRows]:
        """The shard's rows, those set aside before the ones they stood among; ends when the run does."""
        state = self.state or self.reader.state()
        if self.known is not None and state.seen is not None:
            state.seen.repeated(self.known)
        for rows in self.reader.checked(shard, self.batch_tokens, state, whole=self.whole):
            check()
            if not isinstance(rows, BadRows):
                notes.n_rows += rows.batch.n_rows
                notes.n_tokens += rows.batch.n_tokens
            yield rows
        if self.state is None and state.seen is not None:
            notes.seen_ids = state.seen.keys

    def sound_rows(self, shard: Shard, notes: ReadingNotes) -> Iterator[CheckedRows]:
        """The sound ones; the others are left in the notes."""
        for rows in self.checked_rows(shard, notes):
            if isinstance(rows, BadRows):
                notes.bad_rows.append(rows)
            else:
                yield rows


@frozen
class ShardResult(Generic[R]):
    """What was made of a shard, and what its reading left beside that."""

    value: R
    notes: ReadingNotes = field(default_factory=ReadingNotes)


@frozen(kw_only=True)
class ShardWork(Generic[R]):
    """What is made of a shard, as a value that is sent to workers."""

    reading: ShardReading

    def __call__(self, shard: Shard) -> ShardResult[R]:
        """Read one shard, and make of its sound rows what is to be made."""
        notes = ReadingNotes()
        with devices.worker(self.reading.device):
            value = self.made(shard, self.reading.sound_rows(shard, notes))
        return ShardResult(value, notes)

    @abstractmethod
    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> R:
        """What is made of a shard's sound rows."""


def running(dump: Dump, computing: Computing, *, streams: bool = False) -> Engine:
    """The engine for a dump, which is about to be read by it: `--debug` says by which."""
    computing.warn(dump, streams=streams)
    engine = computing.engine_for(dump, streams=streams)
    _LOG.debug("Reading %s bytes in %s parts by %s.", f"{dump.n_bytes:,}", f"{len(dump.shards):,}", engine.named)
    return engine


@dataclass
class IdsAcrossShards:
    """Looks for an id that two shards saw, where neither knew of the other's."""

    dump: Dump
    _seen: SeenIds = field(default_factory=SeenIds)

    def add(self, shard: Shard, seen_ids: Keys | None) -> Keys:
        """Record the next shard's ids; returns those that earlier shards had, whose rows are to be left out.

        Where a repeated id is an error, all shards up to this one are read again, so that the DataError is the one that
        a single process would raise.
        """
        repeated = np.zeros(0, np.uint64) if seen_ids is None else seen_ids[self._seen.repeated(seen_ids)]
        if not len(repeated) or self.dump.reader.leaves_out_repeated:
            return repeated
        state = self.dump.reader.state()
        for before in self.dump.shards[: shard.index + 1]:
            for _ in self.dump.reader.checked(before, devices.DEFAULT_BATCH_TOKENS["cpu"], state):
                check()
        raise AssertionError(f"{shard.path}: an id came twice, and then did not")


def check_rereadable(dump: Dump) -> None:
    """Refuse standard input where one reading is not enough."""
    if dump.is_piped:
        raise UsageError(
            "This takes more than one pass, and standard input can be read only once.", "Save it to a file first."
        )


@frozen
class RetriedSmaller(Generic[R]):
    """Work on a shard, tried again with smaller batches.  work: a dataclass with a ShardReading, `reading`."""

    work: Callable[[Shard], R]

    def __call__(self, shard: Shard) -> R:
        """What the work makes of the shard."""
        return _tried(self.work, lambda work: work(shard))


@frozen
class RetriedSmallerStream(Generic[R]):
    """The same of work whose results stream: it begins anew as long as none is out."""

    work: Callable[[Shard], Iterator[R]]

    def __call__(self, shard: Shard) -> Iterator[R]:
        """What the work makes of the shard."""

        def begun(work: Callable[[Shard], Iterator[R]]) -> tuple[list[R], Iterator[R]]:
            results = work(shard)
            return [result for _, result in zip(range(1), results, strict=False)], results

        first, others = _tried(self.work, begun)
        yield from first
        try:
            yield from others
        except devices.out_of_memory() as error:
            raise _full() from error


def _tried(work: Any, run: Callable[[Any], R]) -> R:
    while True:
        try:
            return run(work)
        except devices.out_of_memory() as error:
            if work.reading.state is not None or work.reading.batch_tokens <= LEAST_TOKENS:
                raise _full() from error
        # Here, because the error's traceback holds what is on the GPU.
        devices.free()
        n_tokens = work.reading.batch_tokens
        _LOG.warning("The GPU's memory ran out at batches of %s tokens: half as many are taken.", f"{n_tokens:,}")
        work = replace(work, reading=replace(work.reading, batch_tokens=n_tokens // 2))


def _full() -> DataError:
    return DataError("The GPU's memory ran out.", "Use a smaller ⟦batch_tokens⟧, fewer ⟦workers⟧, or ⟦device cpu⟧.")


@dataclass
class BadRowLog:
    """Filled in the dump's order.  output: where bad rows are written, if anywhere.  rows: bad ones per input."""

    output: "Output | None" = None
    rows: Counter[str] = field(default_factory=Counter[str])
    _counts: BadRowCounts = field(default_factory=BadRowCounts, init=False)

    @property
    def counts(self) -> BadRowCounts:
        """What was set aside so far, with the places that reports show."""
        firsts = self._counts.first.items()
        return replace(self._counts, first={name: replace(row, place=resolved(row.place)) for name, row in firsts})

    def add(self, shard: Shard, bad_rows: BadRows) -> None:
        """What had to be left out of this shard."""
        self._counts = self._counts + bad_rows.counts
        self.rows[shard.path] += bad_rows.counts.n_rows
        if self.output is not None and bad_rows.reasons:
            from rlcorr_cli.reading.rows_out import quarantined

            self.output.write(quarantined(bad_rows))

    def finish(self) -> None:
        """Have the rows set aside ready to be published; where there are none, no file is to be there."""
        if self.output is not None:
            problems = {name: left_out.to_dict() for name, left_out in self.counts.by_class().items()}
            self.output.finish_or_remove(json.dumps({"version": __version__, "problems": problems}))


@contextmanager
def bad_row_log(dump: Dump, staging: Outputs, *, overwrite: bool | None = None) -> Generator[BadRowLog]:
    """An empty log, whose rows are written apart where the dump's request says so.  overwrite: as of `quarantine`."""
    policy = dump.request.bad_rows
    destination = quarantine(policy, overwrite)
    if destination is None:
        yield BadRowLog()
        return
    from rlcorr_cli.reading.datasets import Output, is_table

    columns = dump.table_columns if is_table(destination) else None
    with Output(staging, destination, 1, "", columns=columns, untouched=True) as output:
        yield BadRowLog(output)


def quarantine(policy: BadRowPolicy, overwrite: bool | None = None) -> Destination | None:
    """Where bad rows go, if anywhere.  overwrite: None for a command without such an option."""
    if policy.quarantine is None:
        return None
    path = output_path("⟦quarantine⟧", policy.quarantine)
    return Destination(path=path, option="⟦quarantine⟧", overwrite=overwrite)


def check_quarantine(dump: Dump) -> None:
    """Refuse a quarantine that cannot hold the dump's bad rows, before the scan."""
    path = dump.request.bad_rows.quarantine
    if path is None:
        return
    fitting = holding({source.format for source in dump.sources})
    if not path.name.endswith(fitting):
        raise UsageError(
            f"{path}: bad rows are written in the dump's own format.", f"Name a file that ends in {', '.join(fitting)}."
        )
