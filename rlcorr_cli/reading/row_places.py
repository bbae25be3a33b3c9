"""Places of many rows at once, and the counting that turns a line of a range into a line of its file."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.files import filesystem
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Place, Unit

PIECE_BYTES = 16 << 20


@frozen
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

    def row_of(self, number: int, lines: "LineCounter") -> int | None:
        """The row that has a number in the whole file, if one of these has.  lines: of the reading, so far."""
        at = np.flatnonzero(np.asarray(self.numbers, np.int64) == number - lines.before(self.path, self.start))
        return int(at[0]) if len(at) else None


def resolved(place: Place) -> Place:
    """The same place counted from the file's start: reads the file up to it where that is not known yet."""
    (counted,) = all_resolved([place])
    return counted


def all_resolved(places: Sequence[Place]) -> list[Place]:
    """The same of many places, in their order; each file is read once."""
    counter = LineCounter()
    starts = sorted({(place.path, place.start) for place in places})
    before = {(path, start): counter.before(path, start) for path, start in starts}
    return [replace(place, number=place.number + before[place.path, place.start], start=0) for place in places]


class LineCounter:
    """Counts the line ends before bytes of files; where the bytes of a file ascend, it is read once."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, int]] = {}

    def before(self, path: str, end: int) -> int:
        """Line ends before byte `end`; nothing is opened where all are counted."""
        start, count = self._counted.get(path, (0, 0))
        if start > end:
            start = count = 0
        if start < end:
            with filesystem(path).open(path) as file:
                file.seek(start)
                while (left := end - file.tell()) > 0 and (piece := file.read(min(left, PIECE_BYTES))):
                    count += piece.count(b"\n")
        self._counted[path] = (end, count)
        return count
