"""Totals: what rows add up to, one row of a table for each group of a dump's rows.

Every number belongs to one row first (the sum of its log-ratios, the least, the log of a sum of exponentials); a
group's is its rows' numbers, merged by sum, min, max or log-sum-exp.  Histograms and tails are lists of each group
(`lists.py`).  So a batch of rows becomes Totals by one sort and one `reduceat` (`Totals.of_rows`), and Totals add: the
groups of both, each number by its merge.  + is associative and commutative but for the order of groups, Totals of no
group are its identity, neither operand changes, and it refuses Totals of other names.  So adding batches, shards, files
or machines is the same operation.

Names are those that the rows' columns had, under the name of a block: "diagnostics.decoupled.k3", "plan.ID.weight.tok".
An empty batch has the same names: its columns have length 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.exact import Floats, check_counts
from rlcorr_cli.totals.histogram import Histogram, Histograms
from rlcorr_cli.totals.lists import Ints, first_of_each
from rlcorr_cli.totals.tail import Tail, Tails

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

    A histogram or tail of what a plan keeps names that of all tokens (`part_of`); where a group loses nothing, both
    are equal and it is stored once: they are most of what many small groups take.
    """

    keys: tuple[GroupKey, ...]
    tables: Mapping[Merge, Table]
    histograms: Mapping[str, Histograms] = field(default_factory=dict[str, Histograms])
    tails: Mapping[str, Tails] = field(default_factory=dict[str, Tails])

    def __post_init__(self) -> None:
        n_groups = {len(self.keys), *(table.values.shape[1] for table in self.tables.values())}
        lists = {**self.histograms, **self.tails}
        if n_groups | {len(each) for each in lists.values()} != {len(self.keys)} or tuple(self.tables) != tuple(MERGES):
            raise ValueError("totals need every number of every group")

    def check_unpacked(self) -> None:
        """A ValueError of a group that is there twice, of counts below 0, and of lists that cannot be a group's."""
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("a group is there twice")
        for name, values in zip(self.tables["sum"].names, self.tables["sum"].values, strict=True):
            if name in COUNTS or (name.startswith("diagnostics.") and name.rpartition(".")[2] in _COUNTED):
                check_counts(values)
        kinds: tuple[Mapping[str, Any], ...] = (self.histograms, self.tails)
        for of_kind in kinds:
            for each in of_kind.values():
                each.check_stored(of_kind[each.part_of] if each.part_of else None)

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
        )

    def named(self, block: str) -> "Totals":
        """The same under the name of a block, or any other text before a dot."""

        def of_lists(lists: Mapping[str, Any]) -> dict[str, Any]:
            return {f"{block}.{name}": each for name, each in lists.items()}

        tables = {
            merge: Table(tuple(f"{block}.{name}" for name in table.names), table.values)
            for merge, table in self.tables.items()
        }
        return Totals(keys=self.keys, tables=tables, histograms=of_lists(self.histograms), tails=of_lists(self.tails))

    def __add__(self, other: "Totals") -> "Totals":
        total = Sum()
        total.add(self)
        total.add(other)
        return total.totals

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> tuple[Any, ...]:
        """What must be the same for totals to add: the names of all numbers, and of lists with what they are."""
        tables = tuple((merge, table.names) for merge, table in self.tables.items())
        lists = tuple((name, each.kind) for of in (self.histograms, self.tails) for name, each in of.items())
        return tables, lists

    @property
    def n_bytes(self) -> int:
        """What its arrays take."""
        lists = (*self.histograms.values(), *self.tails.values())
        return sum(t.values.nbytes for t in self.tables.values()) + sum(each.n_bytes for each in lists)

    def sum(self, name: str) -> Floats:
        """A sum of each group, f64[G]."""
        return self.tables["sum"][name]

    def histogram(self, name: str, at: int | None = None) -> Any:
        """Histograms of every group, or the Histogram of the group at a place."""
        return self._list(self.histograms, name, at)

    def tail(self, name: str, at: int | None = None) -> Any:
        """Tails of every group, or the Tail of the group at a place."""
        return self._list(self.tails, name, at)

    def _list(self, lists: Mapping[str, Any], name: str, at: int | None) -> "Histogram | Histograms | Tail | Tails":
        own = lists[name]
        base = lists[own.part_of] if own.part_of else None
        if at is None:
            return own if base is None else own.with_shared(base)
        return base[at] if base is not None and own.shared[at] else own[at]

    def at(self, places: "Sequence[int] | NDArray[Any] | slice") -> "Totals":
        """Some of the groups, in this order."""
        chosen = np.arange(len(self.keys))[places]
        return Totals(
            keys=tuple(self.keys[place] for place in chosen.tolist()),
            tables={merge: Table(t.names, t.values[:, chosen]) for merge, t in self.tables.items()},
            histograms={name: each.at(chosen) for name, each in self.histograms.items()},
            tails={name: each.at(chosen) for name, each in self.tails.items()},
        )

    @property
    def numbers(self) -> "Totals":
        """The same without its histograms and tails."""
        return replace(self, histograms={}, tails={})

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
    tables = [dict(part.tables) for part in parts]
    kinds: list[list[dict[str, Any]]] = [
        [dict(part.histograms) for part in parts],
        [dict(part.tails) for part in parts],
    ]
    if len(parts) > 1:
        parts.clear()
    merged_tables: dict[Merge, Table] = {}
    for merge in MERGES:
        of_parts = [of_part.pop(merge) for of_part in tables]
        numbers = _merged_numbers(merge, [of_part.values for of_part in of_parts], group_of, len(keys))
        merged_tables[merge] = Table(of_parts[0].names, numbers)
        of_parts.clear()
    merged_lists: list[dict[str, Any]] = []
    for lists in kinds:
        merged_lists.append(dict.fromkeys(lists[0]))
        # What is part of others first, while those are there.
        for name in sorted(lists[0], key=lambda name: not lists[0][name].part_of):
            base = lists[0][name].part_of
            bases = [part[base] for part in lists] if base else None
            of_parts = [part.pop(name) for part in lists]
            merged_lists[-1][name] = of_parts[0].total(of_parts, bases, group_of, len(keys))
    histograms, tails = merged_lists
    return Totals(keys=keys, tables=merged_tables, histograms=histograms, tails=tails)


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
