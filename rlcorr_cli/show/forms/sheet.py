"""A Sheet: what commands other than `analyze` say, in words and rows, as a page, Markdown, a table or a picture.

A headline with its reasons, panels to draw, tables, what was read.  A new command's result becomes a Sheet in one
function, and has all forms of SHEETS.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlcorr_cli import __version__
from rlcorr_cli.errors import DataError
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.show.cells import Rows
from rlcorr_cli.show.figures import Axes, Drawn, style
from rlcorr_cli.show.forms import sheet_picture
from rlcorr_cli.show.forms.content import Cause
from rlcorr_cli.show.forms.markdown import table_lines
from rlcorr_cli.show.forms.page import environment, script
from rlcorr_cli.show.forms.pictures import drawing
from rlcorr_cli.show.forms.table import line
from rlcorr_cli.show.markup import escaped, prose

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Section:
    """A table under its heading; about: one sentence on it."""

    heading: str
    about: str
    rows: Rows


@dataclass(frozen=True)
class Panel:
    """A drawing.  draw: onto axes, returns the sentence that stands below it."""

    title: str
    draw: Callable[[Axes], str]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What a result says.

    summary: how much was read, and when it was last changed.  status: of the headline: ok, warn or fail.  causes: what
    voids the numbers.  document: the JSON form.  records: the lines of the table form, all with the same names.
    """

    title: str
    summary: str
    headline: str
    status: str
    sections: Sequence[Section]
    panels: Sequence[Panel]
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str]
    document: Mapping[str, Any]
    records: Sequence[Mapping[str, object]]
    reasons: Sequence[str] = ()
    causes: Sequence[Cause] = ()


def write(sheet: Sheet, path: Path, staging: Outputs) -> None:
    """Stage a sheet in the form of the path's suffix; Markdown has no picture beside it where there is no panel, and
    where a picture is asked for, that is a DataError."""
    suffix = path.suffix.lower()
    if suffix in PICTURES and not sheet.panels:
        raise DataError(f"{path}: there is nothing to draw: {sheet.headline}", "Write .json or .md.")
    if suffix == ".md":
        picture = sheet_picture(path)
        if sheet.panels:
            staging.write(picture, drawn(sheet, "sheet").write("png"))
        data = markdown(sheet, "/".join(quote(os.fsencode(name)) for name in picture.path.parts[-2:])).encode()
    elif suffix in PICTURES:
        data = drawn(sheet, "sheet").write(suffix.removeprefix("."))
    else:
        data = {".json": _json, ".html": page, ".csv": _csv}[suffix](sheet).encode()
    staging.write(Destination(path=path, overwrite=True), data)


def page(sheet: Sheet) -> str:
    """One HTML page that needs nothing else."""
    source, digest = script()
    drawings = [drawing(panel.title, panel.draw) for panel in sheet.panels]
    template = environment().get_template("sheet.html")
    return template.render(title=sheet.title, s=sheet, drawings=drawings, script=source, digest=digest)


def markdown(sheet: Sheet, picture_link: str) -> str:
    """The Markdown document; picture_link: where its picture lies."""
    lines = [f"# {escaped(sheet.title)}", "", escaped(sheet.summary), ""]
    lines += [f"> **{escaped(cause.finding)}** {escaped(cause.fix)}\n" for cause in sheet.causes]
    lines += [f"**{escaped(sheet.headline)}**", "", *(f"- {prose(reason)}" for reason in sheet.reasons), ""]
    lines += [f"![{escaped(sheet.panels[0].title)}]({picture_link})", ""] if sheet.panels else []
    for section in sheet.sections:
        cells = [[cell.marked for cell in row] for row in section.rows.rows]
        table = table_lines(section.rows.headings, cells, *section.rows.words)
        lines += [f"## {section.heading}", "", prose(section.about), "", *table, ""]
    lines += ["## What was read", "", *(f"- {escaped(name)}: {escaped(value)}" for name, value in sheet.facts), ""]
    lines += ["## Notes", "", *(f"- {escaped(note)}" for note in sheet.notes), ""] if sheet.notes else []
    return "\n".join(lines)


def drawn(sheet: Sheet, kind: str) -> Drawn:
    """The panels side by side, with what they say below them, as the picture of a kind."""
    with style.styled():
        figure = style.blank(5.4 * len(sheet.panels), 4.2)
        sentences: list[str] = []
        for place, panel in enumerate(sheet.panels, 1):
            ax = figure.add_subplot(1, len(sheet.panels), place)
            ax.set_title(panel.title)
            sentences.append(panel.draw(ax))
        style.heads(figure.axes)
        caption = " ".join(sentences)
        style.foot(figure, [(caption, False), (f"{sheet.title} · {sheet.summary} · rlcorr {__version__}", True)])
    return Drawn(kind, figure, caption, len(sheet.panels))


def _json(sheet: Sheet) -> str:
    return json.dumps(sheet.document, indent=2, allow_nan=False) + "\n"


def _csv(sheet: Sheet) -> str:
    columns = tuple(sheet.records[0]) if sheet.records else ()
    return "".join([line(columns), *(line(record.values()) for record in sheet.records)])
