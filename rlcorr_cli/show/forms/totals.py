"""part.rlcorr: the totals that a result was made of, which its command adds to others."""

from pathlib import Path

from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.saved_totals import content


def write(report: Report, path: Path, staging: Outputs) -> None:
    """Stage a report's totals as a file."""
    if report.totals is None:
        raise UsageError(f"{path}: this report has not kept its totals.", "Take one of analyze(dumps, totals=True).")
    staging.write(Destination(path=path, overwrite=True), content(report.totals))
