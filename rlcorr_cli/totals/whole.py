"""What is kept of a dump as a whole only, beside its groups' totals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rlcorr_cli.totals.exact import Floats, check_counts
from rlcorr_cli.totals.histogram import Histogram
from rlcorr_cli.totals.row_keys import KeySample
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail

A = TypeVar("A", Tail, Histogram, KeySample, Floats)
RATIO_BUCKETS = 256
RATIO_SUMS = ("tokens", "rho_minus_1", "chi2")
"""What is summed by buckets of rollouts: enough for the mean of rho, and of rho^2, with their standard errors."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeDump:
    """tails: by the names that they have in Totals, longer than those of a group.  histograms: by name, of what is not
    told of groups.

    rows: by what tells them apart; texts: by their lengths, too; contents: by what they hold, too.  ratios:
    f64[RATIO_BUCKETS, RATIO_SUMS], by a hash of the rollout, so that a rollout that stands several times is in one
    bucket.  None where nothing is resampled.
    """

    tails: Mapping[str, Tail]
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    rows: KeySample | None = None
    contents: KeySample | None = None
    texts: KeySample | None = None
    ratios: Floats | None = None

    def check_unpacked(self) -> None:
        """A ValueError of tails that are not those of a dump, and of other sums of ratios than a dump has."""
        if any(tail.size != WHOLE_SIZE for tail in self.tails.values()):
            raise ValueError("a tail of the whole dump has another size")
        if self.ratios is not None:
            if self.ratios.shape != (RATIO_BUCKETS, len(RATIO_SUMS)):
                raise ValueError(f"ratios are not of {RATIO_BUCKETS} buckets")
            check_counts(self.ratios[:, 0])

    def __add__(self, other: "WholeDump") -> "WholeDump":
        return WholeDump(
            tails=_sum_each(self.tails, other.tails),
            histograms=_sum_each(self.histograms, other.histograms),
            rows=_sum(self.rows, other.rows),
            contents=_sum(self.contents, other.contents),
            texts=_sum(self.texts, other.texts),
            ratios=_sum(self.ratios, other.ratios),
        )


def _sum(a: A | None, b: A | None) -> A | None:
    return a + b if a is not None and b is not None else a if a is not None else b


def _sum_each(a: Mapping[str, A], b: Mapping[str, A]) -> dict[str, A]:
    return {name: total for name in {**a, **b} if (total := _sum(a.get(name), b.get(name))) is not None}
