"""report.md: for a repository or a pull request; pictures lie beside it in NAME-figures/.

Text from the dump cannot become markup: what Markdown or HTML would read is escaped.
"""

from pathlib import Path
from urllib.parse import quote

from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.present.figures import KINDS
from rlcorr_cli.present.forms.content import Content, content
from rlcorr_cli.present.markup import escaped
from rlcorr_cli.report.report import Report


def text(contents: Content, figures: str) -> str:
    """The Markdown document.  figures: the directory of its pictures, as a link."""
    lines = [f"# {escaped(contents.title)}", ""]
    lines += [f"**! {escaped(contents.impossible)}**", ""] if contents.impossible else []
    lines += [f"**{escaped(contents.verdict)}**", "", "## What to do", ""]
    lines += [
        f"- **{escaped(finding)}** ({status}){': ' if remedy else ''}{escaped(remedy)}"
        for status, finding, remedy in contents.todo
    ]
    lines += [] if contents.todo else ["Nothing: every rule holds."]
    lines += ["", "## Pictures", ""]
    for about, drawn in contents.figures:
        if drawn.figure is not None:
            lines += [f"![{drawn.kind}: {escaped(about)}]({figures}/{drawn.kind}.png)", ""]
        lines += [f"**{drawn.kind}**: {escaped(drawn.caption)}", ""]
    if contents.groups:
        rows = [[f"{cell.text} !" if cell.status else cell.text for cell in row] for row in contents.groups]
        lines += ["## Groups", ""]
        lines += [escaped(contents.groups_shown), ""] if contents.groups_shown else []
        lines += [*_table(contents.headings, rows), ""]
        lines += (
            ["! marks a value that breaks a rule.", ""]
            if any(cell.status for row in contents.groups for cell in row)
            else []
        )
    heads = ["metric", "value", "95 % interval", "ideal", "rule", "", "formula"]
    rows = [[m.name, m.value, m.interval, m.ideal, m.rule, m.status, m.formula] for m in contents.metrics]
    lines += ["## Metrics", "", *_table(heads, rows), "", "Symbols:", ""]
    lines += [f"- {escaped(symbol)}: {escaped(meaning)}" for symbol, meaning in contents.symbols.items()]
    lines += ["", "## What was read", ""]
    lines += [f"- {escaped(name)}: {escaped(value)}" for name, value in contents.facts]
    lines += ["", "## Plan", "", "```toml", contents.plan.rstrip(), "```", "", "## Notes", ""]
    return "\n".join([*lines, *(f"- {escaped(note)}" for note in contents.notes)]) + "\n"


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(map(escaped, heads)) + " |", "|" + "---|" + "---:|" * (len(heads) - 1)]
    return lines + ["| " + " | ".join(map(escaped, row)) + " |" for row in rows]


def destinations(path: Path) -> tuple[Destination, ...]:
    """The document, and every picture that may lie beside it."""
    return (*(_picture(path, kind) for kind in KINDS), Destination(path=path, overwrite=True))


def write(report: Report, path: Path, staging: Staging) -> None:
    """Stage the pictures first, then the document that names them."""
    contents = content(report)
    for _, drawn in contents.figures:
        if drawn.figure is not None:
            staging.write(_picture(path, drawn.kind), drawn.write("png"))
    document = text(contents, quote(_figures(path).name))
    staging.write(Destination(path=path, overwrite=True), document.encode())


def _picture(path: Path, kind: str) -> Destination:
    return Destination(path=_figures(path) / f"{kind}.png", overwrite=True, makes_parents=True)


def _figures(path: Path) -> Path:
    return path.with_name(f"{path.stem}-figures")
