"""Replicates: the same sums under R resamplings of the rows, from which intervals are drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.totals import MERGES, Merge, Table

MOST_CLUSTERS, MOST_GROUP_CLUSTERS = 100_001, 1024
"""From so many clusters of a dump on, and of one of its groups, they are estimated; fewer are counted exactly."""
MOST_STEP_CLUSTERS = 21
"""Of a step it is enough to know whether its clusters are few."""
MOST_RESAMPLED = 200
"""Groups that are resampled each, which takes some 70 kB."""


@frozen(kw_only=True, eq=False)
class Replicates:
    """The same totals under R Poisson resamplings of the clusters: sums f64[K, R], logs of sums f64[L, R].

    Only what is a sum can be resampled in one pass, so there are no mins, maxs or histograms here.  clusters: what was
    resampled, by keys: sequences of one cluster are drawn together.
    """

    sums: Table
    logs: Table
    clusters: DistinctKeys

    def __post_init__(self) -> None:
        if self.sums.values.shape[1] != self.logs.values.shape[1]:
            raise ValueError("replicates need as many of each of their names")

    @property
    def tables(self) -> Mapping[Merge, Table]:
        """Its numbers by how they are merged."""
        return {"sum": self.sums, "log_sum_exp": self.logs}

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """What must be the same for replicates to add: their names, and how many there are."""
        return self.sums.names, self.logs.names, self.sums.values.shape[1]

    @np.errstate(over="ignore", invalid="ignore")  # beyond float64 a sum is inf, and its metric null
    def __add__(self, other: "Replicates") -> "Replicates":
        if self.names != other.names:
            raise ValueError("replicates of different totals do not add")
        tables = {
            merge: Table(table.names, MERGES[merge][0](table.values, other.tables[merge].values))
            for merge, table in self.tables.items()
        }
        return Replicates(sums=tables["sum"], logs=tables["log_sum_exp"], clusters=self.clusters + other.clusters)


GroupReplicates = Mapping[tuple[Any, ...], Mapping[str, Replicates]] | None
"""A group's values, without its training batch -> the replicates of each mode's diagnostics; None of more groups than
MOST_RESAMPLED, of which none are kept: a sum of some parts alone would be no group's."""


def add_replicates(a: GroupReplicates, b: GroupReplicates) -> GroupReplicates:
    """Those of both, group by group; None where there are none of either, or they are of too many groups."""
    if a is None or b is None or len(a.keys() | b.keys()) > MOST_RESAMPLED:
        return None
    totals = {key: dict(by_mode) for key, by_mode in a.items()}
    for key, by_mode in b.items():
        mine = totals.setdefault(key, {})
        for name, part in by_mode.items():
            mine[name] = mine[name] + part if name in mine else part
    return totals


def regrouped(replicates: GroupReplicates, places: Sequence[int]) -> GroupReplicates:
    """The same by the values at some places of the groups' own."""
    totals: GroupReplicates = {}
    for values, by_mode in (replicates or {}).items():
        totals = add_replicates(totals, {tuple(values[place] for place in places): by_mode})
    return None if replicates is None else totals
