"""report.html: one file that needs nothing else, light and dark, on a phone and on paper.

Everything from the dump is escaped, and a content policy lets only the page's own script run: a group called
<script> stays a name.  Pictures are inline SVG whose ink follows the page's.  Nothing scrolls sideways: where a table
has no room, each row becomes a card with its headings in it.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.cells import Rows
from rlcorr_cli.show.forms.content import MARKS, content
from rlcorr_cli.show.forms.pictures import pictures

WIDTHS = ((5, "small"), (8, "middle"), (10, "wide"), (13, "wider"))
"""Most columns of a table -> its class, which says on what screen its rows become cards."""


SCRIPTS = ("sort.js", "fold.js")


def text(report: Report) -> str:
    """The HTML page of a report."""
    source, digest = script()
    template = environment().get_template("page.html")
    contents = content(report)
    return template.render(
        title=contents.title, c=contents, pictures=pictures(report), marks=MARKS, script=source, digest=digest
    )


@cache
def environment() -> Environment:
    """The templates of pages, with what they call."""
    templates = Environment(loader=PackageLoader("rlcorr_cli.show", "forms"), autoescape=True)
    templates.filters |= {"breakable": _breakable, "label": _label, "width": _width, "prose": _prose}
    return templates


def script() -> tuple[Markup, str]:
    """A page's own script, and the digest by which its content policy knows it."""
    folder = files("rlcorr_cli.show.forms")
    source = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return Markup(source), base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _breakable(name: str) -> Markup:
    """A name that may go on in a new line after each _ and / in it."""
    return Markup(str(escape(name)).replace("_", "_<wbr>").replace("/", "/<wbr>"))


def _prose(sentence: str) -> Markup:
    """A sentence of ours: `commands` as code, and no percent sign parted from its number."""
    parts = str(escape(sentence)).replace(" %", "\N{NO-BREAK SPACE}%").split("`")
    if len(parts) % 2 == 0:  # a backtick without its end
        return Markup("`".join(parts))
    return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))


def _label(name: str) -> str:
    """The same for a name in an attribute, where a space of no width stands for the element."""
    return name.replace("_", "_\u200b").replace("/", "/\u200b")


def _width(rows: Rows) -> str:
    """The class of a table by its number of columns."""
    return next((name for most, name in WIDTHS if len(rows.headings) <= most), "widest")


def write(report: Report, path: Path, staging: Outputs) -> None:
    """Stage the page as a file."""
    staging.write(Destination(path=path, overwrite=True), text(report).encode())
