"""What `diff` found, on a terminal: the sentence, the family's table, groups, and what is not tested."""

from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.results.diffed import Diff
from rlcorr_cli.show.check import where
from rlcorr_cli.show.diffed import NO_EVIDENCE, detectable, headline, other_rows, rows, sides
from rlcorr_cli.show.document import Cell
from rlcorr_cli.show.document import Table as Rows
from rlcorr_cli.show.stdout import clean, render


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
    # What would have been seen of a metric without evidence stands below.
    blank = [(*row[:-2], Cell(""), row[-1]) if row[-1].text == NO_EVIDENCE else row for row in table.rows]
    table, left_out = replace(table, rows=tuple(blank)).within(console.width - 2, gap=1)
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(table.headings):
        grid.add_column(heading, justify="right" if place else "left", no_wrap=True, header_style="dim")
    for row in table.rows:
        style = "bold" if any(cell.status for cell in row) else ""
        grid.add_row(*(Text(clean(cell.text), style=style) for cell in row))
    console.print(Padding(grid, (0, 0, 0, 2)))
    if left_out:
        _line(console, f"no room here for {', '.join(left_out)}", "dim")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Padding(Text(clean(text), style=style), (0, 2)))
