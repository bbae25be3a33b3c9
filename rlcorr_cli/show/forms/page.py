"""A document as one HTML page that needs nothing else, light and dark, on a phone and on paper.

Everything from the dump is escaped, and a content policy lets only the page's own script run: a group called
<script> stays a name.  Nothing scrolls sideways: where a table has no room, each row becomes a card with its headings
in it.  Each panel of a picture is a drawing of its own, so that they stand side by side or one below the other as the
screen allows, in letters of one size; it is inline SVG whose ink follows the page's.  Panels without anything to show
are left out, and pictures without a panel.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from io import BytesIO
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from rlcorr_cli.frozen import frozen
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show.document import Document, Panel, Picture, Section, Table
from rlcorr_cli.show.figures import style
from rlcorr_cli.show.forms.tokens import shades, viewer
from rlcorr_cli.show.numbers import NOTHING

WIDTHS = ((5, "small"), (8, "middle"), (10, "wide"), (13, "wider"))
"""Most columns of a table -> its class, which says on what screen its rows become cards."""
LONG_WORD = r"\S{9,}"
"""What may go on in a new line: a shorter name, such as seq_ess, moves there whole."""
SCRIPTS, TOKENS = ("sort.js", "fold.js"), "tokens.js"
INKS = {
    style.INK: "currentColor",
    style.PAPER: "none",
    style.GRID: "var(--line)",
    style.PALE: "var(--plate)",
    style.BLUE: "var(--blue)",
}
SIZE = (4.6, 3.4)
"""Of a panel, in inches: on a phone's screen its letters are still 9 pixels high."""


@frozen
class Drawing:
    """One panel: its drawing as part of the page, and the sentence below it."""

    svg: Markup
    sentence: str


def page_html(document: Document) -> str:
    """The page of a document."""
    sections = [section for section in document.sections if section.on_page]
    pictures = [picture for section in sections for picture in section.pictures]
    drawings = {picture.name: drawn for picture in pictures if (drawn := list(_drawings(picture)))}
    folder = files("rlcorr_cli.show.forms")
    has_tokens = any(section.token_rows is not None for section in sections)
    scripts = (*SCRIPTS, *((TOKENS,) if has_tokens else ()))
    script = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in scripts)
    styled = _templates().get_template("style.html").render()
    if has_tokens:
        styled += _templates().get_template("tokens_style.html").render(shades=list(shades()))
    shown = [s for s in sections if not s.pictures or any(picture.name in drawings for picture in s.pictures)]
    return (
        _templates()
        .get_template("page.html")
        .render(
            d=document,
            sections=shown,
            parts=_parts(shown, drawings),
            drawings=drawings,
            script=Markup(script),
            digest=_digest(script),
            style=Markup(styled),
            # Drawings of matplotlib have their styles in their elements, which only this lets pass.
            style_source=Markup("'unsafe-inline'" if drawings else f"'sha256-{_digest(styled)}'"),
            token_rows=viewer,
        )
    )


def _parts(sections: Sequence[Section], drawings: dict[str, list[Drawing]]) -> list[tuple[bool, list[Section]]]:
    """The sections in order, those that follow each other and fit beside each other together, and whether they do."""
    runs = [(narrow, list(run)) for narrow, run in groupby(sections, lambda section: _is_narrow(section, drawings))]
    return [(narrow and len(run) > 1, run) for narrow, run in runs]


def _is_narrow(section: Section, drawings: dict[str, list[Drawing]]) -> bool:
    """Whether it needs half of a wide screen at most: one small table, or one drawing."""
    n_drawings = sum(len(drawings.get(picture.name, ())) for picture in section.pictures)
    others = (section.figures, section.todo, section.facts, section.items, section.code, section.token_rows)
    if any(others) or section.folds:
        return False
    if section.tables:
        return len(section.tables) == 1 and not n_drawings and _width_class(section.tables[0]) == "small"
    return n_drawings == 1


def _digest(text: str) -> str:
    """What a content policy knows a text by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _templates() -> Environment:
    """All templates, with what they call."""
    templates = Environment(loader=PackageLoader("rlcorr_cli.show", "forms"), autoescape=True)
    filters: dict[str, Any] = {
        "breakable": _breakable,
        "label": lambda name: _broken(name, "\u200b"),  # in an attribute a space of no width stands for the element
        "width": _width_class,
        "prose": _prose,
        "filled": _filled,
    }
    templates.filters.update(filters)
    return templates


def _breakable(name: str) -> Markup:
    """A name, or a formula, whose long words may go on in a new line, but not within an option."""
    text = _broken(str(escape(name)), "<wbr>")
    return _with_whole_options(re.sub(r" !$", "&nbsp;!", text))  # a mark stays beside what it marks


def _broken(text: str, line_break: str) -> str:
    """Text with possible line breaks in its long words: after each _ and /, and before the suffix of a file."""
    return re.sub(LONG_WORD, lambda word: re.sub(r"(?<=[_/])(?=.)|(?=\.[a-z])", line_break, word[0]), text)


def _prose(sentence: str) -> Markup:
    """A sentence of ours, with `commands` as code."""
    parts = str(escape(sentence)).split("`")
    if len(parts) % 2 == 0:  # a backtick without its end
        return _with_whole_options("`".join(parts))
    return _with_whole_options("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))


def _with_whole_options(html: str) -> Markup:
    """No line ends between the hyphens of an option, such as --kind."""
    return Markup(re.sub(r"--[\w-]+", r'<span class="nowrap">\g<0></span>', html))


def _filled(table: Table) -> Table:
    """A table without the columns that hold nothing in any row."""
    columns = zip(table.headings, zip(*table.rows, strict=True), strict=bool(table.rows))
    return table.without(
        heading for heading, cells in columns if all(cell.text in ("", NOTHING) and not cell.status for cell in cells)
    )


def _width_class(table: Table) -> str:
    """The class of a table by its number of columns."""
    return next((name for most, name in WIDTHS if len(table.headings) <= most), "widest")


def _drawings(picture: Picture) -> Iterator[Drawing]:
    for panel in picture.panels:
        try:
            yield _drawing(panel)
        except Missing:
            continue


def _drawing(panel: Panel) -> Drawing:
    """One panel as part of a page."""
    paper = BytesIO()
    with style.styled():
        figure = style.blank(*SIZE)
        axes = figure.add_subplot()
        axes.set_title(panel.title)
        sentence = panel.draw(axes)
        style.heads([axes])
        style.save(figure, paper, "svg", metadata={"Date": None})
    title = axes.get_title(loc="left")
    sentence = f"{sentence.removesuffix('.')}." if sentence else ""
    if re.match(r"[a-z]+ ", sentence):  # k3 and χ² are symbols, which a capital would change
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
    return Drawing(_inline(paper.getvalue().decode(), title), sentence)


def _inline(drawing: str, title: str) -> Markup:
    """A drawing as part of the page: no declaration, ink and paper as variables, its title as its name; the sentence
    below it is read beside that."""
    drawing = drawing[drawing.index("<svg") :]
    for colour, variable in INKS.items():
        drawing = drawing.replace(colour, variable)
    head, rest = drawing.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{escape(title)}">{rest}')
