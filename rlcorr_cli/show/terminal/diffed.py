"""What `diff` found, on a terminal: the sentence, the family's table, groups, and what is not tested."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlcorr_cli.results.diffed import Diff, DiffSection
from rlcorr_cli.show.cells import Cell, Rows
from rlcorr_cli.show.diffed import NO_EVIDENCE, detectable, headline, other_rows, rows, rows_of_all, sides
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.terminal.checked import where


def print_diff(diff: Diff) -> None:
    """Print the comparison on stdout."""
    render(lambda console: _draw(console, diff))


def _draw(console: Console, diff: Diff) -> None:
    for name, text in sides(diff):
        console.print(Text(f"{name}  {text}"))
    console.print()
    for each in diff.comparisons:
        _line(console, headline(each), "bold")
    for note in (note for each in diff.comparisons for note in each.notes):
        _line(console, note, "yellow" if note.startswith("?") else "dim")
    if diff.others:
        for table in _fitting(diff.comparisons, console.width - 2):
            console.print()
            _print_table(console, table)
    for each in diff.comparisons:
        for section in each.sections[1:] if diff.others else each.sections:
            _print_section(console, each, section, of_several=bool(diff.others))


def _fitting(comparisons: Sequence[Diff], width: int) -> Iterator[Rows]:
    """The table of several dumps: as many beside each other as a line holds, the others below."""
    first = 0
    while first < len(comparisons):
        n_beside = 1
        while first + n_beside < len(comparisons):
            wider = rows_of_all(comparisons[first : first + n_beside + 1])
            if wider.width(gap=1) > width:
                break
            n_beside += 1
        yield rows_of_all(comparisons[first : first + n_beside])
        first += n_beside


def _print_section(console: Console, diff: Diff, section: DiffSection, *, of_several: bool) -> None:
    """The table of the whole, or of a group, and what is not tested below it."""
    console.print()
    name = [diff.name] * of_several + [where(section.key)] * bool(section.key)
    if name:
        _line(console, ", ".join(name), "bold")
    table = rows(diff, section)
    # What would have been seen of a metric without evidence stands below.
    blank = [(*row[:-2], Cell(""), row[-1]) if row[-1].text == NO_EVIDENCE else row for row in table.rows]
    _print_table(console, replace(table, rows=tuple(blank)))
    if words := detectable(section, diff.min_effect):
        _line(console, words, "dim")
    if section.not_tested:
        console.print()
        _line(console, "not tested", "bold")
        _print_table(console, other_rows(diff, section))


def _print_table(console: Console, table: Rows) -> None:
    table, left_out = table.within(console.width - 2, gap=1)
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
