"""What `inspect` shows of a dump (`Inspected`) and of one row (`OneRow`), as plain values."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.results.report import SCHEMA

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

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: minimum, mean, maximum, and the share of exact zeros."""
        n = self.n
        return {"min": self.min, "mean": self.total / n, "max": self.max, "zero_fraction": self.zeros / n}


@dataclass(frozen=True, kw_only=True)
class Worst:
    """One of the worst sequences (token None) or tokens, with its value of the measure.

    place: the row as errors name it.  token: its number among the row's valid tokens, from 0.
    """

    value: float
    place: str
    sample_id: str | None
    n_tokens: int
    token: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; that of a sequence has no `token`."""
        return {name: value for name, value in asdict(self).items() if name != "token" or value is not None}


@dataclass(frozen=True)
class Tally:
    """What `inspect` counts over batches; tallies add.

    lengths: valid tokens of a non-empty sequence -> how many such there are.  values: by column.
    """

    empty: int = 0
    masked: int = 0
    lengths: Counter[int] = field(default_factory=Counter[int])
    values: Mapping[str, Values] = field(default_factory=dict[str, Values])

    def __add__(self, other: "Tally") -> "Tally":
        values = dict(self.values)
        for name, others in other.values.items():
            values[name] = values[name] + others if name in values else others
        return Tally(self.empty + other.empty, self.masked + other.masked, self.lengths + other.lengths, values)

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
class Inspected:
    """A dump as it is read.

    schema: column -> type, of the first file.  columns: canonical -> column, sample_id and step among them where they
    tell rows and files apart.  problems, cause: as of a Report.  by: the measure of the worst.
    """

    inputs: tuple[Input, ...]
    schema: Mapping[str, str]
    columns: Mapping[str, str]
    tally: Tally
    bad_rows: int
    problems: Mapping[str, Mapping[str, Any]]
    anomalies: tuple[AnomalyFinding, ...]
    notes: tuple[str, ...]
    cause: CauseFinding | None = None
    by: str | None = None
    worst_sequences: tuple[Worst, ...] = ()
    worst_tokens: tuple[Worst, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Rows, sequences and tokens by kind, under the names that reports use."""
        return {
            "rows": self.tally.sequences + self.tally.empty + self.bad_rows,
            "sequences": self.tally.sequences,
            "empty_sequences": self.tally.empty,
            "tokens": self.tally.tokens,
            "masked_tokens": self.tally.masked,
            "bad_rows": self.bad_rows,
        }

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        worst = {
            "by": self.by,
            "sequences": [sequence.to_dict() for sequence in self.worst_sequences],
            "tokens": [token.to_dict() for token in self.worst_tokens],
        }
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "inputs": [source.to_dict() for source in self.inputs],
            "schema": dict(self.schema),
            "columns": dict(self.columns),
            "counts": self.counts,
            "lengths": {f"{q:g}": self.tally.length(q) for q in LENGTH_QUANTILES},
            "values": {name: values.to_dict() for name, values in self.tally.values.items()},
            "problems": {name: dict(problem) for name, problem in self.problems.items()},
            "suspicions": [anomaly.to_dict() for anomaly in self.anomalies],
            "cause": None if self.cause is None else self.cause.to_dict(),
            "worst": None if self.by is None else worst,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Says:
    """What one rejection of a plan says about a row.  value: of its statistic, None at token scope; keep: per valid
    token."""

    name: str
    rule: str
    value: float | None
    keep: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class OneRow:
    """One sequence, token by token.

    facts: its plain columns.  texts: its text, by column.  tokens: what they are, where the dump says.  valid: whether
    a token counts.  log_probs: column -> all tokens' (of a bad row as they are, whatever they are).  log_ratios: of
    valid tokens.  weights: theirs, as the plan gives them before a batch mean divides.  problem: why the row is bad.
    """

    place: str
    facts: Mapping[str, Any]
    texts: Mapping[str, str]
    tokens: tuple[Any, ...] | None
    valid: tuple[bool, ...]
    log_probs: Mapping[str, tuple[Any, ...]]
    log_ratios: tuple[float, ...] = ()
    weights: tuple[float, ...] | None = None
    says: tuple[Says, ...] = ()
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "place": self.place,
            "facts": {name: _json(value) for name, value in self.facts.items()},
            "texts": dict(self.texts),
            "tokens": None if self.tokens is None else [_json(token) for token in self.tokens],
            "valid": list(self.valid),
            "log_probs": {name: [_json(value) for value in values] for name, values in self.log_probs.items()},
            "log_ratios": list(self.log_ratios),
            "weights": None if self.weights is None else list(self.weights),
            "rejections": [asdict(opinion) for opinion in self.says],
            "problem": self.problem,
        }


def _json(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
