"""What `convert` did, on a terminal."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.results.written import Converted
from rlcorr_cli.show.numbers import more, plural
from rlcorr_cli.show.stdout import clean, render

FILES = 8


def print_converted(converted: Converted) -> None:
    """Print what was read, the columns that came of it, and where they are."""
    render(lambda console: _draw(console, converted))


def _draw(console: Console, converted: Converted) -> None:
    for source in converted.inputs[:FILES]:
        console.print(Text(f"{clean(source.path)}  {source.format}  {plural(source.rows, 'row')}"))
    if len(converted.inputs) > FILES:
        console.print(Text(more(len(converted.inputs) - FILES, "file")))
    console.print()
    for note in converted.notes:
        _line(console, clean(note), "dim")
    _line(console, f"Columns: {', '.join(clean(name) for name in converted.columns)}.")
    if converted.unmatched is not None and any(converted.unmatched):
        here, there = converted.unmatched
        _line(
            console,
            f"Left out, for having no partner: {plural(here, 'row')} of the dump, {there:,} of the joined one.",
            "yellow",
        )
    size = f"{converted.n_bytes / 1e6:,.2f} MB"
    _line(console, f"Wrote {plural(converted.rows, 'row')} to {clean(converted.path)} ({size}).", "bold")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), (0, 2)))
