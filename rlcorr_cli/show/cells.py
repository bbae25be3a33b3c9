"""Tables before any form lays them out: the terminal, the page and Markdown show the same rows with the same marks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import compress

from rlcorr_cli.results.report import Report
from rlcorr_cli.results.rules import Finding, worst_first
from rlcorr_cli.show.numbers import number, share

MARK = "!"
"""What stands behind a value that breaks a rule."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table.  sort_key: None for text.  status: of the worst rule broken here, or empty."""

    text: str
    sort_key: float | None = None
    status: str = ""

    @property
    def marked(self) -> str:
        """The text, with the mark where a rule is broken."""
        return f"{self.text} {MARK}" if self.status else self.text


def number_of(value: object) -> float | None:
    """What a group's key is sorted by: its number, None of anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table: its headings, of which the first says what the rows are, and its rows.

    n_keys: how many columns, from the first on, say what a row is of.  words: headings of other columns of text; all
    others hold numbers.  has_total: whether the last row takes all others together.  spare: headings of what is left
    out where there is no room, in this order.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    n_keys: int = 1
    words: tuple[str, ...] = ()
    has_total: bool = False
    spare: tuple[str, ...] = ()

    @property
    def has_marks(self) -> bool:
        """Whether any cell breaks a rule."""
        return any(cell.status for row in self.rows for cell in row)

    def width(self, gap: int = 2) -> int:
        """Characters of its widest line."""
        return sum(self._widths(gap)) - gap

    def _widths(self, gap: int) -> list[int]:
        """Characters of each column, with the gap behind it."""
        return [
            gap + max(len(heading), *(len(row[i].marked) for row in self.rows), 0)
            for i, heading in enumerate(self.headings)
        ]

    def within(self, width: int, gap: int = 2) -> tuple["Rows", tuple[str, ...]]:
        """The table without as many of its spare columns as do not fit, and their headings.  gap: between columns.

        What a row is of stays, whatever it is called; a spare heading that the table has not is none of it.
        """
        widths = self._widths(gap)
        spare = {heading: i for i, heading in enumerate(self.headings) if i >= self.n_keys}
        left_out: list[str] = []
        for heading in filter(spare.__contains__, self.spare):
            if sum(widths) - gap <= width:
                break
            widths[spare[heading]] = 0
            left_out.append(heading)
        rows = tuple(tuple(compress(row, widths)) for row in self.rows)
        return replace(self, headings=tuple(compress(self.headings, widths)), rows=rows, spare=()), tuple(left_out)


def statuses(findings: Iterable[Finding]) -> dict[str, str]:
    """Metric -> the status of the worst rule that it breaks."""
    return {finding.metric: finding.status for finding in reversed(worst_first(findings))}


def marks(report: Report) -> dict[str, str]:
    """The same of the whole dump, where a value that cannot be fails, too."""
    impossible = {} if report.impossible is None else {report.impossible.metric: "fail"}
    return {**statuses(report.health), **impossible}


def value_cell(name: str, values: Mapping[str, float | None], status_of: Mapping[str, str]) -> Cell:
    """A metric's number, marked where a rule on it is broken."""
    value = values.get(name)
    return Cell(number(value), value, status_of.get(name, ""))


def share_cell(name: str, values: Mapping[str, float | None], status_of: Mapping[str, str]) -> Cell:
    """The same of a metric that is a share, as a percentage."""
    value = values.get(name)
    return Cell(share(value), value, status_of.get(name, ""))
