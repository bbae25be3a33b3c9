"""report.csv: one line for each metric of the dump and of every group.

Text that a spreadsheet would take for a formula gets an apostrophe before it: a dump decides what its groups are
called.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.report import Group, Report
from rlcorr_cli.show.stdout import clean

QUOTE = '"'
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def pieces(report: Report) -> Iterator[str]:
    """The table, group by group: floats with every digit, null as nothing, text harmless in a spreadsheet.

    Columns: scope ("total" or "group"), the group's keys, sequences, tokens, metric, value, and the ends low and high
    of its 95 % interval.
    """
    keys = tuple(report.groups[0].key) if report.groups else ()
    columns = ("scope", *keys, "sequences", "tokens", "metric", "value", "low", "high")
    metrics = {metric: _cell(metric) for metric in report.whole.all_metrics}
    yield line(columns)
    yield _lines("total", keys, report.whole, metrics=metrics, intervals=report.intervals)
    for group in report.groups:
        yield _lines("group", keys, group, metrics=metrics, intervals={})


def _lines(
    scope: str,
    keys: Iterable[str],
    group: Group,
    *,
    metrics: Mapping[str, str],
    intervals: Mapping[str, tuple[float, float]],
) -> str:
    """The lines of one group.  metrics: the names as cells."""
    values = (group.key.get(name) for name in keys)
    head = ",".join(map(_cell, (scope, *values, group.counts["sequences"], group.counts["tokens"])))
    ends = {metric: ",".join(map(_cell, ends)) for metric, ends in intervals.items()}
    return "".join(
        f"{head},{metrics[metric]},{'' if value is None else repr(value)},{ends.get(metric, ',')}\n"
        for metric, value in group.all_metrics.items()
    )


def line(values: Iterable[object]) -> str:
    """One line of a table; text that a spreadsheet would take for a formula is harmless in it."""
    return ",".join(map(_cell, values)) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value) if isinstance(value, float) else str(value)
    text = harmless(value)
    # Empty text is no null; line ends are not printable, so that none is left.
    return f'"{text.replace(QUOTE, QUOTE + QUOTE)}"' if QUOTE in text or "," in text or not text else text


def harmless(shown: str) -> str:
    """Text from the dump, without control characters, that no spreadsheet takes for a formula."""
    cleaned = clean(shown)
    return f"'{cleaned}" if cleaned.startswith(FORMULA) else cleaned


def write(report: Report, path: Path, staging: Outputs) -> None:
    """Stage the table as a file."""
    staging.write(Destination(path=path, overwrite=True), (piece.encode() for piece in pieces(report)))
