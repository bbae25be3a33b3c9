"""report.md: for a repository or a pull request; pictures lie beside it in NAME-figures/.

Text from the dump cannot become markup: what Markdown or HTML would read is escaped.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.report import Report
from rlcorr_cli.show.cells import Rows
from rlcorr_cli.show.figures import KINDS, Drawn, draw
from rlcorr_cli.show.forms.content import MARKS, Content, content
from rlcorr_cli.show.markup import escaped, prose


def text(contents: Content, pictures: Sequence[Drawn], directory: str) -> str:
    """The Markdown document.  directory: of its pictures, as a link."""
    return "\n".join(
        [
            *_first_screen(contents),
            *_correction(contents),
            *_objective(contents),
            *_pictures(pictures, directory),
            *_groups(contents),
            *_metrics(contents),
            *_what_was_read(contents),
        ]
    )


def _first_screen(contents: Content) -> list[str]:
    lines = [f"# {escaped(contents.title)}", "", escaped(contents.summary), ""]
    for cause in contents.causes:
        lines += [f"**! {escaped(cause.finding)}**{' ' if cause.fix else ''}{escaped(cause.fix)}", ""]
    headings = ["figure", "value", "95 % interval", "ideal", "limit", "what it is"]
    rows = [[f.name, f.value.marked, f.ends, f.ideal, f.limit, f.about] for f in contents.key_figures]
    lines += [
        f"**{escaped(contents.verdict)}**",
        "",
        "## Key figures",
        "",
        *table_lines(headings, rows, "limit", "what it is"),
    ]
    lines += _marks(any(figure.value.status for figure in contents.key_figures))
    lines += ["", escaped(contents.remark)] if contents.remark else []
    lines += ["", "## What to do", ""]
    lines += [
        f"- **{escaped(finding)}** ({status}){': ' if remedy else ''}{escaped(remedy)}"
        for status, finding, remedy in contents.todo
    ]
    return [*lines, *([] if contents.todo else [escaped(contents.nothing_to_do)]), ""]


def _correction(contents: Content) -> list[str]:
    tables = [line for rows in contents.correction for line in (*_rows(rows), "")]
    return ["## Correction", "", *tables] if tables else []


def _objective(contents: Content) -> list[str]:
    tables = [line for rows in contents.objective for line in (*_rows(rows), "")]
    words = [line for sentence in contents.objective_words for line in (prose(sentence), "")]
    return ["## Objective", "", *words, *tables] if tables else []


def _pictures(pictures: Sequence[Drawn], directory: str) -> list[str]:
    lines: list[str] = []
    for drawn in pictures:
        lines += [f"![{drawn.kind}: {escaped(KINDS[drawn.kind].about)}]({directory}/{drawn.kind}.png)", ""]
        lines += [f"**{drawn.kind}**: {prose(drawn.caption)}", ""]
    return ["## Pictures", "", *lines] if lines else []


def _groups(contents: Content) -> list[str]:
    if contents.groups is None:
        return []
    shown = [escaped(contents.groups_shown), ""] if contents.groups_shown else []
    return ["## Groups", "", *shown, *_rows(contents.groups), ""]


def _metrics(contents: Content) -> list[str]:
    sections = [line for name, rows in contents.metrics.items() for line in (f"### {name}", "", *_rows(rows), "")]
    symbols = [f"- {escaped(symbol)}: {escaped(meaning)}" for symbol, meaning in contents.symbols.items()]
    return ["## Metrics", "", *sections, *(["### Symbols", "", *symbols, ""] if symbols else [])]


def _what_was_read(contents: Content) -> list[str]:
    lines = ["## What was read", "", *(f"- {escaped(name)}: {escaped(value)}" for name, value in contents.facts)]
    lines += ["", "## Plan", "", "```toml", contents.plan.rstrip(), "```", ""]
    return [
        *lines,
        *(["## Notes", "", *(f"- {escaped(note)}" for note in contents.notes), ""] if contents.notes else []),
    ]


def _rows(rows: Rows) -> list[str]:
    cells = [[cell.marked for cell in row] for row in rows.rows]
    return [*table_lines(rows.headings, cells, *rows.words), *_marks(rows.has_marks)]


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], *words: str) -> list[str]:
    """A table whose first column and those of words stand on the left, numbers on the right."""
    sides = "".join("---|" if heading in words else "---:|" for heading in headings[1:])
    lines = ["| " + " | ".join(map(escaped, headings)) + " |", f"|---|{sides}"]
    return lines + ["| " + " | ".join(map(escaped, row)) + " |" for row in rows]


def _marks(any_marked: bool) -> list[str]:
    return ["", escaped(MARKS)] if any_marked else []


def destinations(path: Path) -> tuple[Destination, ...]:
    """The document, and every picture that may lie beside it."""
    return (*(_picture(path, kind) for kind in KINDS), Destination(path=path, overwrite=True))


def write(report: Report, path: Path, staging: Outputs) -> None:
    """Stage the pictures first, then the document that names them."""
    drawn = [draw(kind, report, captioned=False) for kind in KINDS if kind != "overview"]
    pictures = [picture for picture in drawn if picture.figure is not None]
    for picture in pictures:
        staging.write(_picture(path, picture.kind), picture.write("png"))
    document = text(content(report), pictures, quote(os.fsencode(_directory(path).name)))
    staging.write(Destination(path=path, overwrite=True), document.encode())


def _picture(path: Path, kind: str) -> Destination:
    return Destination(path=_directory(path) / f"{kind}.png", overwrite=True, makes_parents=True)


def _directory(path: Path) -> Path:
    return path.with_name(f"{path.stem}-figures")
