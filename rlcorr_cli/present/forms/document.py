"""report.json: what `--json` prints, and what pictures are drawn from."""

import json
from pathlib import Path

from rlcorr_cli.atomic import replace_file
from rlcorr_cli.report.report import Report


def text(report: Report) -> str:
    """The JSON document; the counts of pictures last, in one line, and no other thing in long ones."""
    found = report.to_dict()
    pictures = found.pop("pictures", None)
    head = json.dumps(found, indent=2, allow_nan=False)
    if pictures is None:
        return f"{head}\n"
    counts = json.dumps(pictures, allow_nan=False, separators=(",", ":"))
    return f'{head.removesuffix("}").rstrip()},\n  "pictures": {counts}\n}}\n'


def write(report: Report, path: Path) -> None:
    """The document in a file."""
    replace_file(path, text(report).encode())
