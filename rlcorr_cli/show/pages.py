"""The manual on a terminal: its pages are the files of `rlcorr_cli/manual`, in the order of PAGES.

A new page is a file there and a row here.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.show.stdout import emit, render

MANUAL = Path(__file__).parents[1] / "manual"
PAGES = {
    "tutorial": "the idea from nothing, in five minutes with the sample data",
    "record": "a dump in two lines of any trainer, and where they go in 13",
    "dumps": "which files and columns are read, and what happens to bad rows",
    "scalars": "no dump: what a run has logged, and which steps to record",
    "tokens": "rows of a dump token by token, with their text",
    "stores": "dumps and outputs in S3 and other object stores",
    "reading": "verdict, rules, intervals, notation",
    "metrics": "every metric: formula, meaning, typical sizes, when to worry",
    "glossary": "every word that reports, pages and helps print",
    "intervals": "how intervals are made, and how often they hold",
    "diagnose": "the cause of a gap: what a dump tells, and what it cannot",
    "symptoms": "24 questions: your symptom, a command, and what it says",
    "corrections": "presets, flags, plan files, frameworks' own configs",
    "choosing": "which correction to take, and what each costs",
    "objectives": "what PPO and similar objectives make of a batch, and what mistakes cost",
    "dataset": "what `filter` writes",
    "pictures": "what `plot` draws, and the forms of a report",
    "engines": "two engines or releases compared",
    "totals": "totals of parts, saved and added",
    "clusters": "a dump read by many machines: Ray, Slurm, Kubernetes",
    "ci": "`check` as a gate, exit statuses",
    "falls": "which numbers move before the reward of small runs falls",
    "profiles": "the numbers of one framework release, to be compared with a dashboard",
    "python": "the same from Python",
    "performance": "speed, memory, scale",
    "development": "how it is built, where a change goes",
    "changelog": "what changed",
}
"""Page -> what it is about, as the README lists it."""


def print_pages() -> None:
    """List the pages, each with what it is about."""
    longest = max(map(len, PAGES))
    lines = [f"  {name:{longest}}  {about}" for name, about in PAGES.items()]
    emit(
        "\n".join(
            [
                "Pages of the manual:",
                "",
                *lines,
                "",
                "`rlcorr help PAGE` shows one, `rlcorr help COMMAND` the help of a command.",
                "",
            ]
        )
    )


def print_page(name: str, others: Iterable[str] = ()) -> None:
    """Show a page: drawn on a terminal, as its Markdown in a pipe; an unknown name is a UsageError.

    others: what else could have been named.
    """
    if name not in PAGES:
        known = nearest(name, {*PAGES, *others})
        raise UsageError(f"The manual has no page '{name}'.", f"Similar pages: {known}.")
    text = (MANUAL / f"{name}.md").read_text(encoding="utf-8")
    if sys.stdout is None or not sys.stdout.isatty():
        emit(text)
        return
    from rich.markdown import Markdown

    render(lambda console: console.print(Markdown(text)))
