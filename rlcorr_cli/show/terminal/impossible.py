"""The line that stands before everything else in a report: a number that cannot be, and what that proves."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.results.verdict import Impossible
from rlcorr_cli.show.terminal.verdict import impossible_value, untrusted


def print_impossible(console: Console, impossible: Impossible | None) -> None:
    """Print `mean ratio 0.889 (0.878 .. 0.902) cannot be: ...`, or nothing where every number is possible."""
    if impossible is None:
        return
    line = Text(f"! {impossible_value(impossible)}: ", style="bold red")
    line.append(untrusted(impossible), style="default")
    console.print(Padding(line, (0, 2)))
    console.print()
