"""index(): saved reports are read one after the other, and of each a row is kept.

A report is held to its own rules as `check` holds it, so that an index calls nothing fine that `check` fails.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.metrics.framework_names import CANONICAL
from rlcorr_cli.places import scheme
from rlcorr_cli.results.checked import check, measurements_of
from rlcorr_cli.results.indexed import IndexedReport, ReportIndex
from rlcorr_cli.results.policy import policy
from rlcorr_cli.results.saved import read_report
from rlcorr_cli.results.saved_totals import SUFFIX


def index(paths: Sequence[str], *, folder: Path) -> ReportIndex:
    """The index of the reports that are named, and of those in folders that are named.

    A file that is named and no report is a DataError; one that lies in a folder is left out with a note.  folder: where
    the index is written to.
    """
    rows, notes = list[IndexedReport](), list[str]()
    for path in dict.fromkeys(map(located, paths)):
        if not filesystem(path).is_directory(path):
            rows.append(_row(path, folder))
            continue
        for inside in _reports_in(path):
            try:
                rows.append(_row(inside, folder))
            except DataError as error:
                notes.append(f"Left out: {error.message}")
    if not rows:
        where = " and ".join(paths)
        raise DataError(f"{where} holds no report.", "Write some with `rlcorr analyze DUMP -o report.json`.")
    return ReportIndex(reports=tuple(sorted(rows, key=lambda row: row.changed)), notes=tuple(notes))


def _reports_in(folder: str) -> Iterator[str]:
    """The files of a folder that may be reports, by name; of a report and its totals the report alone."""
    found = sorted(path.removeprefix("./") for path in filesystem(folder).below(folder))
    names = set(found)
    for path in found:
        stem, suffix = os.path.splitext(path)
        if suffix == ".json" or (suffix == SUFFIX and f"{stem}.json" not in names):
            yield path


def _row(path: str, folder: Path) -> IndexedReport:
    """The row of one report, with the page beside it."""
    report = read_report(path)
    rules = policy(defaults=report.rules, own_names=report.profile == CANONICAL)
    findings = check(measurements_of(report), rules).findings
    failed, warned = (
        tuple(dict.fromkeys(finding.metric for finding in findings if finding.status == status))
        for status in ("fail", "warn")
    )
    steps = report.by_step
    values = report.whole.values
    page = Path(path).with_suffix(".html")
    has_page = not scheme(path) and page.is_file()  # objects of stores have no paths from here
    return IndexedReport(
        report=path,
        page=os.path.relpath(page, folder) if has_page else None,
        inputs=report.inputs,
        plan=report.plan.name,
        counts=report.whole.counts,
        steps=len(steps),
        level=report.verdict.level,
        story=report.story,
        k3_kl=values.get("k3_kl"),
        last_k3_kl=steps[-1].values.get("k3_kl") if steps else None,
        seq_ess=values.get("seq_ess"),
        kept_fraction=report.verdict.kept_fraction,
        failed=failed,
        warned=tuple(name for name in warned if name not in failed),
    )
