"""What is kept of a dump as a whole only, beside its groups' totals."""

from collections.abc import Mapping
from dataclasses import dataclass

from rlcorr_cli.totals.row_keys import RowSketch
from rlcorr_cli.totals.tail import Tail


@dataclass(frozen=True)
class Whole:
    """tails: by the names that a Summary has them under, but longer.  rows: None where nothing is resampled."""

    tails: Mapping[str, Tail]
    rows: RowSketch | None = None

    def __add__(self, other: "Whole") -> "Whole":
        # A batch of which a plan keeps nothing has no tail of what is kept.
        names = dict.fromkeys((*self.tails, *other.tails))
        tails = {name: _sum(self.tails.get(name), other.tails.get(name)) for name in names}
        rows = self.rows + other.rows if self.rows and other.rows else self.rows or other.rows
        return Whole(tails, rows)


def _sum(a: Tail | None, b: Tail | None) -> Tail:
    if a is not None and b is not None:
        return a + b
    kept = a or b
    assert kept is not None
    return kept
