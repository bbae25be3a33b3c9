"""report.csv: one line for each metric of the dump and of every group.

Text that a spreadsheet would take for a formula gets an apostrophe before it: a dump decides what its groups are
called.
"""

from pathlib import Path

from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.present.stdout import clean
from rlcorr_cli.report.report import Report

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def text(report: Report) -> str:
    """The report's `metric_table`: floats with every digit, null as nothing, text harmless in a spreadsheet."""
    table = report.metric_table().rename(harmless)
    text_type = table.schema["scope"]
    return table.map_columns(table.columns, lambda column: column.map_elements(_cell, text_type)).write_csv()


def _cell(value: object) -> str:
    return harmless(value) if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)


def harmless(shown: str) -> str:
    """Text from the dump, without control characters, that no spreadsheet takes for a formula."""
    cleaned = clean(shown)
    return f"'{cleaned}" if cleaned.startswith(FORMULA) else cleaned


def write(report: Report, path: Path, staging: Staging) -> None:
    """Stage the table as a file."""
    staging.write(Destination(path=path, overwrite=True), text(report).encode())
