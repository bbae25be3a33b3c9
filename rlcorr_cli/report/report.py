"""A Report: everything `analyze` found, as plain values; text, JSON and later forms render it.

`to_dict` is the stable JSON form; `schema` changes when a key changes meaning.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from rlcorr_cli import __version__
from rlcorr_cli.batch import Input
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.plans.files import plan_from_dict
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.totals.binned import Pictures, histogram_from_list, histogram_to_list
from rlcorr_cli.totals.families import Values
from rlcorr_cli.totals.histogram import HISTOGRAM_RELATIVE_ERROR, Histogram

if TYPE_CHECKING:
    import polars

SCHEMA = 1
_WITHIN = f"{100 * HISTOGRAM_RELATIVE_ERROR:.1f} %"
QUANTILE_NOTE = f"Quantiles of the log-ratio come from a histogram: within {_WITHIN} of their own size."


@dataclass(frozen=True)
class Group:
    """One group of rows.  key: column -> value; metrics are the profile's, values the canonical ones."""

    key: dict[str, Any]
    counts: dict[str, int]
    metrics: Values
    values: Values


@dataclass(frozen=True)
class Report:
    """The whole dump first, then its groups; health is judged on canonical values whatever the profile.

    problems: class -> how many rows were left out for it (`rows`), and where the `first` is.
    suspicions: about whole files, from their first rows.
    """

    inputs: tuple[Input, ...]
    plan: Plan
    profile: str
    whole: Group
    intervals: Mapping[str, tuple[float, float]]
    groups: tuple[Group, ...]
    health: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    log_ratios: Histogram
    problems: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    suspicions: tuple[Suspected, ...] = ()
    seconds: float = 0.0
    pictures: Pictures | None = None

    def to_polars(self) -> "polars.DataFrame":
        """A row per group (the whole dump, without groups): its key, its counts, its metrics."""
        import polars

        rows = [{**group.key, **group.counts, **group.metrics} for group in self.groups or (self.whole,)]
        return polars.DataFrame(rows, infer_schema_length=None)

    def to_dict(self) -> dict[str, Any]:
        """The JSON report."""
        return {
            "rlcorr": {"version": __version__, "schema": SCHEMA},
            "inputs": [one.to_dict() for one in self.inputs],
            "plan": self.plan.to_dict(),
            "profile": self.profile,
            "counts": self.whole.counts,
            "metrics": self.whole.metrics,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "groups": [{"key": _plain(g.key), "counts": g.counts, "metrics": g.metrics} for g in self.groups],
            "health": list(self.health),
            "problems": {name: dict(one) for name, one in self.problems.items()},
            "suspicions": [asdict(one) for one in self.suspicions],
            "notes": list(self.notes),
            **self._pictures(),
        }

    def _pictures(self) -> dict[str, Any]:
        """What `plot` needs beside the rest, where it was counted; under a profile the canonical values, too."""
        if self.pictures is None:
            return {}
        values = {} if self.profile == "canonical" else {"values": [g.values for g in (self.whole, *self.groups)]}
        return {"pictures": {**self.pictures.to_dict(), "log_ratios": histogram_to_list(self.log_ratios), **values}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Report":
        """What `to_dict` wrote of a report with pictures.  KeyErrors and TypeErrors tell of another document."""
        pictures = data["pictures"]
        sections = [{"key": {}, "counts": data["counts"], "metrics": data["metrics"]}, *data["groups"]]
        values = pictures.get("values", [section["metrics"] for section in sections])
        groups = [
            Group(section["key"], section["counts"], section["metrics"], canonical)
            for section, canonical in zip(sections, values, strict=True)
        ]
        unknown = {metric.name for metric in METRICS} - set(groups[0].values)
        if unknown:
            raise LookupError(f"no {', '.join(sorted(unknown))}")
        return cls(
            tuple(
                Input(path=i["path"], format=i["format"], rows=i["rows"], n_bytes=i["bytes"], columns=i["columns"])
                for i in data["inputs"]
            ),
            plan_from_dict(data["plan"]),
            data["profile"],
            groups[0],
            {name: (ends[0], ends[1]) for name, ends in data["intervals"].items()},
            tuple(groups[1:]),
            tuple(data["health"]),
            tuple(data["notes"]),
            histogram_from_list(pictures["log_ratios"]),
            problems=data["problems"],
            suspicions=tuple(Suspected(**one) for one in data["suspicions"]),
            pictures=Pictures.from_dict(pictures),
        )


def _plain(key: Mapping[str, Any]) -> dict[str, Any]:
    """A group's values as JSON has them; dates and times in ISO form, infinities as text."""
    return {name: _json(value) for name, value in key.items()}


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value
