"""report.json: what `--json` prints, and what pictures are drawn from."""

import json
from pathlib import Path

from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.report.report import Report


def text(report: Report, *, pictures: bool = True) -> str:
    """The JSON document.

    pictures: whether it holds the binned totals that pictures are drawn from; they come last, in one line.
    """
    document = report.to_dict()
    binned = document.pop("pictures", None)
    head = json.dumps(document, indent=2, allow_nan=False)
    if binned is None or not pictures:
        return f"{head}\n"
    counts = json.dumps(binned, allow_nan=False, separators=(",", ":"))
    return f'{head.removesuffix("}").rstrip()},\n  "pictures": {counts}\n}}\n'


def write(report: Report, path: Path, staging: Staging) -> None:
    """Stage the document as a file."""
    staging.write(Destination(path=path, overwrite=True), text(report).encode())
