"""Where a row of a dump is: a plain value that can be kept, sent to another process, and worded later."""

from dataclasses import dataclass
from typing import Literal

STDIN = "-"
Unit = Literal["row", "line"]
"""Rows of Parquet count from 0, lines of JSON lines from 1."""


def shown(path: str) -> str:
    """A path as messages name it."""
    return "standard input" if path == STDIN else path


@dataclass(frozen=True)
class Place:
    """One row of a file.

    number: of the row or line, counted from byte `start`.  A worker that reads a range of a file cannot tell how many
    lines come before it, so `start` is the range's; `io.places.resolved` counts them, for the places that are shown.
    """

    path: str
    unit: Unit
    number: int
    start: int = 0

    @property
    def text(self) -> str:
        """'dump.jsonl, line 17', of a place that was resolved."""
        counted = " (0-based)" if self.unit == "row" else ""
        return f"{shown(self.path)}, {self.unit} {self.number}{counted}"
