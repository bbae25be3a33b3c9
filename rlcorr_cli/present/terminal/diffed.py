"""What `diff` found, on a terminal: the sentence, the family's table, groups, and what is not tested."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.present.cells import Rows
from rlcorr_cli.present.diffed import NO_EVIDENCE, detectable, headline, other_rows, rows, sides
from rlcorr_cli.present.stdout import clean, render
from rlcorr_cli.present.terminal.checked import where
from rlcorr_cli.report.diffed import Diff


def print_diff(diff: Diff) -> None:
    """Print the comparison on stdout."""
    render(lambda console: _draw(console, diff))


def _draw(console: Console, diff: Diff) -> None:
    for name, text in sides(diff):
        console.print(Text(f"{name}  {text}"))
    console.print()
    _line(console, headline(diff), "bold")
    for note in diff.notes:
        _line(console, note, "yellow" if note.startswith("?") else "dim")
    for section in diff.sections:
        console.print()
        if section.key:
            _line(console, where(section.key), "bold")
        _print_table(console, rows(section))
        if words := detectable(section, diff.min_effect):
            _line(console, words, "dim")
        if section.not_tested:
            console.print()
            _line(console, "not tested", "bold")
            _print_table(console, other_rows(section))


def _print_table(console: Console, table: Rows) -> None:
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(table.headings):
        grid.add_column(heading, justify="right" if place else "left", no_wrap=True, header_style="dim")
    for row in table.rows:
        style = "bold" if any(cell.status for cell in row) else ""
        texts = [clean(cell.text) for cell in row]
        if texts[-1] == NO_EVIDENCE:
            texts[-2] = ""  # what would have been seen stands below
        grid.add_row(*(Text(text, style=style) for text in texts))
    console.print(Padding(grid, (0, 0, 0, 2)))


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Padding(Text(clean(text), style=style), (0, 2)))
