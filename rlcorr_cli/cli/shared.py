"""What commands share: arguments as values, the progress bar, printing a report."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlcorr_cli.show.stdout import emit_json, emit_json_pieces

if TYPE_CHECKING:
    from rlcorr_cli.results.filtered import Filtered
    from rlcorr_cli.results.report import Report
    from rlcorr_cli.runs.analyze import Progress, Watch


def watch(quiet: bool) -> "Watch | None":
    """A progress bar where there is a terminal to draw it on."""
    return None if quiet or sys.stderr is None or not sys.stderr.isatty() else _bar


@contextmanager
def _bar(n_bytes: int) -> "Generator[Progress]":
    from rlcorr_cli.show.progress import Bar

    with Bar(n_bytes) as bar:
        yield bar.advance


def show(report: "Report", as_json: bool) -> None:
    """The report on stdout."""
    if as_json:
        from rlcorr_cli.show.forms.texts import report_json

        emit_json_pieces(report_json(report, pictures=False))
        return
    from rlcorr_cli.show import print_result

    print_result(report)


def show_filtered(filtered: "Filtered", as_json: bool) -> None:
    """What filter did, on stdout."""
    if as_json:
        emit_json(filtered.to_dict())
        return
    from rlcorr_cli.show import print_result

    print_result(filtered)
