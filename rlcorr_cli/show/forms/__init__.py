"""The files that a result is written to, by suffix: FORMS of a report of `analyze`, SHEETS of other results, PAGES of
those without a picture.

Renderers are imported when they are used: a page takes jinja2 and matplotlib.  The command line's help names the
suffixes, so nothing heavy is imported above.
"""

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rlcorr_cli.errors import DataError, UsageError

if TYPE_CHECKING:
    from rlcorr_cli.files.destinations import Destination
    from rlcorr_cli.files.outputs import Outputs
    from rlcorr_cli.show.document import Document
    from rlcorr_cli.show.figures import Drawn, Sheet

FORMS = (".json", ".html", ".md", ".csv", ".tb", ".rlcorr")
"""Of a report of `analyze`."""
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".json", ".html", ".md", ".csv")
"""Of a result that has no picture."""
SHEETS = (*PAGES, *PICTURES)
"""Of all other results."""
PICTURED = (".json", ".html", ".md", ".rlcorr")
"""Forms of a report that hold pictures, or what they are drawn from."""
TOTALLED = (".rlcorr",)
"""Forms that hold what a result was made of."""
TOTALLED_SHEETS = (*SHEETS, *TOTALLED)
"""Of results that may keep what they were made of."""


def destinations(paths: Collection[Path], overwrite: bool) -> "list[Destination]":
    """All that may be written for reports of these names."""
    return [replace(place, overwrite=overwrite) for path in paths for place in _of_report(path)]


def sheet_destinations(paths: Collection[Path], overwrite: bool) -> "list[Destination]":
    """The same of any other results."""
    return [replace(place, overwrite=overwrite) for path in paths for place in _of_sheet(path)]


def _of_report(path: Path) -> "tuple[Destination, ...]":
    if path.suffix.lower() == ".tb":
        from rlcorr_cli.show.forms.tensorboard import destination

        return (destination(path),)
    if path.suffix.lower() == ".md":
        from rlcorr_cli.show.figures import KINDS

        return (*(_picture_file(path, kind) for kind in KINDS), _file(path))
    return (_file(path),)


def _of_sheet(path: Path) -> "tuple[Destination, ...]":
    return (*((_picture_file(path, ""),) if path.suffix.lower() == ".md" else ()), _file(path))


def _file(path: Path) -> "Destination":
    from rlcorr_cli.files.destinations import Destination

    return Destination(path=path, overwrite=True)


def _picture_file(path: Path, name: str) -> "Destination":
    """A picture beside a Markdown document: of a report's kind, or the only one."""
    picture = path.with_name(f"{path.stem}-figures") / f"{name or path.stem}.png"
    return replace(_file(picture), makes_parents=True)


def write(result: Any, path: Path, staging: "Outputs") -> None:
    """Stage a result in the form of the path's suffix; a form takes what `destinations` says."""
    match path.suffix.lower():
        case ".rlcorr":
            from rlcorr_cli.results.saved_totals import content

            if result.totals is None:
                message = f"{path}: this report has not kept its totals."
                raise UsageError(message, "Take one of analyze(dumps, totals=True).")
            staging.write(_file(path), content(result.totals))
        case ".tb":
            from rlcorr_cli.show.forms.tensorboard import write as write_events

            write_events(result, path, staging)
        case _:
            from rlcorr_cli.show import document_of

            write_document(document_of(result), path, staging)


def write_document(document: "Document", path: Path, staging: "Outputs") -> None:
    """Stage a document in the form of the path's suffix."""
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        drawn = whole_picture(document)
        if drawn.figure is None:
            raise DataError(f"{path}: there is nothing to draw: {document.headline}", "Write .json or .md.")
        staging.write(_file(path), drawn.write(suffix.removeprefix(".")))
        return
    if suffix == ".html":
        from rlcorr_cli.show.forms import page

        staging.write(_file(path), page.page_html(document).encode())
        return
    from rlcorr_cli.show.forms import texts

    if suffix == ".md":
        staging.write(_file(path), _markdown(document, path, staging).encode())
    else:
        lines = document.json if suffix == ".json" else texts.table_lines(document.records)
        staging.write(_file(path), (line.encode() for line in lines))


def _markdown(document: "Document", path: Path, staging: "Outputs") -> str:
    """The Markdown of a document, whose pictures are staged beside it, before it."""
    from rlcorr_cli.show.figures import drawn_picture
    from rlcorr_cli.show.forms import texts

    links = dict[str, tuple[str, str]]()
    document = replace(document, sections=list(document.sections))
    for each in (each for section in document.sections for each in section.pictures):
        figure = drawn_picture(each, source=document.small_print, captioned=not each.about)
        if figure.figure is not None:
            place = _picture_file(path, each.name)
            staging.write(place, figure.write("png"))
            link = "/".join(quote(os.fsencode(name)) for name in place.path.parts[-2:])
            links[each.name] = link, figure.caption
    return texts.markdown(document, links)


def whole_picture(document: "Document", kind: str = "", sheet: "Sheet | None" = None) -> "Drawn":
    """The picture of all of a document, under a name; where there is nothing to draw, the headline is its caption."""
    from rlcorr_cli.show.figures import SHEET, Drawn, drawn_picture

    whole = next((each for section in document.sections for each in section.pictures), None)
    if whole is None:
        return Drawn(kind, None, document.headline)
    made = drawn_picture(replace(whole, name=kind), source=document.small_print, sheet=sheet or SHEET)
    return made if made.figure is not None else replace(made, caption=document.headline)
