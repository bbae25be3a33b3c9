"""What every result says of a dump and of each group of its rows: the key, the counts, the metrics, the clusters that
its intervals were drawn of; and the order of groups.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from rlcorr_cli.causes.diagnosis import AnomalyFinding
from rlcorr_cli.causes.steps import StepLevel
from rlcorr_cli.errors import DataError, plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.diagnostics import spread_of_noise
from rlcorr_cli.metrics.interval import FEW_CLUSTERS, FEWEST_CLUSTERS
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.reading.names import NO_CLUSTERS, PROMPTS, ROLLOUTS
from rlcorr_cli.records.fields import HIDDEN, Form, Interval, Key, Number, Scalar, as_json, computed
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.limits import SEQUENCE_ESS
from rlcorr_cli.totals.measured import WholeDump
from rlcorr_cli.totals.totals import EMPTY, MASKED, MOST_LISTED, ROWS, Replicates, Totals
from rlcorr_cli.totals.view import Numbers, Value

UNEVEN = 1.5
"""Clusters that are alike are less overdispersed, but by chance."""
COUNTED = {
    "rows": ROWS,
    "sequences": "sequences",
    "empty_sequences": EMPTY,
    "tokens": "tokens",
    "masked_tokens": MASKED,
}
"""What is counted of a group -> the sum that it is."""
UNLISTED = (
    f"There are over {MOST_LISTED:,} groups (steps times groups, where both are told apart): the quantiles, Pareto "
    "shapes and top_1pct of each are null. Name some of the files at a time, or group by a column of fewer values."
)
"""The note of a result whose groups are too many for histograms and tails."""

Inputs = Annotated[tuple[Input, ...], Form(least=1)]
GroupKey = Annotated[
    Mapping[str, Scalar], Form(name="key", about="A group's value of each column of --group-by.", least=1)
]
Counts = Annotated[
    Mapping[str, int],
    Form(
        name="counts",
        about="tokens are valid ones; empty sequences have none; bad_rows are counted for the whole dump.",
        keys=tuple(COUNTED),
        optional=("bad_rows",),
    ),
]
Metrics = Annotated[
    Mapping[str, Number],
    Form(
        name="metrics",
        about="By name; `rlcorr explain NAME` defines each, a profile has its peer's. A null is a metric of no data.",
        least=1,
    ),
]
Intervals = Annotated[
    Mapping[str, Interval], Form(name="intervals", about="95% bootstrap intervals by metric, of some groups alone.")
]
GroupObjective = Annotated[
    Mapping[str, Number],
    Key(about="With an objective: its numbers of the group's rows alone, as objective/ppo/loss.", omit=True),
]
Suspicions = Annotated[tuple[AnomalyFinding, ...], Key(name="suspicions")]


def key_as_json(key: Mapping[str, Any]) -> dict[str, Any]:
    """A group's key as JSON has it: infinities as text."""
    return {name: as_json(value) for name, value in key.items()}


_NONE: Mapping[str, Any] = {}
"""What most of 100,000 groups have none of, once for all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group(Record):
    """One group of rows; or the whole dump, with an empty key.

    key: column -> value, of which NaN is the text 'NaN'.  values: canonical metrics by name.  peer_metrics: the
    profile's, None without a profile.  objective: an objective's numbers by full name, none without one.  intervals:
    95%, by metric, where the group was resampled: with pictures, of up to 200 groups.  clusters: how many a step has,
    counted as far as 20.  level: of a step's clusters, which tells a rise from chance.  of_steps: those that a range of
    steps is of.
    """

    key: GroupKey
    counts: Counts
    values: Annotated[Mapping[str, Value], HIDDEN]
    peer_metrics: Annotated[Mapping[str, Value] | None, HIDDEN] = None
    intervals: Annotated[Intervals, Key(omit=True)] = field(default_factory=lambda: _NONE, repr=False)
    objective: GroupObjective = field(default_factory=lambda: _NONE)
    clusters: Annotated[int | None, Key(omit=True)] = None
    level: Annotated[StepLevel | None, Key(omit=True)] = None
    of_steps: Annotated[tuple[Scalar, ...], Key(omit=True)] = ()

    @property
    @computed(after="counts")
    def metrics(self) -> Metrics:
        """The metrics under the names of the report's profile."""
        return self.values if self.peer_metrics is None else self.peer_metrics

    @property
    def all_metrics(self) -> dict[str, Value]:
        """With the objective's numbers."""
        return {**self.metrics, **self.objective}

    @property
    def plain_key(self) -> dict[str, Any]:
        """The key as JSON has it."""
        return key_as_json(self.key)

    @property
    def steps(self) -> tuple[Scalar, ...]:
        """The steps of a range, or of a step the only one."""
        return self.of_steps or tuple(self.plain_key.values())

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """What JSON has of a group."""
        return cls(values=values.pop("metrics"), **values)


def key_order(values: Iterable[Any]) -> list[tuple[int, Any]]:
    """What a group's key is sorted by, value after value."""
    return [order(value) for value in values]


def order(value: Any) -> tuple[int, Any]:
    """Numbers first, text that is a number among them; then other text, NaN too, which has no order; null last."""
    if value is None:
        return (2, "")
    try:
        number = float(value)
    except ValueError:
        return (1, value)
    return (1, value) if math.isnan(number) else (0, number)


def by_batch(totals: Totals, whole_totals: WholeDump | None) -> Totals:
    """The totals of each training batch, in order, by its value alone."""
    batches = totals.regrouped(lambda key: key[:1])
    batches = batches.at(sorted(range(len(batches)), key=lambda place: order(batches.keys[place][0])))
    return with_whole(batches, whole_totals) if len(batches) == 1 else batches


def with_whole(totals: Totals, whole_totals: WholeDump | None) -> Totals:
    """The totals of one group, of all rows, with the longer tails of the whole dump and what is counted of it alone."""
    if whole_totals is None:
        return totals
    tails = {name: (tail,) for name, tail in whole_totals.tails.items()}
    histograms = {name: (histogram,) for name, histogram in whole_totals.histograms.items()}
    return replace(totals, tails={**totals.tails, **tails}, histograms={**totals.histograms, **histograms})


def counts(totals: Totals | None, mode: Mode, at: int = 0) -> dict[str, int]:
    """rows, sequences (with a valid token), empty_sequences, tokens (valid), masked_tokens, of the group at a place; 0
    without totals.  Bad rows are not here."""
    numbers = None if totals is None else Numbers.of_mode(totals, mode, at)
    return {name: 0 if numbers is None else int(numbers.sum(of)) for name, of in COUNTED.items()}


def of_inputs(inputs: Sequence[Input]) -> str:
    """The path of the only file, or how many there are, as the repr of a result names its dump."""
    return f"{inputs[0].path!r}" if len(inputs) == 1 else f"{len(inputs)} files"


def amount_words(counts: Mapping[str, int]) -> str:
    """'64 sequences, 5,493 tokens'."""
    return f"{plural(counts['sequences'], 'sequence')}, {plural(counts['tokens'], 'token')}"


def with_bad_rows(counts: Mapping[str, int], n_bad_rows: int, inputs: Sequence[Input]) -> dict[str, int]:
    """The counts of a whole dump, of those of its good rows; a DataError of a dump that `refuse_empty` refuses."""
    of_all = {**counts, "rows": counts["rows"] + n_bad_rows, "bad_rows": n_bad_rows}
    refuse_empty(of_all, inputs)
    return of_all


def refuse_empty(counts: Mapping[str, int], inputs: Sequence[Input]) -> None:
    """A dump without a row, a good row or a valid token is a DataError."""
    where = inputs[0].path if len(inputs) == 1 else f"{inputs[0].path} and {len(inputs) - 1} more"
    if not counts["rows"]:
        raise DataError(f"{where}: no rows.", "Name a dump that holds at least one sequence.")
    bad = counts["bad_rows"]
    if bad == counts["rows"]:
        rows = "the only row is bad" if bad == 1 else f"all {bad:,} rows are bad"
        raise DataError(
            f"{where}: {rows}.", f"`⟦inspect(DUMP)⟧` says what is wrong with {'it' if bad == 1 else 'them'}."
        )
    if not counts["tokens"]:
        left_out = f"; {plural(bad, 'bad row')} left out" if bad else ""
        if not counts["masked_tokens"]:
            empty = (
                "the only row is empty" if counts["rows"] - bad == 1 else f"all {counts['rows'] - bad:,} rows are empty"
            )
            raise DataError(
                f"{where}: no token, {empty}{left_out}.",
                "Name a dump whose log-probs are lists with something in them.",
            )
        masked = f"{plural(counts['masked_tokens'], 'token')} of {plural(counts['rows'] - bad, 'row')}"
        raise DataError(
            f"{where}: no valid token, {masked} masked{left_out}.",
            "If another column is the mask, name it: ⟦map response_mask=COLUMN⟧.",
        )


@frozen(kw_only=True)
class Clusters(Record):
    """by: the column whose rows of one value were drawn together, ROLLOUTS for rows of one rollout, NO_CLUSTERS for
    every row by itself.  n: how many; exact: whether they were counted, else it is an estimate, to 0.3%.

    overdispersion: how unlike they are in the size of their noise, 1 of alike ones.  mixed_seq_ess: the effective share
    of sequences that this leaves (`metrics/diagnostics.py: spread_of_noise`); null where nothing differs.
    """

    by: str
    n: int
    exact: bool = True
    overdispersion: Number = None
    mixed_seq_ess: Number = None

    @classmethod
    def of(cls, by: Any, replicates: Replicates | None) -> "Clusters | None":
        """From the replicates; None where nothing was resampled."""
        if replicates is None:
            return None
        clusters = replicates.clusters
        return cls(by=str(by), n=clusters.n, exact=clusters.exact, **spread_of_noise(replicates))

    @property
    def too_few(self) -> bool:
        """Whether they are too few for an interval, a test or a verdict."""
        return self.n < FEWEST_CLUSTERS

    @property
    def few(self) -> bool:
        """Whether they are too few for intervals to be fully trusted; too_few is a part of that."""
        return self.n < FEW_CLUSTERS

    @property
    def notes(self) -> tuple[str, ...]:
        """That they are few, in a sentence; nothing where they are not."""
        if self.too_few:
            return (f"{self.words}: too few for intervals, which need {FEWEST_CLUSTERS} (`rlcorr help intervals`).",)
        if self.few:
            return (
                f"The intervals come from {self.words}. With fewer than {FEW_CLUSTERS} they are often too narrow "
                "(`rlcorr help intervals`).",
            )
        return ()

    @property
    def counted(self) -> str:
        """'8 prompts', 'about 250,000 rollouts'."""
        return plural(self.n, self.unit) if self.exact else f"about {self.n:,} {self.unit}s"

    @property
    def why_too_few(self) -> str:
        """', because few of them carry most of the variance', where it is that which leaves sequence weights unsure."""
        is_uneven = (self.overdispersion or 1.0) > UNEVEN and (self.mixed_seq_ess or 0.0) < SEQUENCE_ESS
        return ", because few of them carry most of the variance" if is_uneven else ""

    @property
    def unit(self) -> str:
        """What a cluster is."""
        of_column = "prompt" if self.by in PROMPTS else "cluster"
        return {ROLLOUTS: "rollout", NO_CLUSTERS: "sequence"}.get(self.by, of_column)

    @property
    def words(self) -> str:
        """The count, with the column's name: '8 prompts (group_id)'."""
        return self.counted if self.by in (ROLLOUTS, NO_CLUSTERS) else f"{self.counted} ({self.by})"
