"""Saved reports, read back: what `analyze --json` printed or `-o report.json` wrote becomes a Report again.

`check` and `plot` load it through `read_report`, and saved totals in its place; what is read, the fields of Report say.
A file of anything else is a DataError, whatever is wrong with it.  A clean dump's numbers are the yardstick of another
dump of the same model: `yardstick_in` reads them from whatever was saved of it.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rlcorr_cli.causes.diagnosis import CLEAN, UNCLEAR, Diagnosis
from rlcorr_cli.causes.features import Yardstick
from rlcorr_cli.causes.search import search
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.plans.documents import parse_json, read_text, too_large
from rlcorr_cli.records.record import SCHEMA
from rlcorr_cli.results.diagnosed import DiagnosisRun
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved_totals import SUFFIX, command_of, holds_totals, read_saved, read_totals, report_in

MOST_BYTES = 1 << 30
"""A group takes some 4,000."""
MOST_DIGITS = 20
"""Of a whole number: no 64 bits hold more."""
AGAIN = "Write one with `⟦analyze(DUMP)⟧ ⟦output report.json⟧`."
_REPORT = "`⟦analyze(DUMP)⟧ ⟦output report.json⟧` writes a report."

_OTHERS: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("plans", "recommendation"): (
        "a comparison of plans",
        f"`⟦compare(DUMP)⟧ ⟦output plans.png⟧` draws one, and {_REPORT}",
    ),
    ("swept", "points"): ("a sweep", f"`⟦sweep(DUMP)⟧ ⟦rs ratio.seq_mean⟧ ⟦output sweep.png⟧` draws one; {_REPORT}"),
    ("a", "b", "pairs"): ("a comparison of dumps", f"`⟦diff(A, B)⟧ ⟦output diff.png⟧` draws one, and {_REPORT}"),
    ("gap", "conclusion"): ("a diagnosis", f"`⟦diagnose(DUMP)⟧ ⟦output why.png⟧` draws one, and {_REPORT}"),
    ("findings", "status"): ("the result of a check", AGAIN),
    ("columns", "lengths"): ("what `rlcorr inspect` found", AGAIN),
}
"""Keys of other commands' JSON -> what it is, and what to do instead."""


def is_report(dumps: Sequence[str]) -> bool:
    """Whether a path names a saved report, or saved totals, rather than a dump."""
    if len(dumps) != 1:
        return False
    place = located(dumps[0])
    return place.lower().endswith((".json", SUFFIX)) and filesystem(place).is_file(place)


def load(path: str) -> tuple[str, dict[str, Any]]:
    """The text in a file, and its document, of which only the head is known to be one of this schema."""
    try:
        text = read_text(path, MOST_BYTES)
        data = parse_json(text, parse_constant=_refused, parse_int=_count)
    except RecursionError:
        raise DataError(f"{path} cannot be read as a report: it is nested too deep.", AGAIN) from None
    except UsageError as error:
        raise DataError(f"{path} cannot be read as a report: {error.what}", AGAIN) from None
    if not isinstance(data, dict) or "rlcorr" not in data:
        raise DataError(f"{path} is not a report of rlcorr's.", f"A dump of JSON lines is called .jsonl. {AGAIN}")
    head = data["rlcorr"]
    if not isinstance(head, Mapping) or type(head.get("schema")) is not int or head["schema"] != SCHEMA:
        raise DataError(f"{path} was written by another version of rlcorr.", AGAIN)
    return text, data


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _count(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise too_large()
    return int(text)


def read_report(path: str) -> Report:
    """The report that a file holds, or that its totals make."""
    if holds_totals(path):
        return report_in(path, read_totals(path))
    text, data = load(path)
    for keys, (what, instead) in _OTHERS.items():
        if set(keys) <= set(data):
            raise DataError(f"{path} is {what}, not a report of a dump.", instead)
    del data  # both, of a large report, are more than one needs
    try:
        return Report.from_json(text)
    except (ValueError, LookupError, OverflowError, UsageError) as error:
        raise DataError(f"{path} is not a complete report: {str(error).rstrip('.')}.", AGAIN) from None


def refuse_undrawable(report: Report, name: str, again: str = AGAIN) -> None:
    """Refuse a report, called `name`, without everything that pictures are drawn from.  again: how to get another."""
    if report.pictures is None:
        raise DataError(f"{name} holds no counts to draw pictures from.", again)
    lacking = sorted({metric.name for metric in METRICS} - set(report.whole.values))
    if lacking:
        raise DataError(f"{name} is not a complete report: it has no {', '.join(lacking)}.", again)


NAME_CLEAN = "Name a dump of the same model, sampled at the same temperature, in which nothing is wrong."
SAVE_CLEAN = "Name the clean dump itself, or write `⟦diagnose(CLEAN)⟧ ⟦output clean.json⟧`."


def yardstick_in(path: str) -> Yardstick:
    """Of a saved report (.json of `diagnose` or `analyze`) or saved totals (.rlcorr of either); a DataError of a dump
    that is not clean, or of a report that does not tell."""
    if holds_totals(path):
        if command_of(path) == DiagnosisRun.command:
            sample = read_saved(path, DiagnosisRun).sample
        else:
            sample = read_totals(path).measured.sample
        return _yardstick(path, None, None) if sample is None else yardstick_of(path, search(sample).diagnosis)
    _, data = load(path)
    cause, gap, story = (data.get(key) for key in ("cause", "gap", "story"))
    parameters = cause.get("parameters") if isinstance(cause, Mapping) else None
    cores: list[Any] = [each.get("core") for each in (gap, parameters) if isinstance(each, Mapping)]
    core = next((value for value in cores if isinstance(value, float)), None)
    return _yardstick(path, story.get("first") if isinstance(story, Mapping) else None, core)


def yardstick_of(path: str, diagnosis: Diagnosis, verdict: str | None = None) -> Yardstick:
    """Of a dump that was diagnosed; a DataError of one that is not clean.  verdict: where files have one of theirs."""
    return _yardstick(path, verdict or diagnosis.verdict, diagnosis.gap.core)


def _yardstick(path: str, verdict: str | None, core: float | None) -> Yardstick:
    name = os.path.basename(path.rstrip("/")) or path
    if verdict is not None and verdict not in (CLEAN, UNCLEAR):
        cause = ALL_CAUSES.get(verdict)
        if cause is None or cause.effect != "none":
            what = "it has too little data" if cause is None else f"its cause is {verdict}"
            raise DataError(f"{path} is no clean dump: {what}.", NAME_CLEAN)
    if not core:
        raise DataError(f"{path} does not tell how far apart its two policies are in log-odds.", SAVE_CLEAN)
    return Yardstick(core, name)
