"""What commands share: arguments as values, the progress bar, printing a report."""

import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.api.drawing import refuse_form
from rlcorr_cli.atomic import check_apart, same_place
from rlcorr_cli.errors import UsageError
from rlcorr_cli.present.forms import PICTURED
from rlcorr_cli.present.forms import write as write_form
from rlcorr_cli.present.forms.document import text as document
from rlcorr_cli.present.stdout import emit
from rlcorr_cli.present.terminal.report import print_report
from rlcorr_cli.report.report import Report

if TYPE_CHECKING:
    from rlcorr_cli.pipeline.analyze import Progress, Watch
    from rlcorr_cli.report.filtered import Filtered


def outputs(
    paths: Sequence[str], dumps: Sequence[str], group_by: Sequence[str], *, plan: str | None, quarantine: str | None
) -> tuple[Path, ...]:
    """Report files, checked before the long scan rather than after it.  plan, quarantine: other files of the run."""
    check_apart([*(("-o", Path(path)) for path in paths), ("--quarantine", Path(quarantine) if quarantine else None)])
    for path in map(Path, paths):
        refuse_form(path, dumps, n_group_columns=len(group_by))
        if plan is not None and os.path.exists(plan) and same_place(path, Path(plan)):
            raise UsageError(f"-o and --plan name the same file, {path}.", "Name another place with -o.")
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
