"""The numbers of one block for many groups at once, put at their names' places and taken out again group by group."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.block import Block, Layout
from rlcorr_cli.totals.histogram import Floats, Histogram
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail

_KINDS = ("sums", "mins", "maxs", "peaks", "rests")
_NO_HISTOGRAM, _NO_TAIL = Histogram.empty(), Tail.empty(GROUP_SIZE)
"""What a group without values has: one for all of them, because nothing is changed in place."""


@dataclass(frozen=True)
class BlockTables:
    """The numbers of G groups by kind, f64[G, K] in the layout's order; histograms and tails by name and group."""

    layout: Layout
    numbers: dict[str, Floats]
    histograms: dict[str, dict[int, Histogram]]
    tails: dict[str, dict[int, Tail]]

    @classmethod
    def empty(cls, layout: Layout, n_groups: int) -> "BlockTables":
        """No numbers yet."""
        shapes = {
            "sums": (layout.sums, 0.0),
            "mins": (layout.mins, np.inf),
            "maxs": (layout.maxs, -np.inf),
            "peaks": (layout.logs, -np.inf),
            "rests": (layout.logs, 0.0),
        }
        numbers = {kind: np.full((n_groups, len(names)), nothing) for kind, (names, nothing) in shapes.items()}
        return cls(layout, numbers, {name: {} for name in layout.histograms}, {name: {} for name in layout.tails})

    def fill(self, kind: str, groups: NDArray[np.int64], names: Iterable[str], values: Floats) -> None:
        """Put values [groups, names] where they belong."""
        places = self.layout.places[kind]
        self.numbers[kind][groups[:, None], [places[name] for name in names]] = values

    def block(self, group: int) -> Block:
        """One group's numbers."""
        sums, mins, maxs, peaks, rests = (self.numbers[kind][group] for kind in _KINDS)
        return Block(
            layout=self.layout,
            sums=sums,
            mins=mins,
            maxs=maxs,
            log_peaks=peaks,
            log_rests=rests,
            histograms=tuple(by_group.get(group, _NO_HISTOGRAM) for by_group in self.histograms.values()),
            tails=tuple(by_group.get(group, _NO_TAIL) for by_group in self.tails.values()),
        )
