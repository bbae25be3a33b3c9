"""A Diagnosis: which causes explain the gap between two policies, and where it sits; and what is suspected of files.

Values with their JSON form.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal

from rlcorr_cli.causes.table import ANOMALIES

Interval = tuple[float, float]
Parameter = float | str
Bound = Literal["at_least", "at_most"]
UNCLEAR, CLEAN, TOO_FEW = "unclear", "none", "too_few"
"""Verdicts that name no cause: nothing stands out, the policies are equal, there is too little to say."""


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


@dataclass(frozen=True, kw_only=True)
class CauseFinding:
    """A cause that the data show.

    cause: its name in CAUSES.  share: of the gap, the sum of l^2, which it explains, at least or at most (a bound).
    token_share: the share of all tokens on which it sits, None where that is all or most of them.
    parameters: what it comes to, such as {"top_p": 0.8}, the telling one first; of a column its name and its guilty
    levels, {"column": "worker", "levels": "w3"}.  intervals: 95 % intervals of those that have one.  is_minor: whether
    it explains too little to be a verdict.  explains: anomalies of files that this cause makes by itself, which are no
    fault then.  headline: what it is, in a clause that starts with a noun.  evidence: sentences with the numbers that
    say so.  advice: what to do; the judge takes it from CAUSES where a rule gives none.
    """

    cause: str
    share: float
    bound: Bound = "at_least"
    share_interval: Interval | None = None
    token_share: float | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    intervals: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    is_minor: bool = False
    explains: tuple[str, ...] = ()
    headline: str
    evidence: tuple[str, ...]
    advice: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CauseFinding":
        """The finding that `to_dict` wrote."""
        interval = data["share_interval"]
        return cls(
            cause=data["cause"],
            share=data["share"],
            bound=data["share_bound"],
            share_interval=None if interval is None else (interval[0], interval[1]),
            token_share=data["token_share"],
            parameters=data["parameters"],
            intervals={name: (low, high) for name, (low, high) in data["intervals"].items()},
            is_minor=data["is_minor"],
            headline=data["headline"],
            evidence=tuple(data["evidence"]),
            advice=data["advice"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "cause": self.cause,
            "share": self.share,
            "share_bound": self.bound,
            "share_interval": _ends(self.share_interval),
            "token_share": self.token_share,
            "parameters": dict(self.parameters),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "is_minor": self.is_minor,
            "headline": self.headline,
            "evidence": list(self.evidence),
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Fact:
    """What is always told, cause or not: the grid that a column is stored on."""

    name: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class LevelGap:
    """What one level of a column holds of all tokens, of k3 and of the gap (shares, with 95 % intervals of k3's and the
    gap's), and the share of the gap that its tokens' surprise alone would give.

    size: the typical |r| of its rows over the others'; z: of that; None where there are too few.  is_hot: whether it
    stands out, in size and beyond chance among all levels that were tried.
    """

    level: Any
    rows: int
    tokens: int
    token_share: float
    k3: float
    k3_interval: Interval | None
    gap: float
    gap_interval: Interval | None
    expected: float
    size: float | None = None
    z: float | None = None
    is_hot: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; a level that JSON has no type for as text."""
        is_plain = self.level is None or isinstance(self.level, str | int)
        is_plain = is_plain or (isinstance(self.level, float) and isfinite(self.level))
        return {
            "level": self.level if is_plain else str(self.level),
            "rows": self.rows,
            "tokens": self.tokens,
            "token_share": self.token_share,
            "k3": self.k3,
            "k3_interval": _ends(self.k3_interval),
            "gap": self.gap,
            "gap_interval": _ends(self.gap_interval),
            "expected": self.expected,
            "size": self.size,
            "z": self.z,
            "hot": self.is_hot,
        }


@dataclass(frozen=True, kw_only=True)
class ColumnGap:
    """The levels of a column, in order.  trend, trend_z: of a column of numbers, the factor by which |r| grows from its
    lowest to its highest value, along a line; grows: whether that stands out.  too_many: more levels than are kept."""

    column: str
    levels: tuple[LevelGap, ...]
    trend: float | None = None
    trend_z: float | None = None
    grows: bool = False
    too_many: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "column": self.column,
            "levels": [level.to_dict() for level in self.levels],
            "trend": self.trend,
            "trend_z": self.trend_z,
            "grows": self.grows,
            "too_many": self.too_many,
        }


@dataclass(frozen=True)
class PlaceGap:
    """Tokens of a row from this place on, to the next one: how many, and the typical |r|."""

    first: int
    tokens: int
    size: float | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"from": self.first, "tokens": self.tokens, "size": self.size}


@dataclass(frozen=True)
class NotLookedFor:
    """A cause that takes what the dump lacks."""

    cause: str
    needs: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Of a whole dump or a group of its rows.

    sum_squares: the gap Q = sum l^2.  k3: mean k3 per token.  deviation: the standard deviation of l.  core: the
    typical spread of d, the difference in log-odds; None without tokens inside.  verdict: the name of the first cause,
    or UNCLEAR, CLEAN, TOO_FEW; conclusion: that in a sentence where it names no cause.  causes: all that hold, in
    order.  columns: by column, `length` among them; turns, surprise: the same by run of the mask and by the bins of u,
    whose levels are the bins' lower ends.  features: the numbers that the rules look at.
    """

    sum_squares: float
    k3: float | None
    deviation: float | None
    core: float | None
    verdict: str
    conclusion: str
    causes: tuple[CauseFinding, ...]
    facts: tuple[Fact, ...] = ()
    columns: tuple[ColumnGap, ...] = ()
    turns: tuple[LevelGap, ...] = ()
    surprise: tuple[LevelGap, ...] = ()
    places: tuple[PlaceGap, ...] = ()
    features: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    not_looked_for: tuple[NotLookedFor, ...] = ()

    @property
    def cause(self) -> CauseFinding | None:
        """The cause that the verdict names, if it names one."""
        return next((each for each in self.causes if each.cause == self.verdict), None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "gap": {"sum_sq": self.sum_squares, "k3_kl": self.k3, "sd": self.deviation, "core": self.core},
            "verdict": self.verdict,
            "conclusion": self.conclusion,
            "causes": [cause.to_dict() for cause in self.causes],
            "facts": [asdict(fact) for fact in self.facts],
            "columns": [column.to_dict() for column in self.columns],
            "turns": [turn.to_dict() for turn in self.turns],
            "surprise": [level.to_dict() for level in self.surprise],
            "positions": [place.to_dict() for place in self.places],
            "features": dict(self.features),
            "not_looked_for": [asdict(each) for each in self.not_looked_for],
        }


@dataclass(frozen=True, kw_only=True)
class AnomalyFinding:
    """An anomaly of a dump: the first file that shows it, the evidence there, and how many files show it."""

    name: str
    path: str
    evidence: str
    fix: str
    n_files: int

    @property
    def voids(self) -> bool:
        """Whether no number of such a file means what its name says."""
        return any(anomaly.name == self.name and anomaly.voids for anomaly in ANOMALIES)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; its key for the fix is `cure`."""
        return {
            "name": self.name,
            "path": self.path,
            "evidence": self.evidence,
            "cure": self.fix,
            "n_files": self.n_files,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "AnomalyFinding":
        """The finding that `to_dict` wrote."""
        path, evidence = data["path"], data["evidence"]
        return cls(name=data["name"], path=path, evidence=evidence, fix=data["cure"], n_files=data["n_files"])


def unexplained(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> tuple[AnomalyFinding, ...]:
    """The anomalies without those that the likely cause makes by itself."""
    explained = () if diagnosis.cause is None else diagnosis.cause.explains
    return tuple(each for each in anomalies if each.name not in explained)


def standing(
    anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis
) -> tuple[tuple[AnomalyFinding, ...], CauseFinding | None]:
    """The anomalies that stay unexplained, and the likely cause; None where one of them voids the numbers that it was
    read from, which is the verdict then."""
    left = unexplained(anomalies, diagnosis)
    return left, None if any(each.voids for each in left) else diagnosis.cause
