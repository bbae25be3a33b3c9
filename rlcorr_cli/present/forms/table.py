"""report.csv: one line for each metric of the dump and of every group.

Text that a spreadsheet would take for a formula gets an apostrophe before it: a dump decides what its groups are
called.
"""

import csv
import io
from pathlib import Path

from rlcorr_cli.atomic import replace_file
from rlcorr_cli.present.stdout import clean
from rlcorr_cli.report.report import Report

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def text(report: Report) -> str:
    """The table as CSV: scope (total or group), keys, sequences, tokens, metric, value, and its 95 % interval."""
    keys = list(report.groups[0].key) if report.groups else []
    paper = io.StringIO()
    out = csv.writer(paper, lineterminator="\n")
    out.writerow(["scope", *map(cell, keys), "sequences", "tokens", "metric", "value", "low", "high"])
    for group in (report.whole, *report.groups):
        scope = "total" if group is report.whole else "group"
        place = [scope, *(cell(group.key.get(key)) for key in keys)]
        counts = [group.counts["sequences"], group.counts["tokens"]]
        for name, value in group.metrics.items():
            low, high = report.intervals.get(name, ("", "")) if group is report.whole else ("", "")
            out.writerow([*place, *counts, name, "" if value is None else repr(value), low, high])
    return paper.getvalue()


def cell(value: object) -> object:
    """A value from the dump, harmless in a spreadsheet."""
    if not isinstance(value, str):
        return "" if value is None else value
    shown = clean(value)
    return f"'{shown}" if shown.startswith(FORMULA) else shown


def write(report: Report, path: Path) -> None:
    """Write the table to a file."""
    replace_file(path, text(report).encode())
