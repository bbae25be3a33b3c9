"""`merge`: saved totals of several runs as one report."""

import glob
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from rlcorr_cli.commands.arguments import READING, Files, GroupBy, Outputs, Watching, kind_of, names, paths
from rlcorr_cli.commands.declared import Opt
from rlcorr_cli.commands.outputs import check_touched, finished, report_files
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files import located
from rlcorr_cli.files.outputs import Outputs as Staging
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.results.report import Report


def merge(
    parts: Annotated[
        Files, Opt(help="Files that analyze -o part.rlcorr or merge wrote.", typed=list[str], metavar="PART...")
    ],
    *,
    group_by: GroupBy = (),
    allow_overlap: Annotated[bool, Opt(help="Add parts that hold the same rows.", panel=READING)] = False,
    output: Outputs = (),
    watch: Watching = None,
) -> "Report":
    """Add totals that were saved: the report of one run over all the data.

    Globs of files are taken, too.  Groups are by some of the columns that the parts are grouped by, or by all of these.
    A .rlcorr that is written can be merged again.
    """
    from rlcorr_cli.results.saved_totals import AGAIN, SUFFIX, holds_totals
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
    with Staging() as staging:
        report = run(inputs, group_by=columns, allow_overlap=allow_overlap, watch=watch)
        if report.totals is not None:  # only now it is known by what the parts are grouped
            report_files(output, n_group_columns=len(report.totals.provenance.groups))
        return finished(report, notes, outputs, staging)


def _expanded(typed: str) -> Iterable[str]:
    """The files that a name of parts stands for."""
    if not glob.has_magic(typed):
        return [located(typed)]
    from rlcorr_cli.reading.find import files  # here, because it loads pyarrow

    return files([typed])
