"""`index`: many saved reports, such as those of every night, on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rlcorr_cli.commands.arguments import Overwrite, PageOutputs, Paths, paths
from rlcorr_cli.commands.declared import Opt
from rlcorr_cli.commands.outputs import check_touched, finished, sheet_files
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.show.forms import PAGES, sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.results.indexed import ReportIndex


def index(
    reports: Annotated[
        Paths,
        Opt(
            help="Reports that `analyze -o` wrote (.json, .rlcorr), or folders of them.",
            typed=list[str],
            metavar="REPORT...",
        ),
    ],
    *,
    output: PageOutputs = (),
    overwrite: Overwrite = False,
) -> "ReportIndex":
    """List saved reports in one table: verdict, cause, broken rules, main numbers.

    The oldest dump comes first.  On a page, each report that has a page of the same name beside it links to it.
    """
    from rlcorr_cli.runs.index import index as run

    named = paths(reports)
    files = sheet_files(output, PAGES)
    places = sheet_destinations(files, overwrite)
    notes = check_touched(places, ())
    with Outputs() as staging:
        return finished(run(named, folder=files[0].parent if files else Path()), notes, files, staging)
