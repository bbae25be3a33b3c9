"""report.json: what `--json` prints, and what pictures are drawn from."""

import json
from pathlib import Path

from rlcorr_cli.present.files import replace_file
from rlcorr_cli.report import Report


def text(report: Report) -> str:
    """The JSON document."""
    return json.dumps(report.to_dict(), indent=None if report.pictures else 2, allow_nan=False) + "\n"


def write(report: Report, path: Path) -> None:
    """The document in a file."""
    replace_file(path, text(report).encode())
