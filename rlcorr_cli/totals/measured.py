"""Measured: the totals of any number of shards, which is what a worker sends back and what adds.

+ is associative and commutative and `Measured()` is its identity.  It refuses totals of another provenance (a
UsageError that names what differs, on both sides) and totals that cover the same rows (a DataError that names the
shard).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import BinnedTotals, Histogram
from rlcorr_cli.totals.comparison import COMPARISON
from rlcorr_cli.totals.provenance import Coverage, Provenance, ShardId
from rlcorr_cli.totals.row_keys import DistinctKeys, KeySample
from rlcorr_cli.totals.row_sample import RowSample, SampleSum
from rlcorr_cli.totals.tail import GROUP_SIZE, WHOLE_SIZE, Tail
from rlcorr_cli.totals.totals import MOST_RESAMPLED, GroupReplicates, Replicates, Sum, Totals, add_each, add_replicates

MOST_GROUPS = 200_000
"""Groups of one dump; each takes some 3 kB, of up to MOST_LISTED some 20 kB."""
MOST_STEPS = 10_000
"""Groups that rows are told apart in without being asked for; of more, all steps are taken together."""
MOST_COMPARED = 10_000
"""Groups in which plans are compared; each takes some 90 kB, its JSON included."""


@frozen(kw_only=True, eq=False)
class WholeDump:
    """What is kept of a dump as a whole only, beside its groups' totals.

    tails: by the names that they have in Totals, longer than those of a group, but of what plans that are compared
    leave.  histograms: by name, of what is not told of groups, too.

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
        sizes = {name: GROUP_SIZE if name.startswith(f"{COMPARISON}.") else WHOLE_SIZE for name in self.tails}
        if any(tail.size != sizes[name] for name, tail in self.tails.items()):
            raise ValueError("a tail of the whole dump has another size")

    @classmethod
    def total(cls, parts: "Sequence[WholeDump]") -> "WholeDump":
        """The sum of some."""
        tails, histograms = (
            _by_name(of_parts) for of_parts in ([p.tails for p in parts], [p.histograms for p in parts])
        )
        rows, contents, texts = (
            reduce(_sum, of_parts) for of_parts in zip(*((p.rows, p.contents, p.texts) for p in parts), strict=True)
        )
        return cls(tails=tails, histograms=histograms, rows=rows, contents=contents, texts=texts)

    def __add__(self, other: "WholeDump") -> "WholeDump":
        return WholeDump.total([self, other])


@frozen(kw_only=True)
class Measured:
    """Totals of any number of shards.

    provenance: what they are of; None of nothing.  covered: the shards.  totals: of each group; None where no row was
    read.  replicates: of each mode's diagnostics.  rows: per input path.  whole: what is kept of the dump as a whole.
    group_replicates: of each group, where these are resampled, too.  sample: of the rows, where a cause is
    looked for.  step_clusters: of each step, where rows are grouped by it.
    """

    provenance: Provenance | None = None
    covered: frozenset[ShardId] = frozenset()
    totals: Totals | None = None
    replicates: Mapping[str, Replicates] = field(default_factory=dict[str, Replicates])
    pictures: BinnedTotals | None = None
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    whole: WholeDump | None = None
    group_replicates: GroupReplicates = field(default_factory=dict[tuple[Any, ...], Mapping[str, Replicates]])
    sample: RowSample | None = None
    step_clusters: Mapping[Any, DistinctKeys] = field(default_factory=dict[Any, DistinctKeys])

    def __post_init__(self) -> None:
        if self.provenance is None and (self.totals is not None or self.covered or self.rows):
            raise ValueError("these totals are of nothing: they need a provenance")

    @property
    def pooled(self) -> "Measured":
        """The same with all steps taken together, where they were told apart without being asked for."""
        if self.provenance is None or not self.provenance.adds_step:
            return self
        return replace(
            self,
            provenance=self.provenance.without_step,
            totals=None if self.totals is None else self.totals.regrouped(lambda key: key[:-1]),
            group_replicates=self.group_replicates if len(self.provenance.groups) > 1 else {},
            step_clusters={},
        )

    def __add__(self, other: "Measured") -> "Measured":
        total = MeasuredSum()
        total.add(self)
        total.add(other)
        return total.measured


_WAITING = 8
"""Parts' numbers of the whole dump that wait to be added at once."""


@dataclass(kw_only=True)
class MeasuredSum:
    """A sum in the making, in place: a dump may have as many groups as training batches, and no part is added twice."""

    provenance: Provenance | None = None
    sum: Sum | None = None
    rows: Counter[str] = field(default_factory=Counter[str])
    coverage: Coverage = field(default_factory=Coverage)
    replicates: dict[str, Replicates] = field(default_factory=dict[str, Replicates])
    pictures: BinnedTotals | None = None
    wholes: list[WholeDump] = field(default_factory=list[WholeDump])
    group_replicates: GroupReplicates = field(default_factory=dict[tuple[Any, ...], Mapping[str, Replicates]])
    samples: SampleSum = field(default_factory=SampleSum)
    step_clusters: dict[Any, DistinctKeys] = field(default_factory=dict[Any, DistinctKeys])

    def add(self, part: Measured) -> None:
        """Add the totals of one more part, in place; with all steps taken together where they come to too many."""
        if self.provenance is not None and part.provenance is not None:
            if self.provenance.is_pooled:
                part = part.pooled
            elif part.provenance.is_pooled:
                self._pool()
        if part.provenance is not None:
            if self.provenance is not None:
                self.provenance.check_same(part.provenance)
            self.provenance = self.provenance or part.provenance
        self.coverage.add(part.covered)
        if part.totals is not None:
            self.sum = self.sum or Sum()
            self.sum.add(part.totals)
        add_each(self.replicates, part.replicates)
        self.group_replicates = add_replicates(self.group_replicates, part.group_replicates)
        add_each(self.step_clusters, part.step_clusters)
        self.pictures = _sum(self.pictures, part.pictures)
        if part.whole is not None:
            self.wholes.append(part.whole)
            if len(self.wholes) > _WAITING:
                self.wholes = [WholeDump.total(self.wholes)]
        if part.sample is not None:
            self.samples.add(part.sample)
        self.rows.update(part.rows)
        if self.provenance is not None:
            if self.provenance.adds_step and self.n_groups > min(MOST_STEPS, MOST_GROUPS):
                self._pool()
            check_few(self.n_groups, (self.provenance.batch, *self.provenance.groups))

    def _pool(self) -> None:
        """Take all steps together."""
        pooled = self.measured.pooled
        self.provenance, self.sum = pooled.provenance, None
        if pooled.totals is not None:
            self.sum = Sum()
            self.sum.add(pooled.totals)
        self.group_replicates, self.step_clusters = pooled.group_replicates, dict(pooled.step_clusters)

    @property
    def n_groups(self) -> int:
        """How many groups there are so far."""
        return 0 if self.sum is None else len(self.sum.keys)

    @property
    def measured(self) -> Measured:
        """The sum so far."""
        self.wholes = [WholeDump.total(self.wholes)] if self.wholes else []
        return Measured(
            provenance=self.provenance,
            covered=frozenset(self.coverage.shards),
            totals=None if self.sum is None else self.sum.totals,
            replicates=self.replicates,
            pictures=self.pictures,
            rows=dict(self.rows),
            whole=next(iter(self.wholes), None),
            group_replicates=self.group_replicates,
            sample=self.samples.sample,
            step_clusters=self.step_clusters,
        )


def check_few(
    n_groups: int, columns: Iterable[str | None], most: int | None = None, deed: str = "kept in memory"
) -> None:
    """A UsageError for more groups than are kept, or than something else is done with.  columns: what they are by; None
    for no column of batches."""
    most = MOST_GROUPS if most is None else most
    if n_groups > most:
        by = ", ".join(filter(None, columns))
        raise UsageError(
            f"There are over {most:,} groups by {by}, more than are {deed}.",
            "Group by a column of fewer values, such as step, or name some of the dump's files at a time.",
        )


def check_resampled(replicates: GroupReplicates) -> None:
    """A UsageError for more groups than are resampled."""
    if replicates is None:
        raise UsageError(
            f"There are over {MOST_RESAMPLED} groups, more than are compared.",
            "Group by a column of fewer values, such as step.",
        )


def _by_name(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of what has one name."""
    each: dict[str, list[Any]] = {}
    for part in parts:
        for name, one in part.items():
            each.setdefault(name, []).append(one)
    return {name: of_name[0].total(of_name) for name, of_name in each.items()}


A = TypeVar("A", BinnedTotals, WholeDump, KeySample)


def _sum(a: A | None, b: A | None) -> A | None:
    return a + b if a is not None and b is not None else a if a is not None else b
