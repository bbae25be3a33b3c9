"""A document on a terminal: its lines in their order, readable at 80 columns, without colour, and piped."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from rlcorr_cli.show.document import (
    BLANK,
    ROOMY,
    Block,
    Document,
    Drawing,
    Facts,
    Legend,
    Note,
    RunningText,
    ShownToken,
    Table,
)
from rlcorr_cli.show.stdout import render

OPTION_INDENT = 6
BESIDE = 120
"""From this width on tables that follow one another stand in a row where they have room."""
PALE_ABOVE, FULL_ABOVE = (253, 235, 214), (244, 140, 60)
PALE_BELOW, FULL_BELOW = (216, 232, 247), (90, 160, 222)
"""Colours behind a token whose log-ratio is above or below 0: near it, and at 1 nat."""
STEPS_ABOVE, STEPS_BELOW = (223, 215, 208), (153, 117, 39)
"""The same on a terminal of 256 colours, by their numbers: what comes nearest to a mixed one may have another hue."""
FEW_COLORS = ("standard", "windows")
"""What rich calls a terminal of 16 colours."""
FAINTEST = 0.04
"""Log-ratios under this have no colour."""
BETWEEN, INDENT = 4, 2
"""Columns between them, and before every table."""


def print_document(document: Document) -> None:
    """Print a document's lines on stdout."""
    again = Note(document.again, "bold")
    render(
        lambda console: print_blocks(console, document.lines),
        at_end=(lambda console: print_blocks(console, [BLANK, again])) if document.again else None,
    )


def print_blocks(console: Console, blocks: Iterable[Block]) -> None:
    """Print blocks, and an empty line below each table that something follows."""
    is_below_table = False
    for row in _rows(blocks, console.width):
        block = row[0]
        if is_below_table and block != BLANK:
            console.print()
        match block:
            case Table():
                if len(row) > 1:
                    _print_beside(console, [table for table in row if isinstance(table, Table)])
                else:
                    print_table(console, block)
            case Facts(parts):
                lines: list[str] = []
                for part in parts:
                    if lines and cell_len(f"{lines[-1]}  {part}") <= console.width:
                        lines[-1] += f"  {part}"
                    else:
                        lines.append(part)
                text = Text("\n".join(lines))
                text.stylize(block.look, 0, len(parts[0]))
                console.print(text)
            case Note():
                print_note(console, block)
            case RunningText():
                print_running(console, block)
            case Drawing():
                print_note(console, Note(block.draw(console.width - 2 * INDENT)))
            case Legend():
                print_legend(console)
        is_below_table = isinstance(block, Table) and not block.is_tight


def _rows(blocks: Iterable[Block], width: int) -> Iterator[list[Block]]:
    """Each block alone, but for tables that follow one another: as many as a wide terminal has room for stand in a row.

    A tight table belongs to what stands below it, and one that splits would.
    """
    row, room = list[Block](), 0
    for block in blocks:
        if row and isinstance(block, Table) and block.upright is not None and _beside(block.upright) <= room:
            block = block.upright
        needed = width
        if width >= BESIDE and isinstance(block, Table) and not block.is_tight and not block.splits:
            needed = _beside(block)
        if row and needed > room:
            yield row
            row = []
        room = (room if row else width - INDENT + BETWEEN) - needed
        row.append(block)
    if row:
        yield row


def _beside(table: Table) -> int:
    """The columns that a table takes in a row of several."""
    return sum(table.widths(folded=False)) - table.gap + BETWEEN


def _print_beside(console: Console, tables: Sequence[Table]) -> None:
    """Print tables in a row."""
    beside = Grid.grid(padding=(0, BETWEEN, 0, 0))
    for _ in tables:
        beside.add_column(no_wrap=True)
    beside.add_row(*map(_grid, tables))
    console.print(Padding(beside, (0, 0, 0, INDENT)))


def print_note(console: Console, note: Note) -> None:
    """Print a paragraph, and its option in a line of its own."""
    lead = Text(note.lead, style=note.lead_look)
    text = Text(note.text, style=note.look or ("default" if note.lead else ""))
    line = text if note.aside else lead + text
    if note.bullet or note.aside:
        grid = Grid.grid(padding=(0, 1, 0, 0))
        grid.add_column()
        grid.add_column(overflow="fold")
        grid.add_row(lead if note.aside else "*", line)
        console.print(Padding(grid, (0, 2, 0, note.indent)))
    else:
        console.print(Padding(line, (0, 2 if note.indent else 0, 0, note.indent)))
    if note.option:
        console.print(Text(f"{' ' * OPTION_INDENT}{note.option}"), soft_wrap=True)


def print_running(console: Console, text: RunningText) -> None:
    """Print tokens as running text, each before a colour of its log-ratio; marks stand for colours where there are
    none."""
    if console.color_system is None:
        console.print(Padding(Text(text.marked), (0, 2, 0, INDENT)))
        return
    line = Text()
    for i, token in enumerate(text.tokens):
        if token is None:
            line.append(f" (... {text.folded_away(i):,} tokens ...) ", style="dim")
        else:
            line.append(token.text.replace("\n", "↵\n"), style=_look(token, console.color_system))
    console.print(Padding(line, (0, 2, 0, INDENT)))


def print_legend(console: Console) -> None:
    """Print what marks, or colours, of running text mean."""
    text = "[#57 x] is token 57, a far one that is listed below its row; ~x~ is rejected, {x} masked."
    if console.color_system is not None:
        full = "as background from 0.5 nats on" if console.color_system in FEW_COLORS else "full at 1 nat"
        text = (
            f"Orange: training gives a token more probability than the rollout did, blue: less; {full}. Bold tokens "
            "are listed below their row. Struck through: rejected; dim: masked."
        )
    print_note(console, Note(text, "dim"))


def _look(token: ShownToken, colors: str | None) -> Style:
    """Dark letters on blue below 0, on orange above it, the stronger the further; nothing where there is no gap.  16
    colours have two shades of each: its letters up to half a nat, and dark letters on it above that."""
    if not token.counts:
        return Style(dim=True)
    level = token.level or 0.0
    lines: dict[str, Any] = {"bold": token.is_far or None, "strike": token.is_rejected or None}
    if abs(level) < FAINTEST:
        return Style(**lines)
    if colors in FEW_COLORS:
        hue = "yellow" if level > 0 else "bright_blue"
        return Style(color=hue, **lines) if abs(level) < 0.5 else Style(color="black", bgcolor=hue, **lines)
    if colors == "256":
        steps = STEPS_ABOVE if level > 0 else STEPS_BELOW
        step = steps[min(int(abs(level) * len(steps)), len(steps) - 1)]
        return Style(color="color(16)", bgcolor=f"color({step})", **lines)
    full, pale = (FULL_ABOVE, PALE_ABOVE) if level > 0 else (FULL_BELOW, PALE_BELOW)
    mixed = (round(p + (f - p) * abs(level)) for p, f in zip(pale, full, strict=True))
    return Style(color="black", bgcolor=f"rgb({','.join(map(str, mixed))})", **lines)


def print_table(console: Console, table: Table) -> None:
    """Print a table, and below it which of its columns have no room.

    Names and numbers are never cut: where even what is left has no room, lines are longer than the terminal.
    """
    width = console.width - INDENT
    table = table if console.width >= ROOMY else table.without(table.wide)
    shown, left_out = table.within(width)
    is_short = bool(left_out and table.note)
    if is_short:
        table = table.short()
        shown, left_out = table.within(width)
    if table.splits and left_out:
        for half in _halves(table):
            print_table(console, half)
        return
    grid = _grid(shown)
    terminal, console.width = console.width, max(console.width, sum(shown.widths()))
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    console.width = terminal
    if left_out:
        print_note(console, Note(f"Not shown at this width: {', '.join(left_out)}", "dim"))
    if is_short:
        print_note(console, Note(table.note, "dim"))


def _grid(shown: Table) -> Grid:
    """All of a table, as rich has tables."""
    grid = Grid(box=None, pad_edge=False, padding=(0, shown.gap, 0, 0), header_style="dim")
    for i, heading in enumerate(shown.headings):
        is_words = shown.is_words(i)
        is_number = i > 0 and any(row[i].sort_key is not None for row in shown.rows)
        side = "left" if is_words or (i < max(shown.n_keys, 1) and not is_number) else "right"
        grid.add_column(heading, justify=side, no_wrap=not is_words, overflow="fold" if is_words else "ellipsis")
    # Beside a marked value, the others of its column leave the mark's room free.
    has_marks = [i > 0 and any(row[i].status for row in shown.rows) for i in range(len(shown.headings))]
    for i, row in enumerate(shown.rows):
        look = "bold" if shown.has_total and row is shown.rows[-1] else shown.looks[i] if shown.looks else None
        cells = [
            Text(cell.marked, style="yellow") if cell.status else Text(f"{cell.text}{'  ' * marked}")
            for cell, marked in zip(row, has_marks, strict=True)
        ]
        grid.add_row(*cells, style=look or None)
    return grid


def _halves(table: Table) -> Iterable[Table]:
    """The table's columns in two tables, each with what its rows are of."""
    behind = table.headings[table.n_keys :]
    half = table.together * ((len(behind) // table.together + 1) // 2)
    for gone in (behind[half:], behind[:half]):
        yield replace(table.without(gone), splits=len(behind) > 2 * table.together)
