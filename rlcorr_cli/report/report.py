"""A Report: everything `analyze` found, as plain values; text, JSON and later forms render it.

`to_dict` is the stable JSON form; `schema` changes when a key changes meaning.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from rlcorr_cli import __version__
from rlcorr_cli.batch import GroupKey, Input
from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.metrics.corrections import canonical
from rlcorr_cli.metrics.diagnostics import METRICS, intervals
from rlcorr_cli.plans.files import plan_from_dict
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.quality.bad_rows import Problems
from rlcorr_cli.rules.rule import judge
from rlcorr_cli.totals.binned import Pictures, histogram_from_list, histogram_to_list
from rlcorr_cli.totals.families import Values
from rlcorr_cli.totals.normalize import normalize, normed_layout
from rlcorr_cli.totals.summary import HISTOGRAM_RELATIVE_ERROR, Histogram, Layout, Numbers, Replicates, Summary, total

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
            tuple(Input(i["path"], i["format"], i["rows"], i["bytes"], i["columns"]) for i in data["inputs"]),
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


@dataclass(frozen=True)
class Grouping:
    """How leaf keys are laid out.  batch: whether their first value is the training batch; columns: the rest."""

    batch: bool
    columns: tuple[str, ...]


def build(
    leaves: Mapping[GroupKey, Summary],
    layout: Layout,
    replicates: Replicates | None,
    grouping: Grouping,
    plan: Plan,
    profile: Profile | None,
    inputs: Sequence[Input],
    notes: Sequence[str],
    problems: Problems,
    suspicions: tuple[Suspected, ...],
) -> Report:
    """A report of finished totals.  A dump without rows or without a valid token is a DataError."""
    whole_counts = counts(total(leaves.values(), layout))
    whole_counts = {**whole_counts, "rows": whole_counts["rows"] + problems.n_rows, "bad_rows": problems.n_rows}
    refuse_empty(whole_counts, inputs)
    if plan.weighting is not None and plan.weighting.normalize == "batch":
        leaves = normalize(leaves, layout, plan.weighting.scope == "token", grouping.batch)
        layout = normed_layout(layout)
    everything = total(leaves.values(), layout)
    by_key: dict[GroupKey, list[Summary]] = {}
    for key, summary in leaves.items():
        by_key.setdefault(key[1:] if grouping.batch else key, []).append(summary)
    groups = [
        _group(dict(zip(grouping.columns, key, strict=True)), total(summaries, layout), plan, profile)
        for key, summaries in sorted(by_key.items(), key=lambda item: [_order(value) for value in item[0]])
    ]
    whole = replace(_group({}, everything, plan, profile), counts=whole_counts)
    return Report(
        tuple(inputs),
        plan,
        profile.name if profile else "canonical",
        whole,
        intervals(replicates) if profile is None and whole.counts["sequences"] > 1 else {},
        tuple(groups) if grouping.columns else (),
        tuple(judge(whole.values)),
        (*notes, *_notes(whole.values, problems)),
        Numbers(everything).histogram("log_ratio"),
        problems.to_dict(),
        suspicions,
    )


def counts(summary: Summary) -> dict[str, int]:
    """rows, sequences (with a valid token), empty_sequences, tokens (valid), masked_tokens; bad rows are not here."""
    numbers = Numbers(summary)
    return {
        "rows": int(numbers.sum("rows")),
        "sequences": int(numbers.sequences),
        "empty_sequences": int(numbers.sum("empty")),
        "tokens": int(numbers.tokens),
        "masked_tokens": int(numbers.sum("masked_tokens")),
    }


def refuse_empty(found: Mapping[str, int], inputs: Sequence[Input]) -> None:
    """Nothing to measure is never a result."""
    where = inputs[0].path if len(inputs) == 1 else f"{inputs[0].path} and {len(inputs) - 1} more"
    if not found["rows"]:
        raise DataError(f"{where}: no rows.", "Name a dump that holds at least one sequence.")
    bad = found["bad_rows"]
    if bad == found["rows"]:
        raise DataError(f"{where}: all {bad:,} rows are bad.", "`rlcorr inspect DUMP` says what is wrong with them.")
    if not found["tokens"]:
        rows = f"{found['rows'] - bad:,} rows are masked" + (f", and {bad:,} more rows are bad" if bad else "")
        raise DataError(
            f"{where}: no valid token; all {found['masked_tokens']:,} tokens of {rows}.",
            "If another column is the mask, name it: --map response_mask=COLUMN.",
        )


def _group(key: dict[str, Any], summary: Summary, plan: Plan, profile: Profile | None) -> Group:
    numbers = Numbers(summary)
    values = canonical(numbers, plan)
    metrics = values if profile is None else profile.write(numbers, plan)
    return Group(key, counts(summary), metrics, values)


def _notes(values: Values, problems: Problems) -> list[str]:
    notes = [QUANTILE_NOTE]
    notes += [f"{name}: {one['rows']:,} rows left out; {one['first']}." for name, one in problems.to_dict().items()]
    if problems.cleared:
        notes.append(f"{problems.cleared:,} tokens that are not finite were masked.")
    if (values["logprob_abs_diff_max"] or 0) > 340:
        notes.append("Some log-ratios lie beyond +-340; metrics that float64 cannot hold are null.")
    return notes


def _order(value: Any) -> tuple[int, Any]:
    """Numbers in order, text that is a number among them; then other text, then dates; null last."""
    if value is None:
        return (3, "")
    try:
        return (0, float(value))
    except (TypeError, ValueError):
        return (1, value) if isinstance(value, str) else (2, str(value))


def _plain(key: Mapping[str, Any]) -> dict[str, Any]:
    """A group's values as JSON has them; dates and times in ISO form, infinities as text."""
    return {name: _json(value) for name, value in key.items()}


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value
