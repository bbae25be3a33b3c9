"""Totals: what rows add up to, one row of a table for each group of a dump's rows.

Every number belongs to one row first (the sum of its log-ratios, the least, the log of a sum of exponentials); a
group's is its rows' numbers, merged by sum, min, max or log-sum-exp.  Up to MOST_LISTED groups have histograms and
tails, too; where there ever were more, none has, so that it does not matter how rows were split.  So a batch of rows
becomes Totals by one sort and one `reduceat` (`Totals.of_rows`), and Totals add: the groups of both, each number by its
merge.  + is associative and commutative but for the order of groups, Totals of no group are its identity, neither
operand changes, and it refuses Totals of other names.  So adding batches, shards, files or machines is the same
operation.

Names are those that the rows' columns had, under the name of a block: "diagnostics.decoupled.k3", "plan.ID.weight.tok".
An empty batch has the same names: its columns have length 0.

Replicates are the same sums under R resamplings of the rows, from which intervals are drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.bins import Histogram, Histograms
from rlcorr_cli.totals.flat import Floats, Ints, check_counts, first_of_each
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail, Tails

GroupKey = tuple[Any, ...]
"""The training batch, then one group's values in the order of the columns asked for: (None, "math"), (3, "math"), (3,).

The batch is None where the dump has no column of batches, and all rows are one.
"""
Merge = Literal["sum", "min", "max", "log_sum_exp"]
MERGES: Mapping[Merge, tuple[np.ufunc, float]] = {
    "sum": (np.add, 0.0),
    "min": (np.minimum, np.inf),
    "max": (np.maximum, -np.inf),
    "log_sum_exp": (np.logaddexp, -np.inf),
}
"""How numbers are merged -> by what function, and what nothing comes to."""
ROWS, EMPTY, MASKED = COUNTS = ("rows", "empty", "masked_tokens")
"""Sums over all rows, those without a valid token too: rows, rows without one, masked tokens.  They are in no block."""
_COUNTED = ("tokens", "sequences")
"""Sums of a block that are whole numbers."""
MOST_LISTED = 2_000
"""Groups that have histograms and tails, which take some 20 kB of each."""
T = TypeVar("T", Histogram, Tail)
OfGroups = tuple[T | None, ...] | None
"""Of each group; None of more groups than MOST_LISTED: a sum of some parts alone would be no group's."""


@frozen(eq=False)
class Table:
    """Numbers by name, f64[K, G]: of G groups, or of G replicates."""

    names: tuple[str, ...]
    values: Floats

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.names):
            raise ValueError("a table needs a row of numbers for each of its names")

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Name -> its row."""
        return {name: place for place, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> Floats:
        return self.values[self.places[name]]


@frozen(kw_only=True, eq=False)
class Totals:
    """Totals of G groups; see the module.  keys: distinct.  tables: f64[K, G] each.

    shared: the name of a histogram or tail of what a plan keeps -> that of all tokens.  A group that loses nothing has
    None under the first: both are equal, and are most of what many small groups take.
    """

    keys: tuple[GroupKey, ...]
    tables: Mapping[Merge, Table]
    histograms: Mapping[str, OfGroups[Histogram]] = field(default_factory=dict[str, OfGroups[Histogram]])
    tails: Mapping[str, OfGroups[Tail]] = field(default_factory=dict[str, OfGroups[Tail]])
    shared: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        n_groups = {len(self.keys), *(table.values.shape[1] for table in self.tables.values())}
        n_groups |= {len(each) for of in self.lists for each in of.values() if each is not None}
        if n_groups != {len(self.keys)} or tuple(self.tables) != tuple(MERGES):
            raise ValueError("totals need every number of every group")

    def check_unpacked(self) -> None:
        """A ValueError of a group that is there twice, of counts below 0, and of lists that cannot be a group's."""
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("a group is there twice")
        for name, values in zip(self.tables["sum"].names, self.tables["sum"].values, strict=True):
            if name in COUNTS or (name.startswith("diagnostics.") and name.rpartition(".")[2] in _COUNTED):
                check_counts(values)
        for of in self.lists:
            if len(self.keys) > MOST_LISTED and any(each is not None for each in of.values()):
                raise ValueError("so many groups have no histograms and no tails")
            for name, each in of.items():
                base = of[self.shared[name]] if name in self.shared else each
                if (each is None) != (base is None) or None in (base or ()):
                    raise ValueError("a group's histogram or tail is nowhere")
                if any(own and whole and own.n > whole.n for own, whole in zip(each or (), base or (), strict=True)):
                    raise ValueError("a part is more than the whole")

    @classmethod
    def of_rows(
        cls, keys: Sequence[GroupKey], group_of: Ints, columns: Mapping[Merge, Mapping[str, Floats]]
    ) -> "Totals":
        """Of B rows.  group_of: the place of each one's group among the keys, i64[B].  columns: f64[B] by name."""
        tables: dict[Merge, Table] = {}
        for merge in MERGES:
            by_name = columns.get(merge, {})
            rows = np.stack(tuple(by_name.values())) if by_name else np.zeros((0, len(group_of)))
            tables[merge] = Table(tuple(by_name), _merged_numbers(merge, [rows], group_of, len(keys)))
        return cls(keys=tuple(keys), tables=tables)

    def __or__(self, other: "Totals") -> "Totals":
        """Both sets of numbers of the same groups side by side."""
        if self.keys != other.keys:
            raise ValueError("totals of other groups do not stand side by side")
        tables: dict[Merge, Table] = {}
        for merge, table in self.tables.items():
            more = other.tables[merge]
            names = table.names + more.names
            if len(set(names)) < len(names):
                raise ValueError(f"two totals have one name: {sorted(set(table.names) & set(more.names))}")
            tables[merge] = Table(names, np.concatenate([table.values, more.values]))
        return Totals(
            keys=self.keys,
            tables=tables,
            histograms={**self.histograms, **other.histograms},
            tails={**self.tails, **other.tails},
            shared={**self.shared, **other.shared},
        )

    def named(self, block: str) -> "Totals":
        """The same under the name of a block, or any other text before a dot."""
        tables = {
            merge: Table(tuple(f"{block}.{name}" for name in table.names), table.values)
            for merge, table in self.tables.items()
        }
        histograms, tails = ({f"{block}.{name}": each for name, each in of.items()} for of in self.lists)
        shared = {f"{block}.{name}": whole for name, whole in self.shared.items()}
        return Totals(keys=self.keys, tables=tables, histograms=histograms, tails=tails, shared=shared)

    def __add__(self, other: "Totals") -> "Totals":
        total = Sum()
        total.add(self)
        total.add(other)
        return total.totals

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> tuple[Any, ...]:
        """What must be the same for totals to add: the names of all numbers, histograms and tails."""
        tables = tuple((merge, table.names) for merge, table in self.tables.items())
        return tables, tuple(self.histograms), tuple(self.tails), tuple(self.shared.items())

    @property
    def lists(self) -> tuple[Mapping[str, OfGroups[Any]], ...]:
        """Its histograms, and its tails."""
        return self.histograms, self.tails

    @property
    def lacks_lists(self) -> bool:
        """Whether there were too many groups for histograms and tails."""
        return None in self.tails.values()

    @property
    def n_bytes(self) -> int:
        """What its arrays take."""
        n_bytes = sum(table.values.nbytes for table in self.tables.values())
        n_bytes += sum(own.n_bytes for of in self.lists for each in of.values() for own in each or () if own)
        return n_bytes

    def sum(self, name: str) -> Floats:
        """A sum of each group, f64[G]."""
        return self.tables["sum"][name]

    def histogram(self, name: str, at: int | None = None) -> Histogram | Histograms:
        """Histograms of every group, or that of the group at a place; an empty one where there are none."""
        found = self._of_groups(self.histograms, name, at, Histogram.empty())
        return Histograms(found) if isinstance(found, tuple) else found

    def tail(self, name: str, at: int | None = None) -> Tail | Tails:
        """Tails, likewise."""
        found = self._of_groups(self.tails, name, at, Tail.empty(GROUP_SIZE))
        return Tails(found) if isinstance(found, tuple) else found

    def _of_groups(self, of: Mapping[str, OfGroups[T]], name: str, at: int | None, nothing: T) -> T | tuple[T, ...]:
        own, base = of[name], of[self.shared.get(name, name)]
        if own is None or base is None:
            return nothing
        if at is not None:
            return own[at] or base[at] or nothing
        return tuple(mine or whole or nothing for mine, whole in zip(own, base, strict=True))

    def at(self, places: "Sequence[int] | NDArray[Any] | slice") -> "Totals":
        """Some of the groups, in this order."""
        chosen = np.arange(len(self.keys))[places]
        in_order = chosen.tolist()
        histograms, tails = (
            {name: None if each is None else tuple(each[place] for place in in_order) for name, each in of.items()}
            for of in self.lists
        )
        return Totals(
            keys=tuple(self.keys[place] for place in in_order),
            tables={merge: Table(t.names, t.values[:, chosen]) for merge, t in self.tables.items()},
            histograms=histograms,
            tails=tails,
            shared=self.shared,
        )

    @property
    def numbers(self) -> "Totals":
        """The same without its histograms and tails."""
        return replace(self, histograms={}, tails={}, shared={})

    def regrouped(self, key_of: Callable[[GroupKey], GroupKey]) -> "Totals":
        """Groups of one new key added to each other, in the order in which the new keys come up."""
        places: dict[GroupKey, int] = {}
        group_of = np.array([places.setdefault(key_of(key), len(places)) for key in self.keys], np.int64)
        if len(places) == len(self.keys):
            return replace(self, keys=tuple(places))
        return _merged([self], tuple(places), group_of)

    @property
    def whole(self) -> "Totals":
        """All groups as one, of the empty key."""
        return _merged([self], ((),), np.zeros(len(self.keys), np.int64))


class Sum:
    """A sum of Totals in the making, in place.

    A dump of 100,000 groups comes in hundreds of batches: parts wait until they take as much as what has been merged,
    so that a group is copied a few times and not once for every batch; and they are let go of number by number.
    """

    def __init__(self) -> None:
        self.keys: dict[GroupKey, int] = {}
        """Each group's place in the sum."""
        self._parts: list[Totals] = []
        self._names: tuple[Any, ...] | None = None
        self._merged_bytes = self._waiting_bytes = 0

    def add(self, part: Totals) -> None:
        """Add the totals of one more part; a ValueError of other names than those before."""
        if self._names is None:
            self._names = part.names
        elif part.names != self._names:
            raise ValueError("totals of other names do not add")
        for key in part.keys:
            self.keys.setdefault(key, len(self.keys))
        self._parts.append(part)
        self._waiting_bytes += part.n_bytes
        if self._waiting_bytes > max(self._merged_bytes, _WAITING):
            self._merge()

    @property
    def totals(self) -> Totals:
        """The sum so far, of at least one part."""
        if len(self._parts) > 1:
            self._merge()
        (total,) = self._parts
        return total

    def _merge(self) -> None:
        group_of = np.array([self.keys[key] for part in self._parts for key in part.keys], np.int64)
        self._parts = [_merged(self._parts, tuple(self.keys), group_of)]
        self._merged_bytes, self._waiting_bytes = self._parts[0].n_bytes, 0


_WAITING = 1 << 23
"""Bytes of parts that are not worth a merge by themselves."""


def _merged(parts: list[Totals], keys: tuple[GroupKey, ...], group_of: Ints) -> Totals:
    """The totals of all parts' groups by new groups; the list of parts is emptied, so that their arrays can go one by
    one.  group_of: the place among the keys of each group of each part."""
    tables, shared = [dict(part.tables) for part in parts], parts[0].shared
    lists = [[dict(part.histograms) for part in parts], [dict(part.tails) for part in parts]]
    if len(parts) > 1:
        parts.clear()
    merged_tables: dict[Merge, Table] = {}
    for merge in MERGES:
        of_parts = [of_part.pop(merge) for of_part in tables]
        numbers = _merged_numbers(merge, [of_part.values for of_part in of_parts], group_of, len(keys))
        merged_tables[merge] = Table(of_parts[0].names, numbers)
        of_parts.clear()
    histograms, tails = (_merged_lists(of, shared, group_of, len(keys)) for of in lists)
    return Totals(keys=keys, tables=merged_tables, histograms=histograms, tails=tails, shared=shared)


def _merged_lists(
    parts: Sequence[dict[str, OfGroups[Any]]], shared: Mapping[str, str], group_of: Ints, n_groups: int
) -> dict[str, OfGroups[Any]]:
    """Histograms, or tails, of all parts' groups by new groups; the parts are emptied."""
    merged: dict[str, OfGroups[Any]] = dict.fromkeys(parts[0])
    if n_groups > MOST_LISTED:
        for part in parts:
            part.clear()
        return merged
    members: list[list[int]] = [[] for _ in range(n_groups)]
    for place, group in enumerate(group_of.tolist()):
        members[group].append(place)
    # Those of kept tokens first, while those of all tokens are there.
    for name in sorted(merged, key=lambda name: name not in shared):
        own, whole = (_of_every_part(parts, each) for each in (name, shared.get(name, name)))
        if own is not None and whole is not None:
            merged[name] = tuple(_sum_of_group([own[at] for at in of], [whole[at] for at in of]) for of in members)
        for part in parts:
            part.pop(name)
    return merged


def _of_every_part(parts: Sequence[Mapping[str, OfGroups[T]]], name: str) -> list[T | None] | None:
    """Of each group of each part; None where a part has had too many."""
    every = [part[name] for part in parts]
    return None if None in every else [each for of in every for each in of or ()]


def _sum_of_group(own: Sequence[Any], whole: Sequence[Any]) -> Any:
    """What those of one group come to; None where none has one of its own."""
    each = [mine or shared for mine, shared in zip(own, whole, strict=True) if mine or shared] if any(own) else [None]
    return each[0].total(each) if len(each) > 1 else each[0]


@np.errstate(over="ignore", invalid="ignore")  # beyond float64 a sum is inf, and its metric null
def _merged_numbers(merge: Merge, parts: Sequence[Floats], group_of: Ints, n_groups: int) -> Floats:
    """[K, B] in parts, one after another -> f64[K, n_groups].  group_of: the new group of each column, i64[B].

    A few numbers at a time, because what is held beside the parts is what a dump of many groups takes at most.
    """
    ufunc, nothing = MERGES[merge]
    n_numbers = len(parts[0])
    if len(parts) == 1 and np.array_equal(group_of, np.arange(n_groups)):
        return parts[0]
    values = np.full((n_numbers, n_groups), nothing)
    if not values.size or not len(group_of):
        return values
    order = np.argsort(group_of, kind="stable") if (group_of[1:] < group_of[:-1]).any() else slice(None)
    starts = first_of_each(group_of[order])
    groups = group_of[order][starts]
    reduceat = _log_sum_exp if merge == "log_sum_exp" else ufunc.reduceat
    at_once = max(1, _MERGED_AT_ONCE // len(group_of))
    for first in range(0, n_numbers, at_once):
        some = slice(first, first + at_once)
        rows = np.concatenate([part[some] for part in parts], axis=1)
        values[some, groups] = reduceat(rows[:, order], starts, axis=1)
    return values


_MERGED_AT_ONCE = 1 << 17
"""Numbers of groups that are merged in one step: 1 MiB."""


def _log_sum_exp(rows: Floats, starts: Ints, axis: int) -> Floats:
    """log sum e^x of each stretch of a row, about its largest x; what NumPy's logaddexp.reduceat takes ten times as
    long for."""
    peaks = np.maximum.reduceat(rows, starts, axis=axis)
    # A sum of nothing but zeros has the log -inf, and no distance from its peak.
    shifts = np.where(np.isfinite(peaks), peaks, 0.0)
    lengths = np.diff(np.append(starts, rows.shape[axis]))
    with np.errstate(divide="ignore"):
        return shifts + np.log(np.add.reduceat(np.exp(rows - np.repeat(shifts, lengths, axis=axis)), starts, axis=axis))


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


K = TypeVar("K")


def add_each(totals: dict[K, Any], parts: Mapping[K, Any]) -> None:
    """Add each part to the total of its key, in place."""
    for key, part in parts.items():
        totals[key] = totals[key] + part if key in totals else part


GroupReplicates = Mapping[tuple[Any, ...], Mapping[str, Replicates]] | None
"""A group's values, without its training batch -> the replicates of each mode's diagnostics; None of more groups than
MOST_RESAMPLED, of which none are kept: a sum of some parts alone would be no group's."""


def add_replicates(a: GroupReplicates, b: GroupReplicates) -> GroupReplicates:
    """Those of both, group by group; None where there are none of either, or they are of too many groups."""
    if a is None or b is None or len(a.keys() | b.keys()) > MOST_RESAMPLED:
        return None
    totals = {key: dict(by_mode) for key, by_mode in a.items()}
    for key, by_mode in b.items():
        add_each(totals.setdefault(key, {}), by_mode)
    return totals


def regrouped(replicates: GroupReplicates, places: Sequence[int]) -> GroupReplicates:
    """The same by the values at some places of the groups' own."""
    totals: GroupReplicates = {}
    for values, by_mode in (replicates or {}).items():
        totals = add_replicates(totals, {tuple(values[place] for place in places): by_mode})
    return None if replicates is None else totals
