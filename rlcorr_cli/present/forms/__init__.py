"""FORMS: suffix -> how a report is written there.  A new form is one module with `write` and its row here.

Modules are imported when used: the page takes jinja2 and matplotlib, TensorBoard an extra.  The command line's help
names the suffixes, so nothing heavy is imported above.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlcorr_cli.report.report import Report

FORMS: dict[str, str] = {
    ".json": "document",
    ".html": "page",
    ".md": "markdown",
    ".csv": "table",
    ".tb": "tensorboard",
}
PICTURED = (".json", ".html", ".md")
"""Forms that hold pictures, or what they are drawn from."""


def write(report: "Report", path: Path) -> None:
    """Write a report in the form of the path's suffix."""
    import_module(f"rlcorr_cli.present.forms.{FORMS[path.suffix.lower()]}").write(report, path)
