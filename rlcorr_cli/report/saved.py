"""Saved reports, read back: what `analyze --json` printed or `-o report.json` wrote.

A file of anything else is a DataError, whatever is wrong with it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.plans.files import plan_from_dict
from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.report.checked import Subject, doubts
from rlcorr_cli.report.report import SCHEMA
from rlcorr_cli.rules.judge import Section

Metrics = dict[str, pydantic.FiniteFloat | None]
Key = dict[str, pydantic.FiniteFloat | int | str | bool | None]
Ends = Annotated[list[pydantic.FiniteFloat], pydantic.Field(min_length=2, max_length=2)]

AGAIN = "Write one with `rlcorr analyze DUMP -o report.json`."


def is_report(dumps: Sequence[str]) -> bool:
    """Whether a saved report is named rather than a dump."""
    return len(dumps) == 1 and dumps[0].lower().endswith(".json") and Path(dumps[0]).is_file()


def load(path: str) -> dict[str, Any]:
    """The document in a file, known to be a report of this schema by its head only."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refused)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path} cannot be read as a report: {reason}.", AGAIN) from None
    if not isinstance(data, dict) or "rlcorr" not in data:
        raise DataError(f"{path} is not a report of rlcorr's.", f"A dump of JSON lines is called .jsonl. {AGAIN}")
    head = data["rlcorr"]
    if not isinstance(head, Mapping) or type(head.get("schema")) is not int or head["schema"] != SCHEMA:
        raise DataError(f"{path} was written by another version of rlcorr.", AGAIN)
    return data


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read_subject(path: str) -> Subject:
    """What a saved report holds to be judged.

    Under a profile that is the peer's metrics, and the canonical ones where the report has them for its pictures.
    """
    data = load(path)
    try:
        return _subject(data)
    except (ValueError, UsageError) as error:  # pydantic's error is a ValueError
        raise DataError(f"{path} is not a whole report: {_first(error)}.", AGAIN) from None


def _first(error: Exception) -> str:
    """What is wrong, and the first place where."""
    if isinstance(error, pydantic.ValidationError):
        one = error.errors()[0]
        return f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}"
    return str(error).rstrip(".")


class Open(pydantic.BaseModel):
    """A record of right types; keys of a later release are let be."""

    model_config = pydantic.ConfigDict(strict=True, extra="ignore")


class Head(Open):
    """Who wrote it; `load` looks at its schema."""

    version: str


class Input(Open):
    """One file of the dump."""

    path: str
    format: str
    rows: pydantic.NonNegativeInt
    bytes: pydantic.NonNegativeInt
    columns: dict[str, str]


class Counts(Open):
    """What the numbers are of."""

    rows: pydantic.NonNegativeInt
    sequences: pydantic.NonNegativeInt
    empty_sequences: pydantic.NonNegativeInt
    tokens: pydantic.NonNegativeInt
    masked_tokens: pydantic.NonNegativeInt
    bad_rows: pydantic.NonNegativeInt = 0


class Group(Open):
    """One group."""

    key: Key = pydantic.Field(min_length=1)
    counts: Counts
    metrics: Metrics


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
    """What may be wrong with whole files."""

    name: str
    path: str
    evidence: str
    cure: str
    n_files: pydantic.NonNegativeInt


class Impossible(Open):
    """A value that proves a column wrong."""

    metric: str
    value: pydantic.FiniteFloat
    interval: Ends
    proves: str


class Pictures(Open):
    """What `plot` draws, and looks into.  values: canonical metrics beside a profile's, the whole dump's first."""

    counts: dict[str, Any]
    spread: dict[str, Any]
    histograms: dict[str, Any]
    log_ratios: list[Any]
    values: Annotated[list[Metrics], pydantic.Field(min_length=1)] = []


class Document(Open):
    """A report, looked at in every part, be it judged or not: half a report is no report."""

    rlcorr: Head
    inputs: list[Input] = pydantic.Field(min_length=1)
    plan: dict[str, Any]
    profile: str
    counts: Counts
    metrics: Metrics = pydantic.Field(min_length=1)
    intervals: dict[str, Ends]
    groups: list[Group]
    health: list[Health]
    problems: dict[str, Problem]
    suspicions: list[Suspicion]
    impossible: Impossible | None = None
    notes: list[str]
    pictures: Pictures = Pictures(counts={}, spread={}, histograms={}, log_ratios=[])


def _subject(data: dict[str, Any]) -> Subject:
    document = Document.model_validate(data)
    plan_from_dict(document.plan)
    keys: list[Key] = [{}, *(group.key for group in document.groups)]
    metrics = [document.metrics, *(group.metrics for group in document.groups)]
    canonical = document.pictures.values or [Metrics() for _ in keys]
    sections = [Section(key, {**own, **more}) for key, own, more in zip(keys, metrics, canonical, strict=True)]
    for section in sections:
        if set(section.values) != set(sections[0].values):
            raise ValueError(f"the group {section.key} has other metrics than the whole dump")
    suspected = [Suspected(**one.model_dump()) for one in document.suspicions]
    return Subject(tuple(one.model_dump() for one in document.inputs), tuple(sections), doubts(suspected))
