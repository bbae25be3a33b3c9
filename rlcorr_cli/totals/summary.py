"""Plain numbers that add: what is left of a batch once it has been observed.

A Summary is one group's totals: counts, and a Block by name for the diagnostics of each mode and for each plan.  `+` is
associative and commutative, `Summary.empty(layouts)` is its identity, neither operand changes, and
`observe(a ++ b) == observe(a) + observe(b)`; so threads, shards, files and machines are one case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rlcorr_cli.totals.block import Block, Layout, add_logs
from rlcorr_cli.totals.exact import check_counts, floats_from_list, floats_to_list
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.row_keys import DistinctKeys

GroupKey = tuple[Any, ...]
"""The training batch, then one group's values in the order of the columns asked for: (None, "math"), (3, "math"), (3,).

The batch is None where the dump has no column of batches, and all rows are one.
"""
GROUPS_AT_ONCE = 4096
"""Summaries that are added, or whose metrics are computed, in one step: enough for arrays to pay, and few enough for
them to be small."""
Layouts = Mapping[str, Layout]
"""The layout of each block by the block's name."""
MOST_CLUSTERS, MOST_GROUP_CLUSTERS = 100_001, 1024
"""From so many clusters of a dump on, and of one of its groups, they are estimated; fewer are counted exactly."""
COUNTS = ("rows", "empty", "masked_tokens")
"""Counts of all rows, those without a valid token too."""


@dataclass(frozen=True, eq=False, slots=True)
class Summary:
    """One group's totals; see the module.  counts: by the names of COUNTS.  blocks: by name."""

    counts: Mapping[str, int]
    blocks: Mapping[str, Block]

    def __post_init__(self) -> None:
        if tuple(self.counts) != COUNTS:
            raise ValueError(f"counts must be of {', '.join(COUNTS)}")

    def check_unpacked(self) -> None:
        """A ValueError of counts below 0."""
        check_counts(np.array([*self.counts.values()]))

    @classmethod
    def empty(cls, layouts: Layouts) -> "Summary":
        """Nothing observed: the identity of +."""
        return cls(dict.fromkeys(COUNTS, 0), {name: Block.empty(layout) for name, layout in layouts.items()})

    @property
    def layouts(self) -> Layouts:
        """Of its blocks."""
        return {name: block.layout for name, block in self.blocks.items()}

    def __add__(self, other: "Summary") -> "Summary":
        if self.blocks.keys() != other.blocks.keys():
            raise ValueError("summaries of different blocks do not add")
        return Summary(
            {name: count + other.counts[name] for name, count in self.counts.items()},
            {name: block + other.blocks[name] for name, block in self.blocks.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly."""
        return {
            "counts": dict(self.counts),
            "blocks": {name: block.to_dict() for name, block in self.blocks.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Summary":
        """What `to_dict` wrote."""
        return cls(data["counts"], {name: Block.from_dict(block) for name, block in data["blocks"].items()})


@dataclass(frozen=True, eq=False, kw_only=True)
class Replicates:
    """The same totals under R Poisson resamplings of the clusters: sums f64[K, R], logs [L, R] over shared peaks [L].

    Only what is a sum can be resampled in one pass, so there are no mins, maxs or histograms here.  clusters: what was
    resampled, by keys: sequences of one cluster are drawn together.
    """

    names: tuple[str, ...]
    sums: Floats
    logs: tuple[str, ...]
    log_peaks: Floats
    log_rests: Floats
    clusters: DistinctKeys

    def __post_init__(self) -> None:
        shapes = self.sums.shape[:1], self.log_peaks.shape, self.log_rests.shape[:1]
        n_draws = self.sums.shape[1:], self.log_rests.shape[1:]
        if shapes != ((len(self.names),), (len(self.logs),), (len(self.logs),)) or len(set(n_draws)) != 1:
            raise ValueError("replicates need a row for each of their names")

    @np.errstate(over="ignore", invalid="ignore")  # beyond float64 a sum is inf, and its metric null
    def __add__(self, other: "Replicates") -> "Replicates":
        if (self.names, self.logs) != (other.names, other.logs):
            raise ValueError("replicates of different totals do not add")
        peaks, rests = add_logs(self.log_peaks[:, None], self.log_rests, other.log_peaks[:, None], other.log_rests)
        return Replicates(
            names=self.names,
            sums=self.sums + other.sums,
            logs=self.logs,
            log_peaks=peaks[:, 0],
            log_rests=rests,
            clusters=self.clusters + other.clusters,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values; floats survive exactly."""
        return {
            "sums": dict(zip(self.names, floats_to_list(self.sums), strict=True)),
            "log_peaks": dict(zip(self.logs, floats_to_list(self.log_peaks), strict=True)),
            "log_rests": dict(zip(self.logs, floats_to_list(self.log_rests), strict=True)),
            "clusters": self.clusters.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Replicates":
        """What `to_dict` wrote."""
        sums, peaks, rests = (
            floats_from_list(list(data[name].values())) for name in ("sums", "log_peaks", "log_rests")
        )
        return cls(
            names=tuple(data["sums"]),
            sums=sums,
            logs=tuple(data["log_peaks"]),
            log_peaks=peaks,
            log_rests=rests,
            clusters=DistinctKeys.from_dict(data["clusters"]),
        )


def total(summaries: Iterable[Summary], layouts: Layouts) -> Summary:
    """The sum of any number of summaries, none included."""
    result, rest = Summary.empty(layouts), iter(summaries)
    # A portion at a time, because a sum of many needs room for all of them beside each other.
    while portion := list(islice(rest, GROUPS_AT_ONCE)):
        result = _total((result, *portion))
    return result


def _total(summaries: Sequence[Summary]) -> Summary:
    first, *others = summaries
    if any(summary.blocks.keys() != first.blocks.keys() for summary in others):
        raise ValueError("summaries of different blocks do not add")
    return Summary(
        {name: sum(summary.counts[name] for summary in summaries) for name in first.counts},
        {name: Block.total([summary.blocks[name] for summary in summaries]) for name in first.blocks},
    )
