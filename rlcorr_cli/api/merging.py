"""`merge`: saved totals of several runs as one report."""

import glob
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rlcorr_cli.api.arguments import Files, Names, kind_of, names, paths
from rlcorr_cli.api.touched import check_touched, report_files
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files import located
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved_totals import AGAIN, SUFFIX, holds_totals
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.runs.reading import Watch


@speaks_of_arguments
def merge(
    parts: Files,
    *,
    output: Files = (),
    group_by: Names = (),
    allow_overlap: bool = False,
    watch: "Watch | None" = None,
) -> Report:
    """Add saved totals: the report that one run over all their rows gives.

    parts: files that `analyze(..., output="part.rlcorr")` or `merge` wrote, or globs of them.  group_by: some of the
    columns that they are grouped by; none for all of these.  allow_overlap: add parts that hold the same rows, too.
    output: files that the report is written to, as by `save`; a .rlcorr can be merged again.
    """
    from rlcorr_cli.runs.merge import merge as run

    if not isinstance(parts, (str, list, tuple)) and not hasattr(parts, "__fspath__"):
        raise UsageError(f"parts should be paths, not {kind_of(parts)}.", "Name files of saved totals.")
    inputs = tuple(path for typed in paths(parts) for path in _expanded(typed))
    for path in inputs:
        if not holds_totals(path):
            raise UsageError(f"{path} holds no totals to add: those are called {SUFFIX}.", AGAIN)
    columns = names("group_by", group_by)
    outputs = report_files(output, n_group_columns=len(columns) or 1)
    notes = check_touched([place for path in outputs for place in forms.destinations(path)], inputs)
    with Outputs() as staging:
        report = run(inputs, group_by=columns, allow_overlap=allow_overlap, watch=watch)
        if report.totals is not None:  # only now it is known by what the parts are grouped
            report_files(output, n_group_columns=len(report.totals.provenance.groups))
        report = replace(report, notes=report.notes + notes)
        for path in outputs:
            forms.write(report, path, staging)
        staging.publish()
    return report


def _expanded(typed: str) -> Iterable[str]:
    """The files that a name of parts stands for."""
    if not glob.has_magic(typed):
        return [located(typed)]
    from rlcorr_cli.reading.find import files  # here, because it loads pyarrow

    return files([typed])
