"""report.json: what `--json` prints, and what pictures are drawn from."""

from collections.abc import Iterator
from pathlib import Path

from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.show import streamed


def pieces(report: Report, *, pictures: bool = True) -> Iterator[str]:
    """The JSON document, group by group.

    pictures: whether it holds the binned totals that pictures are drawn from; they come last.
    """
    document = report.to_dict(without="groups")
    binned = document.pop("pictures", None)
    last = {"pictures": binned} if pictures and binned is not None else {}
    return streamed.pieces(document, "groups", (group.to_dict() for group in report.groups), last)


def write(report: Report, path: Path, staging: Outputs) -> None:
    """Stage the document as a file."""
    staging.write(Destination(path=path, overwrite=True), (piece.encode() for piece in pieces(report)))
