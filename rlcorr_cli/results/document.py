"""The JSON document of a report, as pydantic classes: what `saved.py` validates before it makes a Report of it.

A new key of the JSON report gets its field here, with a default where older documents lack it.
"""

from typing import Annotated, Any, Literal

import pydantic

from rlcorr_cli.causes.table import CAUSES

Metrics = dict[str, pydantic.FiniteFloat | None]
Key = dict[str, pydantic.FiniteFloat | int | str | bool | None]
Ends = Annotated[list[pydantic.FiniteFloat], pydantic.Field(min_length=2, max_length=2)]
Count = Annotated[int, pydantic.Field(ge=0, le=2**62)]
BucketCounts = Annotated[list[list[Count]], pydantic.Field(min_length=2, max_length=2)]


class Open(pydantic.BaseModel):
    """A record of right types; keys of a later release are ignored."""

    model_config = pydantic.ConfigDict(strict=True, extra="ignore")


class Head(Open):
    """The version that wrote the document, and its schema, which `load` checks."""

    version: str


class Input(Open):
    """One file of the dump."""

    path: str
    format: str
    rows: pydantic.NonNegativeInt
    bytes: pydantic.NonNegativeInt
    modified: Annotated[str, pydantic.Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\dZ$")] | None = None
    columns: dict[str, str]


class Counts(Open):
    """How many rows, sequences and tokens the numbers are of."""

    rows: pydantic.NonNegativeInt
    sequences: pydantic.NonNegativeInt
    empty_sequences: pydantic.NonNegativeInt
    tokens: pydantic.NonNegativeInt
    masked_tokens: pydantic.NonNegativeInt
    bad_rows: pydantic.NonNegativeInt = 0


class Group(Open):
    """One group of rows: its key, counts and metrics."""

    key: Key = pydantic.Field(min_length=1)
    counts: Counts
    metrics: Metrics
    intervals: dict[str, Ends] = {}
    objective: Metrics = {}


class Health(Open):
    """One default rule on the whole dump."""

    metric: str
    value: pydantic.FiniteFloat | None
    rule: str
    status: Literal["ok", "warn", "fail", "no data"]
    remedy: str | None


class Problem(Open):
    """A class of bad rows."""

    rows: pydantic.NonNegativeInt
    first: str


class Suspicion(Open):
    """An anomaly of whole files, as `AnomalyFinding.to_dict` writes it."""

    name: str
    path: str
    evidence: str
    cure: str
    n_files: pydantic.NonNegativeInt


class Conclusion(Open):
    """The verdict; it is computed again from the numbers, so only its types matter."""

    level: Literal["equal", "void", "too few", "same", "close", "apart", "far"]
    causes: list[str]
    usable: list[Literal["token", "sequence"]]
    failing: list[str]
    n_sequences: pydantic.NonNegativeInt
    kept_fraction: pydantic.FiniteFloat | None


class Drift(Open):
    """The onset of a drift, computed again as well."""

    column: str
    place: pydantic.FiniteFloat
    reference: pydantic.FiniteFloat
    factor: pydantic.FiniteFloat


class SurpriseTrend(Open):
    """A trend in the binned totals."""

    change: Literal["grows", "shrinks", "level"]
    likely_std: pydantic.FiniteFloat
    unlikely_std: pydantic.FiniteFloat


class PositionTrend(Open):
    """A trend in the binned totals."""

    change: Literal["widens", "narrows", "level"]
    early_std: pydantic.FiniteFloat
    late_std: pydantic.FiniteFloat


class LengthTrend(Open):
    """A trend in the binned totals."""

    shortest: pydantic.FiniteFloat
    longest: pydantic.FiniteFloat
    trap: bool


class Concentration(Open):
    """A trend in the binned totals."""

    heavier_half: pydantic.FiniteFloat
    heaviest_percent: pydantic.FiniteFloat


class Trends(Open):
    """What binned totals show, computed again from them."""

    surprise: SurpriseTrend | None
    position: PositionTrend | None
    length: LengthTrend | None
    concentration: Concentration | None


class Impossible(Open):
    """A value that proves a column wrong."""

    metric: str
    value: pydantic.FiniteFloat
    interval: Ends
    proves: str


class Suggestion(Open):
    """Looser bounds for one rejection."""

    rejection: str
    statistic: str
    scope: str
    units: Literal["tokens", "sequences"]
    lost_fraction: pydantic.FiniteFloat
    low: pydantic.FiniteFloat | None
    high: pydantic.FiniteFloat | None
    kept_fraction: pydantic.FiniteFloat
    exact: bool = False


class Geometric(Open):
    """Bounds on a sequence's geometric mean ratio that would keep `kept_fraction` of the sequences."""

    low: pydantic.FiniteFloat
    high: pydantic.FiniteFloat
    kept_fraction: pydantic.FiniteFloat
    exact: bool = False


class ObjectiveSettings(Open):
    """A policy objective; `plans/objective.py` says which can be."""

    name: str
    mode: Literal["decoupled", "bypass"]
    clip_low: pydantic.FiniteFloat
    clip_high: pydantic.FiniteFloat
    dual_clip: pydantic.FiniteFloat | None
    aggregation: str
    loss_constant: pydantic.FiniteFloat | None
    denominator: str


class MistakeNumbers(Open):
    """What a mistake makes of a batch."""

    loss: pydantic.FiniteFloat | None
    size: pydantic.FiniteFloat | None
    cos: pydantic.FiniteFloat | None


class Mistake(MistakeNumbers):
    """The same of all batches, computed again as well."""

    name: Literal["uncorrected", "twice", "average"]
    meaning: str


class ObjectiveBatch(Open):
    """One training batch under an objective."""

    batch: pydantic.FiniteFloat | int | str | bool | None
    divisor: pydantic.FiniteFloat
    metrics: Metrics
    mistakes: dict[Literal["uncorrected", "twice", "average"], MistakeNumbers]


class Objective(Open):
    """What an objective makes of the dump; the means over its batches are computed again."""

    settings: ObjectiveSettings
    batch_by: str | None
    moved: bool
    metrics: Metrics
    mistakes: list[Mistake]
    batches: list[ObjectiveBatch] = pydantic.Field(min_length=1)


def _known_cause(name: str) -> str:
    if name not in CAUSES:
        raise ValueError("no cause that this release knows")
    return name


class Cause(Open):
    """The likely cause of the gap, as `CauseFinding.to_dict` writes it."""

    cause: Annotated[str, pydantic.AfterValidator(_known_cause)]
    share: pydantic.FiniteFloat
    share_bound: Literal["at_least", "at_most"]
    share_interval: Ends | None
    token_share: pydantic.FiniteFloat | None
    parameters: dict[str, pydantic.FiniteFloat | str]
    intervals: dict[str, Ends]
    is_minor: bool
    headline: str
    evidence: list[str]
    advice: str


class Clusters(Open):
    """What intervals were drawn of."""

    by: str
    n: pydantic.NonNegativeInt
    exact: bool


class Pictures(Open):
    """Binned totals.  values: canonical metrics beside a profile's, the whole dump's first."""

    counts: dict[str, dict[str, list[Count]]]
    spread: dict[str, list[list[pydantic.FiniteFloat]]]
    histograms: dict[str, BucketCounts]
    log_ratios: BucketCounts
    values: Annotated[list[Metrics], pydantic.Field(min_length=1)] = []


class Document(Open):
    """A whole report; every part is validated, also those that are not used: half a report is no report."""

    rlcorr: Head
    inputs: list[Input] = pydantic.Field(min_length=1)
    plan: dict[str, Any]
    profile: str
    verdict: Conclusion = Conclusion(level="equal", causes=[], usable=[], failing=[], n_sequences=0, kept_fraction=None)
    onset: Drift | None = None
    cause: Cause | None = None
    counts: Counts
    clusters: Clusters | None = None
    metrics: Metrics = pydantic.Field(min_length=1)
    intervals: dict[str, Ends]
    groups: list[Group]
    health: list[Health]
    trends: Trends | None = None
    problems: dict[str, Problem]
    suspicions: list[Suspicion]
    impossible: Impossible | None = None
    suggestions: list[Suggestion] = []
    geometric: Geometric | None = None
    notes: list[str]
    objective: Objective | None = None
    pictures: Pictures = Pictures(counts={}, spread={}, histograms={}, log_ratios=[[], []])
