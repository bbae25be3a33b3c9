"""A diagnosis on a terminal: the likely cause, its evidence and what to do, then where the gap sits."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.show.diagnosed import (
    EXPLAIN_NOTE,
    TURN,
    CauseWords,
    agreement,
    column_tables,
    group_rows,
    headline,
    level_rows,
    looked_at,
    rest,
    told,
)
from rlcorr_cli.show.inputs import named
from rlcorr_cli.show.numbers import number, plural
from rlcorr_cli.show.stdout import clean, render
from rlcorr_cli.show.terminal.report import print_anomalies, print_left_out, print_rows

MOST_LEVELS = 8
MOST_GROUPS = 40
"""Rows on a terminal."""


def print_diagnosis(dump: DiagnosedDump) -> None:
    """Print the diagnosis on stdout."""
    render(lambda console: _draw(console, dump))


def _draw(console: Console, dump: DiagnosedDump) -> None:
    _head(console, dump)
    print_anomalies(console, [each for each in dump.anomalies if not each.voids])
    _paragraph(console, headline(dump), 2, "bold")
    causes = told(dump)
    for cause in causes:
        if cause.name == dump.verdict:
            _details(console, cause)
    for cause in causes:
        if cause.name != dump.verdict:
            _paragraph(console, f"Also: {cause.headline}", 2)
            _details(console, cause)
    console.print()
    _where(console, dump)
    _closing(console, dump)


def _head(console: Console, dump: DiagnosedDump) -> None:
    """Print what was read, and how large the gap is, in one line where there is room."""
    counts, diagnosis = dump.whole.counts, dump.whole.diagnosis
    read = "  ".join((named(dump.inputs), plural(counts["sequences"], "sequence"), plural(counts["tokens"], "token")))
    gap = f"k3_kl {number(diagnosis.k3)}  sd of log-ratio {number(diagnosis.deviation)}"
    console.print(Text(f"{read}  {gap}" if len(read) + 2 + len(gap) <= console.width else f"{read}\n{gap}"))
    print_left_out(console, counts)
    console.print()


def _details(console: Console, cause: CauseWords) -> None:
    """Print the evidence and what to do; of a minor cause nothing but its line."""
    for words in () if cause.is_minor else (cause.evidence, cause.advice):
        if words:
            _paragraph(console, words, 4)


def _where(console: Console, dump: DiagnosedDump) -> None:
    """Print the tables of the columns that causes name, of turns and of groups."""
    diagnosis = dump.whole.diagnosis
    for column in column_tables(diagnosis):
        print_rows(console, level_rows(column.column, column.levels, most=MOST_LEVELS, in_order=column.grows))
    if len(diagnosis.turns) > 1:
        print_rows(console, level_rows(TURN, diagnosis.turns, most=MOST_LEVELS, in_order=True))
    if dump.groups:
        _paragraph(console, agreement(dump), 2)
        print_rows(console, group_rows(dump, MOST_GROUPS))


def _closing(console: Console, dump: DiagnosedDump) -> None:
    """Print what is left of the gap, what was looked at, facts, notes, and where to read on."""
    diagnosis = dump.whole.diagnosis
    words = " ".join(filter(None, (rest(dump), looked_at(diagnosis))))
    if words:
        _paragraph(console, words, 2)
    for fact in diagnosis.facts:
        _paragraph(console, clean(fact.sentence), 2)
    for note in dump.notes:
        _paragraph(console, clean(note), 2, "dim")
    if dump.verdict in ALL_CAUSES:
        _paragraph(console, EXPLAIN_NOTE.format(dump.verdict), 2, "dim")


def _paragraph(console: Console, text: str, indent: int, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), (0, 2, 0, indent)))
