"""What commands share: arguments as values, the progress bar, printing a report."""

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.api.drawing import refuse_form
from rlcorr_cli.present.forms import PICTURED
from rlcorr_cli.present.forms import write as write_form
from rlcorr_cli.present.forms.document import text as document
from rlcorr_cli.present.stdout import emit
from rlcorr_cli.present.terminal.report import print_report
from rlcorr_cli.report.report import Report

if TYPE_CHECKING:
    from rlcorr_cli.pipeline.analyze import Progress, Watch
    from rlcorr_cli.report.filtered import Filtered


def outputs(paths: Sequence[str], dumps: Sequence[str], group_by: Sequence[str]) -> tuple[Path, ...]:
    """Report files, checked before the long scan rather than after it."""
    for path in map(Path, paths):
        refuse_form(path, dumps, n_group_columns=len(group_by))
    return tuple(map(Path, paths))


def pictured(paths: Sequence[Path]) -> bool:
    """Whether any of the files takes what pictures are drawn from."""
    return any(path.suffix.lower() in PICTURED for path in paths)


def watch(quiet: bool) -> "Watch | None":
    """A progress bar where there is a terminal to draw it on."""
    return None if quiet or sys.stderr is None or not sys.stderr.isatty() else _bar


@contextmanager
def _bar(n_bytes: int) -> "Generator[Progress]":
    from rlcorr_cli.present.terminal.progress import Bar

    with Bar(n_bytes) as bar:
        yield bar.advance


def write(report: Report, paths: Sequence[Path], as_json: bool) -> None:
    """The report to its files, then to stdout."""
    for path in paths:
        write_form(report, path)
    if as_json:
        emit(document(report, pictures=False))
    else:
        print_report(report)


def show_filtered(filtered: "Filtered", as_json: bool) -> None:
    """What filter did, on stdout."""
    if as_json:
        emit(json.dumps(filtered.to_dict(), indent=2, allow_nan=False) + "\n")
        return
    from rlcorr_cli.present.terminal.filtered import print_filtered

    print_filtered(filtered)
