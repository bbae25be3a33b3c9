"""What `inspect` shows of a dump (`Inspected`) and of one row (`OneRow`), as plain values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.errors import plural
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records.fields import HIDDEN, Key, Plain, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.groups import Counts, Inputs, Suspicions, amount_words, of_inputs

LENGTH_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, kw_only=True)
class Values:
    """n finite values of one column: their range, their sum, and how many are exactly 0."""

    n: int
    min: float
    max: float
    total: float
    zeros: int

    def __add__(self, other: "Values") -> "Values":
        return Values(
            n=self.n + other.n,
            min=min(self.min, other.min),
            max=max(self.max, other.max),
            total=self.total + other.total,
            zeros=self.zeros + other.zeros,
        )

    @property
    def summary(self) -> "ColumnSummary":
        """What is told of them."""
        share = self.zeros / self.n
        return ColumnSummary(min=self.min, mean=self.total / self.n, max=self.max, zero_fraction=share)


@dataclass(frozen=True, kw_only=True)
class ColumnSummary(Record):
    """The finite values of a column; zero_fraction: the share of exact zeros."""

    min: float
    mean: float
    max: float
    zero_fraction: float


@dataclass(frozen=True, kw_only=True)
class Worst(Record):
    """One of the worst sequences (token None) or tokens, with its value of the measure.

    place: the row as errors name it.  token: its number among the row's valid tokens, from 0.
    """

    value: float
    place: str
    sample_id: str | None
    n_tokens: int
    token: Annotated[int | None, Key(omit=True)] = None


@dataclass(frozen=True, kw_only=True)
class WorstRows(Record):
    """The worst sequences and tokens by a measure."""

    by: str
    sequences: tuple[Worst, ...]
    tokens: tuple[Worst, ...]


@dataclass(frozen=True)
class DumpCounts:
    """What `inspect` counts over batches; they add.

    lengths: valid tokens of a non-empty sequence -> how many such there are.  values: by column.
    """

    empty: int = 0
    masked: int = 0
    lengths: Counter[int] = field(default_factory=Counter[int])
    values: Mapping[str, Values] = field(default_factory=dict[str, Values])

    def __add__(self, other: "DumpCounts") -> "DumpCounts":
        values = dict(self.values)
        for name, others in other.values.items():
            values[name] = values[name] + others if name in values else others
        return DumpCounts(self.empty + other.empty, self.masked + other.masked, self.lengths + other.lengths, values)

    @property
    def sequences(self) -> int:
        """The number of rows with a valid token."""
        return self.lengths.total()

    @property
    def tokens(self) -> int:
        """The number of valid tokens."""
        return sum(length * n for length, n in self.lengths.items())

    def length(self, q: float) -> int | None:
        """The exact quantile q of the sequences' lengths: the one of rank ceil(q n)."""
        rank, seen = max(1, -int(-q * self.sequences // 1)), 0
        for length in sorted(self.lengths):
            seen += self.lengths[length]
            if seen >= rank:
                return length
        return None


@dataclass(frozen=True, kw_only=True)
class Inspected(Output):
    """A dump as it is read.

    schema: column -> type, of the first file.  columns: canonical -> column, sample_id and step among them where they
    tell rows and files apart.  problems, cause: as of a Report.  by: the measure of the worst.
    """

    inputs: Inputs
    schema: Annotated[Mapping[str, str], Key(about="Column to type, of the first file.")]
    columns: Annotated[Mapping[str, str], Key(about="Canonical name to the dump's column.")]
    problems: Problems
    anomalies: Suspicions
    cause: CauseFinding | None = None
    notes: tuple[str, ...]

    tally: Annotated[DumpCounts, HIDDEN]
    bad_rows: Annotated[int, HIDDEN]
    by: Annotated[str | None, HIDDEN] = None
    worst_sequences: Annotated[tuple[Worst, ...], HIDDEN] = ()
    worst_tokens: Annotated[tuple[Worst, ...], HIDDEN] = ()

    def __repr__(self) -> str:
        bad = plural(self.bad_rows, "bad row")
        suspicions = f", {', '.join(each.name for each in self.anomalies)}" if self.anomalies else ""
        return f"<Inspected of {of_inputs(self.inputs)}: {amount_words(self.counts)}, {bad}{suspicions}>"

    @property
    @computed(after="columns")
    def counts(self) -> Counts:
        """Rows, sequences and tokens by kind, under the names that reports use."""
        return {
            "rows": self.tally.sequences + self.tally.empty + self.bad_rows,
            "sequences": self.tally.sequences,
            "empty_sequences": self.tally.empty,
            "tokens": self.tally.tokens,
            "masked_tokens": self.tally.masked,
            "bad_rows": self.bad_rows,
        }

    @property
    @computed("Quantiles of valid tokens a sequence, from 0 to 1; null of no sequence.", after="counts")
    def lengths(self) -> Mapping[str, int | None]:
        """The quantiles, by their share."""
        return {f"{q:g}": self.tally.length(q) for q in LENGTH_QUANTILES}

    @property
    @computed("By column, over valid tokens.", after="lengths")
    def values(self) -> Mapping[str, ColumnSummary]:
        """What each column of log-probs holds."""
        return {name: values.summary for name, values in self.tally.values.items()}

    @property
    @computed(after="cause")
    def worst(self) -> WorstRows | None:
        """What --worst lists; None without it."""
        if self.by is None:
            return None
        return WorstRows(by=self.by, sequences=self.worst_sequences, tokens=self.worst_tokens)


@dataclass(frozen=True)
class RejectionVote(Record):
    """What one rejection of a plan says about a row.  value: of its statistic, None at token scope; keep: per valid
    token."""

    name: str
    rule: str
    value: float | None
    keep: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class OneRow(Output):
    """One sequence, token by token.

    facts: its plain columns.  texts: its text, by column.  tokens: what they are, where the dump says.  valid: whether
    a token counts.  log_probs: column -> all tokens' (of a bad row as they are, whatever they are).  log_ratios: of
    valid tokens.  weights: theirs, as the plan gives them before a batch mean divides.  problem: why the row is bad.
    """

    place: str
    facts: Mapping[str, Plain]
    texts: Mapping[str, str]
    tokens: tuple[Plain, ...] | None
    valid: tuple[bool, ...]
    log_probs: Annotated[
        Mapping[str, tuple[Plain, ...]],
        Key(about="By column, of all tokens, as the dump has them; what is not finite is text."),
    ]
    log_ratios: tuple[float, ...] = ()
    weights: tuple[float, ...] | None = None
    says: Annotated[tuple[RejectionVote, ...], Key(name="rejections")] = ()
    problem: str | None = None

    def __repr__(self) -> str:
        bad = "" if self.problem is None else f", bad: {self.problem}"
        return f"<OneRow {self.place!r}: {plural(sum(self.valid), 'valid token')} of {len(self.valid)}{bad}>"
