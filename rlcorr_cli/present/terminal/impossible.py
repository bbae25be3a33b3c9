"""The line that stands before everything else: a number that cannot be, and what that proves."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.report.impossible import Impossible

NAMES = {"ratio_mean": "mean ratio"}


def print_impossible(console: Console, found: Impossible | None) -> None:
    """`mean ratio 0.889 (0.878 .. 0.902) cannot be: ...`; nothing where there is nothing."""
    if found is None:
        return
    low, high = found.interval
    name = NAMES.get(found.metric, found.metric)
    line = Text(f"! {name} {found.value:.3f} ({low:.3f} .. {high:.3f}) cannot be: ", style="bold red")
    line.append(f"{found.proves}. No number below can be trusted before that is mended.", style="default")
    console.print(Padding(line, (0, 2)))
    console.print()
