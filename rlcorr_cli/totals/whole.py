"""What is kept of a dump as a whole only, beside its groups' totals."""

from collections.abc import Mapping
from dataclasses import field
from typing import TypeVar

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.histogram import Histogram
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail

A = TypeVar("A", Tail, Histogram, KeySample)


@frozen(kw_only=True, eq=False)
class WholeDump:
    """tails: by the names that they have in Totals, longer than those of a group.  histograms: by name, of what is not
    told of groups.

    rows: by what tells them apart; texts: by their lengths, too; contents: by what they hold, too.  None where nothing
    is resampled.
    """

    tails: Mapping[str, Tail]
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    rows: KeySample | None = None
    contents: KeySample | None = None
    texts: KeySample | None = None

    def check_unpacked(self) -> None:
        """A ValueError of tails that are not those of a dump."""
        if any(tail.size != WHOLE_SIZE for tail in self.tails.values()):
            raise ValueError("a tail of the whole dump has another size")

    def __add__(self, other: "WholeDump") -> "WholeDump":
        return WholeDump(
            tails=_sum_each(self.tails, other.tails),
            histograms=_sum_each(self.histograms, other.histograms),
            rows=_sum(self.rows, other.rows),
            contents=_sum(self.contents, other.contents),
            texts=_sum(self.texts, other.texts),
        )


def _sum(a: A | None, b: A | None) -> A | None:
    return a + b if a is not None and b is not None else a if a is not None else b


def _sum_each(a: Mapping[str, A], b: Mapping[str, A]) -> dict[str, A]:
    return {name: total for name in {**a, **b} if (total := _sum(a.get(name), b.get(name))) is not None}
