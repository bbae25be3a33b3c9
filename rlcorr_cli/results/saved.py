"""Saved reports, read back: what `analyze --json` printed or `-o report.json` wrote becomes a Report again.

`check` and `plot` load it through `read_report`, and saved totals in its place; `document.py` describes what is read.
A file of anything else is a DataError, whatever is wrong with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.plans.documents import parse_json, read_text
from rlcorr_cli.plans.files import plan_from_dict
from rlcorr_cli.reading import batch
from rlcorr_cli.results import report
from rlcorr_cli.results.clusters import Clusters
from rlcorr_cli.results.impossible import Impossible
from rlcorr_cli.results.objective import ObjectiveReport
from rlcorr_cli.results.report import SCHEMA, Report
from rlcorr_cli.results.saved_totals import SUFFIX, holds_totals, read_totals, report_in
from rlcorr_cli.results.suggest import GeometricBounds, SuggestedBounds
from rlcorr_cli.totals import binned
from rlcorr_cli.totals.histogram import Histogram

if TYPE_CHECKING:
    from rlcorr_cli.results.document import Document, Metrics, Pictures

MOST_BYTES = 1 << 30
"""A group takes some 4,000."""
AGAIN = "Write one with `rlcorr analyze DUMP -o report.json`."

_OTHERS: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("plans", "recommendation"): (
        "a comparison of plans",
        "`rlcorr compare DUMP -o plans.png` draws one, and `rlcorr analyze DUMP -o report.json` writes a report.",
    ),
    ("swept", "points"): (
        "a sweep",
        "`rlcorr sweep DUMP --rs ratio.seq_mean -o sweep.png` draws one; `rlcorr analyze DUMP -o report.json` writes a "
        "report.",
    ),
    ("a", "b", "pairs"): (
        "a comparison of dumps",
        "`rlcorr diff A B -o diff.png` draws one, and `rlcorr analyze DUMP -o report.json` writes a report.",
    ),
}
"""Keys of other commands' JSON -> what it is, and what to do instead."""


def is_report(dumps: Sequence[str]) -> bool:
    """Whether a path names a saved report, or saved totals, rather than a dump."""
    if len(dumps) != 1:
        return False
    place = located(dumps[0])
    return place.lower().endswith((".json", SUFFIX)) and filesystem(place).is_file(place)


def load(path: str) -> dict[str, Any]:
    """The document in a file, of which only the head is known to be one of this schema."""
    try:
        data = parse_json(read_text(path, MOST_BYTES), parse_constant=_refused)
    except RecursionError:
        raise DataError(f"{path} cannot be read as a report: it is nested too deep.", AGAIN) from None
    except UsageError as error:
        raise DataError(f"{path} cannot be read as a report: {error.message}", AGAIN) from None
    if not isinstance(data, dict) or "rlcorr" not in data:
        raise DataError(f"{path} is not a report of rlcorr's.", f"A dump of JSON lines is called .jsonl. {AGAIN}")
    for keys, (what, instead) in _OTHERS.items():
        if set(keys) <= set(data):
            raise DataError(f"{path} is {what}, not a report of a dump.", instead)
    head = data["rlcorr"]
    if not isinstance(head, Mapping) or type(head.get("schema")) is not int or head["schema"] != SCHEMA:
        raise DataError(f"{path} was written by another version of rlcorr.", AGAIN)
    return data


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_report(path: str) -> Report:
    """The report that a file holds, or that its totals make.

    Its findings, verdict and trends are those of this release's rules on its numbers.  Under a profile the canonical
    values are empty where it was saved without binned totals.
    """
    if holds_totals(path):
        return report_in(path, read_totals(path))
    data = load(path)
    try:
        return _report(data)
    except (ValueError, LookupError, OverflowError, UsageError) as error:  # pydantic's error is a ValueError
        raise DataError(f"{path} is not a complete report: {_first(error)}.", AGAIN) from None


def refuse_undrawable(report: Report, name: str) -> None:
    """Refuse a report, called `name`, without everything that pictures are drawn from."""
    if report.pictures is None:
        raise DataError(f"{name} holds no counts to draw pictures from.", AGAIN)
    lacking = sorted({metric.name for metric in METRICS} - set(report.whole.values))
    if lacking:
        raise DataError(f"{name} is not a complete report: it has no {', '.join(lacking)}.", AGAIN)


def _first(error: Exception) -> str:
    """The first thing that is wrong, and its place."""
    import pydantic

    if isinstance(error, pydantic.ValidationError):
        fault = error.errors()[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].lower()}"
    return str(error).rstrip(".")


def _report(data: dict[str, Any]) -> Report:
    from rlcorr_cli.results.document import Document

    document = Document.model_validate(data)
    pictures = document.pictures if "pictures" in document.model_fields_set else None
    objective = None if document.objective is None else ObjectiveReport.from_dict(document.objective.model_dump())
    groups = _groups(document, pictures, {} if objective is None else objective.named_metrics)
    for group in groups:
        if set(group.metrics) != set(groups[0].metrics) or set(group.values) != set(groups[0].values):
            raise ValueError(f"the group {dict(group.key)} has other metrics than the whole dump")
        if set(group.objective) != set(groups[0].objective):
            raise ValueError(f"the group {dict(group.key)} has other numbers of an objective than the whole dump")
    return Report(
        inputs=tuple(
            batch.Input(
                path=file.path,
                format=file.format,
                rows=file.rows,
                n_bytes=file.bytes,
                columns=file.columns,
                modified=file.modified,
            )
            for file in document.inputs
        ),
        plan=plan_from_dict(document.plan),
        profile=document.profile,
        whole=groups[0],
        intervals={name: (ends[0], ends[1]) for name, ends in document.intervals.items()},
        groups=tuple(groups[1:]),
        notes=tuple(document.notes),
        log_ratios=Histogram.empty() if pictures is None else binned.histogram_from_list(pictures.log_ratios),
        problems={name: problem.model_dump() for name, problem in document.problems.items()},
        anomalies=tuple(AnomalyFinding.from_dict(row.model_dump()) for row in document.suspicions),
        geometric=None if document.geometric is None else GeometricBounds(**document.geometric.model_dump()),
        suggestions=tuple(SuggestedBounds(**row.model_dump()) for row in document.suggestions),
        impossible=None if document.impossible is None else Impossible.from_dict(document.impossible.model_dump()),
        objective=objective,
        clusters=None if document.clusters is None else Clusters(**document.clusters.model_dump()),
        cause=None if document.cause is None else CauseFinding.from_dict(document.cause.model_dump()),
        pictures=None if pictures is None else binned.BinnedTotals.from_dict(pictures.model_dump()),
    )


def _groups(document: "Document", pictures: "Pictures | None", objective: "Metrics") -> list[report.Group]:
    """The whole dump, then its groups, as a Report has them.  objective: the whole's numbers, by full name."""
    whole = report.Group(
        key={},
        counts=document.counts.model_dump(exclude_unset=True),
        values=document.metrics,
        objective=objective,
    )
    groups = [
        report.Group(
            key=g.key,
            counts=g.counts.model_dump(exclude_unset=True),
            values=g.metrics,
            objective=g.objective or dict.fromkeys(objective),
            intervals={name: (ends[0], ends[1]) for name, ends in g.intervals.items()},
        )
        for g in document.groups
    ]
    values = [] if pictures is None else pictures.values
    if len(values) not in (0, 1 + len(groups)):
        raise ValueError(f"pictures.values: {len(values)} tables of {1 + len(groups)}")
    if document.profile == "canonical":
        return [whole, *groups]
    return [
        replace(group, values=canonical, peer_metrics=group.values)
        for group, canonical in zip((whole, *groups), values or [{}] * (1 + len(groups)), strict=True)
    ]
