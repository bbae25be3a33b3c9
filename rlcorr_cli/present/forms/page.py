"""report.html: one file that needs nothing else, light and dark, on a phone and on paper.

Everything from the dump is escaped, and a content policy lets only the page's own script run: a group called
<script> stays a name.  Pictures are inline SVG whose ink follows the page's.
"""

import base64
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.present.figures import Drawn
from rlcorr_cli.present.figures.style import GRID, INK, PAPER
from rlcorr_cli.present.forms.content import content
from rlcorr_cli.report.report import Report

INKS = {INK: "currentColor", PAPER: "none", GRID: "var(--line)"}


def text(report: Report) -> str:
    """The HTML page of a report."""
    environment = Environment(loader=PackageLoader("rlcorr_cli.present", "forms"), autoescape=True)
    source = environment.loader.get_source(environment, "sort.js")[0] if environment.loader else ""
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    template = environment.get_template("page.html")
    return template.render(c=content(report), svg=_svg, script=Markup(source), digest=digest)


def _svg(drawn: Drawn) -> Markup:
    """A picture as part of the page: no declaration, ink and paper as variables, its caption as its name."""
    drawing = drawn.write("svg").decode()
    drawing = drawing[drawing.index("<svg") :]
    for colour, variable in INKS.items():
        drawing = drawing.replace(colour, variable)
    head, rest = drawing.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    drawing = f'{head} role="img" aria-label="{escape(drawn.caption)}">{rest}'
    return Markup(drawing)


def write(report: Report, path: Path, staging: Staging) -> None:
    """Stage the page as a file."""
    staging.write(Destination(path=path, overwrite=True), text(report).encode())
