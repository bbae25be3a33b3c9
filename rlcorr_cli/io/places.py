"""Places of many rows at once, and the counting that turns a line of a range into a line of its file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.places import Place, Unit

PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class Places:
    """Where the rows of a part are.  numbers: of each row, counted from byte `start`, as in Place."""

    path: str
    unit: Unit
    numbers: Sequence[int] | NDArray[np.int64]
    start: int = 0

    def __getitem__(self, row: int) -> Place:
        return Place(self.path, self.unit, int(self.numbers[row]), self.start)

    def part(self, first: int, last: int) -> "Places":
        """Rows first..last-1."""
        return replace(self, numbers=self.numbers[first:last])

    def take(self, rows: NDArray[np.int64]) -> "Places":
        """These rows, in order."""
        return replace(self, numbers=np.asarray(self.numbers, np.int64)[rows])

    def resolved_numbers(self) -> list[int]:
        """The rows' numbers in the whole file."""
        before = _lines_before(self.path, self.start)
        return [before + int(number) for number in self.numbers]


def resolved(place: Place) -> Place:
    """The same place counted from the file's start: reads the file up to it where that is not known yet."""
    return replace(place, number=place.number + _lines_before(place.path, place.start), start=0)


def _lines_before(path: str, end: int) -> int:
    """Line ends before byte `end`."""
    if not end:
        return 0
    count = 0
    with open(path, "rb") as file:
        while (left := end - file.tell()) > 0 and (piece := file.read(min(left, PIECE_BYTES))):
            count += piece.count(b"\n")
    return count
