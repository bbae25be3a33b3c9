"""A report's pictures for the page: each panel a drawing of its own, so that they stand side by side or one below the
other as the screen allows, in letters of one size.

Panels without anything to show are left out, and pictures without a panel.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO

from markupsafe import Markup, escape

from rlcorr_cli.results.report import Report
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show.figures import KINDS, Axes, panels_of, style

INKS = {
    style.INK: "currentColor",
    style.PAPER: "none",
    style.GRID: "var(--line)",
    style.PALE: "var(--plate)",
}
SIZE = (4.6, 3.4)
"""Of a panel, in inches: on a phone's screen its letters are still 9 pixels high."""


@dataclass(frozen=True)
class Drawing:
    """One panel: its drawing as part of the page, and the sentence below it."""

    svg: Markup
    sentence: str


@dataclass(frozen=True)
class Picture:
    """A kind of picture, the question that it answers, and its panels."""

    kind: str
    about: str
    drawings: tuple[Drawing, ...]


def pictures(report: Report) -> list[Picture]:
    """Every kind but the overview, which repeats the others."""
    kinds = {kind: layout for kind, layout in KINDS.items() if kind != "overview"}
    drawn = [Picture(kind, layout.about, tuple(_drawings(kind, report))) for kind, layout in kinds.items()]
    return [picture for picture in drawn if picture.drawings]


def _drawings(kind: str, report: Report) -> Iterator[Drawing]:
    for title, panel in panels_of(kind, report):
        try:
            yield drawing(title, lambda axes, panel=panel: panel(axes, report))
        except Missing:
            continue


def drawing(title: str, panel: Callable[[Axes], str]) -> Drawing:
    """One panel as part of a page.  panel: draws onto axes, and returns the sentence below them."""
    paper = BytesIO()
    with style.styled():
        figure = style.blank(*SIZE)
        axes = figure.add_subplot()
        axes.set_title(title)
        sentence = panel(axes)
        style.heads([axes])
        style.save(figure, paper, "svg", metadata={"Date": None})
    sentence = f"{sentence.removesuffix('.')}."
    if re.match(r"[a-z]+ ", sentence):  # k3 and χ² are symbols, which a capital would change
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
    return Drawing(_inline(paper.getvalue().decode(), sentence), sentence)


def _inline(drawing: str, sentence: str) -> Markup:
    """A drawing as part of the page: no declaration, ink and paper as variables, the sentence as its name."""
    drawing = drawing[drawing.index("<svg") :]
    for colour, variable in INKS.items():
        drawing = drawing.replace(colour, variable)
    head, rest = drawing.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{escape(sentence)}">{rest}')
