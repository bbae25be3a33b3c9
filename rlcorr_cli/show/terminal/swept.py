"""A sweep on a terminal: the target's bounds in a line to copy, then the curve."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.results.swept import Sweep
from rlcorr_cli.show.inputs import named
from rlcorr_cli.show.numbers import duration, plural
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.swept import headline, point_rows
from rlcorr_cli.show.terminal.compared import print_option
from rlcorr_cli.show.terminal.report import print_facts, print_rows


def print_sweep(sweep: Sweep) -> None:
    """Print the sweep on stdout."""
    render(lambda console: _draw(console, sweep))


def _draw(console: Console, sweep: Sweep) -> None:
    parts = [
        named(sweep.inputs),
        plural(sweep.counts["sequences"], "sequence"),
        plural(sweep.counts["tokens"], "token"),
    ]
    print_facts(console, [*parts, duration(sweep.seconds)])
    console.print()
    console.print(Padding(Text(headline(sweep), style="bold"), (0, 2)))
    target = sweep.target
    if target is not None and target.reached and target.option:
        print_option(console, target.option)
    if target is not None and target.note:
        console.print(Padding(Text(target.note), (0, 2)))
    if target is not None and not target.reached:
        print_option(console, target.option)
    console.print()
    print_rows(console, point_rows(sweep))
    for note in sweep.notes:
        console.print(Padding(Text(clean(note), style="dim"), (0, 2)))
    console.print(Padding(Text("`rlcorr explain info` defines a column.", style="dim"), (0, 2)))
