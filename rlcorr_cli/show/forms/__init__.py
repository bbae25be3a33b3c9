"""FORMS: suffix -> how a report is written there.

A new form is one module with `write`, its row here, and its suffix in `manual/pictures.md`.

Modules are imported when used: the page takes jinja2 and matplotlib.  The command line's help names the suffixes, so
nothing heavy is imported above.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.files.destinations import Destination
    from rlcorr_cli.files.outputs import Outputs
    from rlcorr_cli.results.report import Report

FORMS: dict[str, str] = {
    ".json": "document",
    ".html": "page",
    ".md": "markdown",
    ".csv": "table",
    ".tb": "tensorboard",
    ".rlcorr": "totals",
}
SHEETS = (".json", ".html", ".md", ".csv", ".png", ".svg", ".pdf")
"""Forms of what is no report of `analyze`: `sheet.py` has them."""
PICTURED = (".json", ".html", ".md", ".rlcorr")
"""Forms that hold pictures, or what they are drawn from."""
TOTALLED = (".rlcorr",)
"""Forms that hold what a report was made of."""
SEVERAL_FILES = (".md", ".tb")
"""Forms that are more than one file, whose modules say which."""


def destinations(path: Path) -> "tuple[Destination, ...]":
    """All that may be written for a report of this name."""
    if path.suffix.lower() in SEVERAL_FILES:
        return _module(path).destinations(path)
    from rlcorr_cli.files.destinations import Destination

    return (Destination(path=path, overwrite=True),)


def sheet_destinations(path: Path) -> "tuple[Destination, ...]":
    """All that may be written for a sheet of this name."""
    from rlcorr_cli.files.destinations import Destination

    picture = (sheet_picture(path),) if path.suffix.lower() == ".md" else ()
    return (*picture, Destination(path=path, overwrite=True))


def sheet_picture(path: Path) -> "Destination":
    """Where the picture of a Markdown sheet of this name lies."""
    from rlcorr_cli.files.destinations import Destination

    directory = path.with_name(f"{path.stem}-figures")
    return Destination(path=directory / f"{path.stem}.png", overwrite=True, makes_parents=True)


def write(report: "Report", path: Path, staging: "Outputs") -> None:
    """Stage a report in the form of the path's suffix."""
    _module(path).write(report, path, staging)


def _module(path: Path) -> Any:
    return import_module(f"rlcorr_cli.show.forms.{FORMS[path.suffix.lower()]}")
