"""Dumps side by side on a terminal: what tells them apart, then a column for each, as many beside as there is room."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.results.side_by_side import SideBySide
from rlcorr_cli.show.document import Note
from rlcorr_cli.show.numbers import duration
from rlcorr_cli.show.side_by_side import (
    NOTE,
    anomalies,
    dump_rows,
    headline,
    legend,
    notes,
    plan_rows,
    recommendations,
)
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.terminal import print_blocks, print_note
from rlcorr_cli.show.words import anomaly_sentence

NAMES_WIDTH, COLUMN_WIDTH = 26, 13
"""Columns of the terminal that the names of rows take, and that a dump takes."""


def print_side_by_side(sides: SideBySide) -> None:
    """Print the dumps on stdout."""
    render(lambda console: _draw(console, sides))


def _draw(console: Console, sides: SideBySide) -> None:
    of_dumps = legend(sides)
    width = max(len(name) for name, _ in of_dumps)
    for name, text in of_dumps:
        console.print(Text(f"{name:{width}}  {text}"))
    console.print(Text(duration(sides.seconds), style="dim"))
    console.print()
    for name, anomaly in anomalies(sides):
        line = Text(f"? {name}  ", style="yellow")
        line.append(f"{clean(anomaly_sentence(anomaly))} {anomaly.fix}", style="default")
        console.print(Padding(line, (0, 2)))
    console.print(Padding(Text(headline(sides), style="bold"), (0, 2)))
    for text in recommendations(sides):
        print_note(console, Note(text, bullet=True))
    console.print()
    n_beside = max(1, (console.width - NAMES_WIDTH) // COLUMN_WIDTH)
    for first in range(0, len(sides.dumps), n_beside):
        beside = sides.dumps[first : first + n_beside]
        print_blocks(console, [dump_rows(beside)])
        console.print()
        if sides.plan is not None:
            print_blocks(console, [plan_rows(beside, sides.plan.name)])
            console.print()
    for text in (*notes(sides), NOTE):
        print_note(console, Note(text, "dim"))
