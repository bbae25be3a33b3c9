"""What `inspect` shows of a dump (`Inspected`) and of some rows of it (`TokenRows`), as plain values."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Annotated

from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.bad_rows import Problems
from rlcorr_cli.records.fields import HIDDEN, Key, Plain, computed
from rlcorr_cli.records.record import Output, Record
from rlcorr_cli.results.groups import Counts, Inputs, Suspicions, amount_words, of_inputs
from rlcorr_cli.totals.totals import add_each

LENGTH_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class ColumnSummary(Record):
    """The finite values of a column; zero_fraction: the share of exact zeros."""

    min: float
    mean: float
    max: float
    zero_fraction: float


@frozen
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
        add_each(values, other.values)
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


@frozen(kw_only=True)
class Inspected(Output):
    """A dump as it is read.

    schema: column -> type, of the first file.  columns: canonical -> column, sample_id and step among them where they
    tell rows and files apart.  uses: column -> what it is used for, of others.  problems, cause: as of a Report.
    is_partial: whether a file holds what is not among its rows, which notes tell.
    """

    OUTPUT = "inspect"
    inputs: Inputs
    schema: Annotated[Mapping[str, str], Key(about="Column to type, of the first file.")]
    columns: Annotated[Mapping[str, str], Key(about="Canonical name to the dump's column.")]
    uses: Annotated[Mapping[str, str], Key(about="Of other columns, what each is used for.")]
    problems: Problems
    anomalies: Suspicions
    cause: CauseFinding | None = None
    notes: tuple[str, ...]

    tally: Annotated[DumpCounts, HIDDEN]
    bad_rows: Annotated[int, HIDDEN]
    is_partial: Annotated[bool, HIDDEN]

    @property
    def read_as(self) -> dict[str, str]:
        """Column -> what it is read as, or else used for."""
        return {**self.uses, **{column: name for name, column in self.columns.items()}}

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


@frozen
class RejectionVote(Record):
    """What one rejection of a plan says about a row.  value: of its statistic, None at token scope; keep: per valid
    token."""

    name: str
    rule: str
    value: float | None
    keep: tuple[bool, ...]


@frozen(kw_only=True)
class OneRow(Record):
    """One sequence, token by token.

    value: what it is ranked by.  facts: its plain columns.  texts: its prompt and its response, by column.  tokens:
    what they are, where the dump says.  text: of each token, where there is one; joined, they are what the tokens
    decode to.  valid: whether a token counts.  log_probs: column -> all tokens' (of a bad row as they are, whatever
    they are).  log_ratios: of valid tokens.  weights: theirs, as the plan gives them before a batch mean divides.
    entropies: of all tokens.  problem: why the row is bad.  far: of a row that is cut, the places of the far tokens up
    to there.

    Beside these, shown: as text, but with bytes that are no whole character.  strings: what the dump has as tokens'
    text; prompt_ids: of the prompt's tokens; group: what samples of one prompt have in common.
    """

    place: str
    value: Annotated[float | None, Key(omit=True)] = None
    facts: Mapping[str, Plain]
    texts: Mapping[str, str]
    tokens: tuple[Plain, ...] | None
    text: tuple[str, ...] | None = None
    valid: tuple[bool, ...]
    log_probs: Annotated[
        Mapping[str, tuple[Plain, ...]],
        Key(about="By column, of all tokens, as the dump has them; what is not finite is text."),
    ]
    log_ratios: tuple[float, ...] = ()
    weights: tuple[float, ...] | None = None
    says: Annotated[tuple[RejectionVote, ...], Key(name="rejections")] = ()
    entropies: Annotated[tuple[Plain, ...] | None, Key(omit=True)] = None
    problem: str | None = None
    far: Annotated[tuple[int, ...], Key(omit=True)] = ()

    shown: Annotated[tuple[str, ...] | None, HIDDEN] = None
    strings: Annotated[tuple[str, ...] | None, HIDDEN] = None
    prompt_ids: Annotated[tuple[float, ...] | None, HIDDEN] = None
    group: Annotated[str | None, HIDDEN] = None

    @property
    def n_tokens(self) -> int:
        """All tokens, as many as the longest list of log-probs has."""
        return max(map(len, self.log_probs.values()), default=0)

    @property
    def name(self) -> str:
        """Its sample_id, where it has one, or else its place."""
        return str(self.facts.get("sample_id", self.place))

    @cached_property
    def by_token(self) -> "tuple[OneToken, ...]":
        """Its tokens in order."""
        return tuple(self._tokens())

    def _tokens(self) -> Iterator["OneToken"]:
        rejections = [(rule.name, rule.keep) for rule in self.says]
        at, log_probs = -1, tuple(self.log_probs.values())
        for i in range(self.n_tokens):
            counts = i < len(self.valid) and self.valid[i]
            at += counts
            compared = counts and at < len(self.log_ratios)
            yield OneToken(
                place=i,
                shown=self.shown[i] if self.shown is not None and i < len(self.shown) else None,
                token=self.tokens[i] if self.tokens is not None and i < len(self.tokens) else None,
                counts=counts,
                log_probs=tuple(values[i] if i < len(values) else None for values in log_probs),
                log_ratio=self.log_ratios[at] if compared else None,
                weight=self.weights[at] if compared and self.weights is not None else None,
                rejected_by=tuple(name for name, keep in rejections if compared and not keep[at]),
                entropy=self.entropies[i] if self.entropies is not None else None,
            )


@frozen(kw_only=True)
class OneToken:
    """One token of a row: place, from 0 among all; counts: whether it is valid.  What it has not is None."""

    place: int
    shown: str | None
    token: Plain | None
    counts: bool
    log_probs: tuple[Plain, ...]
    log_ratio: float | None
    weight: float | None
    rejected_by: tuple[str, ...]
    entropy: Plain | None


@frozen(kw_only=True)
class TokenRows(Output):
    """Some rows of a dump, token by token.

    plan: the plan whose weights and rejections are shown.  by: what the worst are ranked by.  n_matching: how many rows
    there were to choose from.  text_from: where the text comes from; empty where there is none.  about: sentences on
    what these rows are.
    """

    OUTPUT = "rows"
    inputs: Inputs
    plan: str
    by: str | None
    n_matching: Annotated[int, Key(about="Rows with a valid token that they were chosen from.")]
    text_from: str = ""
    rows: tuple[OneRow, ...]
    about: Annotated[tuple[str, ...], Key(omit=True)] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(repr(row.name) for row in self.rows[:3])
        more = f" and {len(self.rows) - 3} more" if len(self.rows) > 3 else ""
        return f"<TokenRows of {of_inputs(self.inputs)}: {names}{more}>"
