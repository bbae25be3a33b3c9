"""Lists of many groups in flat arrays: no object for each of 100,000 groups, and no copy of one that stays as it is.

A stretch is a part of a source's flat columns: columns[k][start : start + length].  Each group's list is one; when
lists are added, those of groups that one side alone has stay where they are, and the others are put together in a new
source and reduced (equal bins added up, the largest values kept), a piece at a time, so that sorting takes room for a
piece and not for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.exact import check_counts

Ints = NDArray[np.int64]
Places = Ints | NDArray[np.bool_] | slice
Columns = tuple[NDArray[Any], ...]
"""Flat columns of one length, of any types."""
Reduce = Callable[[Ints, Columns], tuple[Ints, Columns]]
"""The group of each value, ascending, and the values' columns -> the same reduced, groups still ascending."""
PIECE = 1 << 18
"""Values that are reduced at once."""


def first_of_each(ordered: NDArray[Any]) -> Ints:
    """The places at which another value begins than the one before it."""
    return np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]]))


def starts_of(lengths: Ints) -> Ints:
    """Where each row's values begin among all."""
    return np.cumsum(lengths) - lengths


def offsets_of(lengths: Ints) -> Ints:
    """The same, and where the last one's end: i64[B + 1] of i64[B]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """starts[i], ..., starts[i] + lengths[i] - 1 for every i, one after another."""
    return np.repeat(starts - starts_of(lengths), lengths) + np.arange(lengths.sum())


@frozen(eq=False)
class Stretches:
    """S stretches of the flat columns of some sources: the source, start and length of each, i64[S]."""

    sources: tuple[Columns, ...]
    source_of: Ints
    starts: Ints
    lengths: Ints

    @classmethod
    def of_rows(cls, columns: Columns, lengths: Ints) -> "Stretches":
        """Of one source, one after the other."""
        return cls((columns,), np.zeros(len(lengths), np.int64), starts_of(lengths), lengths)

    @classmethod
    def joined(cls, parts: "Sequence[Stretches]") -> "Stretches":
        """Those of all parts."""
        firsts = np.cumsum([0, *(len(part.sources) for part in parts)]).tolist()
        return cls(
            tuple(source for part in parts for source in part.sources),
            np.concatenate([part.source_of + first for part, first in zip(parts, firsts[:-1], strict=True)]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )

    def check_unpacked(self) -> None:
        """A ValueError of stretches that lie outside of their sources."""
        shapes = {each.shape for each in (self.source_of, self.starts, self.lengths)}
        sizes = [{column.shape for column in source} for source in self.sources]
        if len(shapes) > 1 or not sizes or any(len(of) != 1 or len(next(iter(of))) != 1 for of in sizes):
            raise ValueError("stretches need a source, a start and a length each")
        check_counts(self.source_of, self.starts, self.lengths)
        of_sources = np.array([len(source[0]) for source in self.sources])
        if np.any(self.source_of >= len(of_sources)) or np.any(self.ends > of_sources[self.source_of]):
            raise ValueError("a stretch lies outside of its source")

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> Ints:
        """Where each one ends, i64[S]."""
        return self.starts + self.lengths

    @property
    def n_bytes(self) -> int:
        """What the stretches take."""
        width = sum(column.itemsize for column in self.sources[0])
        return int(self.lengths.sum()) * width + 3 * self.starts.nbytes

    def at(self, places: Places) -> "Stretches":
        """Some of them, in this order."""
        return Stretches(self.sources, self.source_of[places], self.starts[places], self.lengths[places])

    def columns_of(self, place: int) -> Columns:
        """One of them."""
        own = slice(int(self.starts[place]), int(self.starts[place] + self.lengths[place]))
        return tuple(column[own] for column in self.sources[int(self.source_of[place])])

    @property
    def _present(self) -> list[int]:
        """The sources of which anything is left."""
        return sorted(set(self.source_of[self.lengths > 0].tolist()))

    @property
    def flat(self) -> Columns:
        """All of them, one after the other; views where they lie so already."""
        present = self._present
        if not present:
            return tuple(column[:0] for column in self.sources[0])
        own = self.at(self.lengths > 0)
        if len(present) == 1 and np.array_equal(own.starts[1:], own.ends[:-1]):
            return tuple(column[own.starts[0] : own.ends[-1]] for column in self.sources[present[0]])
        firsts, n = starts_of(own.lengths), int(own.lengths.sum())
        kinds = zip(*(self.sources[source] for source in present), strict=True)
        columns = tuple(np.empty(n, np.result_type(*kind)) for kind in kinds)
        for source in present:
            of_source = own.source_of == source
            here, there = (ranges(at[of_source], own.lengths[of_source]) for at in (firsts, own.starts))
            for column, values in zip(columns, self.sources[source], strict=True):
                column[here] = values[there]
        return columns

    @property
    def tidied(self) -> "Stretches":
        """The same without sources of which nothing is left; flat where half of them or more is left over."""
        held = sum(len(source[0]) for source in self.sources)
        present = self._present
        kept = [self.sources[source] for source in present] or [self.flat]
        if sum(len(source[0]) for source in kept) > 2 * int(self.lengths.sum()):
            return Stretches.of_rows(tuple(column.copy() for column in self.flat), self.lengths)
        if len(kept) == len(self.sources) or not held:
            return self
        source_of = np.where(self.lengths > 0, np.searchsorted(present, self.source_of), 0)
        return Stretches(tuple(kept), source_of, np.where(self.lengths > 0, self.starts, 0), self.lengths)

    def merged(self, group_of: Ints, n_groups: int, reduce: Reduce) -> "Stretches":
        """Those of each group put together and reduced, one for each group, of one source.

        group_of: of each stretch, i64[S].
        """
        if (group_of[1:] < group_of[:-1]).any():
            order = np.argsort(group_of, kind="stable")
            return self.at(order).merged(group_of[order], n_groups, reduce)
        ends = np.cumsum(self.lengths)
        n_values = int(ends[-1:].sum())
        cuts = np.searchsorted(ends, np.arange(PIECE, n_values, PIECE), side="right")
        sizes, values = np.zeros(n_groups, np.int64), tuple(column[:0] for column in self.sources[0])
        groups, reduced = np.zeros(0, np.int64), [_Column(np.empty(n_values, column.dtype)) for column in values]
        for first, end in pairwise(sorted({0, *cuts.tolist(), len(ends)})):
            piece = self.at(slice(first, end))
            groups = np.concatenate([groups, np.repeat(group_of[first:end], piece.lengths)])
            groups, values = reduce(groups, joined_columns([values, piece.flat]))
            # The last group may go on in the next piece.
            done = len(groups) if end == len(ends) else int(np.searchsorted(groups, groups[-1:].sum()))
            sizes += np.bincount(groups[:done], minlength=n_groups)
            for column, more in zip(reduced, values, strict=True):
                column.append(more[:done])
            groups, values = groups[done:], tuple(column[done:] for column in values)
        return Stretches.of_rows(tuple(column.values for column in reduced), sizes)


@dataclass
class _Column:
    """A column that is filled from its start, in room for the most that it can come to: what is not filled takes no
    memory, and nothing is there twice."""

    room: NDArray[Any]
    n: int = 0

    def append(self, values: NDArray[Any]) -> None:
        """More values, maybe of a wider type."""
        wider = np.result_type(self.room, values)
        if wider != self.room.dtype:
            room = np.empty(len(self.room), wider)
            room[: self.n] = self.room[: self.n]
            self.room = room
        self.room[self.n : self.n + len(values)] = values
        self.n += len(values)

    @property
    def values(self) -> NDArray[Any]:
        """What it was filled with."""
        return self.room if self.n == len(self.room) else self.room[: self.n].copy()


def joined_columns(parts: Sequence[Columns]) -> Columns:
    """The columns of several parts one after the other."""
    filled = [part for part in parts if len(part[0])] or parts[:1]
    return filled[0] if len(filled) == 1 else tuple(np.concatenate(each) for each in zip(*filled, strict=True))


@frozen(kw_only=True, eq=False)
class Lists(ABC):
    """What G groups hold of some values: the histogram of each, or the largest.

    n: i64[G], how many values each is of.  stretches: the list of each.  part_of: the name of the lists of which these
    are of some of the values; shared: bool[G], whether a group has the same list there, and none of its own here.
    """

    n: Ints
    stretches: Stretches
    part_of: str = ""
    shared: NDArray[np.bool_] | None = None

    kinds: ClassVar[tuple[str, ...]] = ()
    """Of each column, what NumPy calls the kinds of numbers that it may hold."""

    @abstractmethod
    def reduce(self, groups: Ints, columns: Columns) -> tuple[Ints, Columns]:
        """What stretches of values come to, as a Reduce."""

    @abstractmethod
    def check_lists(self) -> None:
        """A ValueError of lists that are none of any values."""

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must be the same in all that are added up."""
        return type(self).__name__, self.part_of

    def __post_init__(self) -> None:
        if self.n.shape != self.stretches.lengths.shape:
            raise ValueError("lists need one for each group")
        if (None if self.shared is None else self.shared.shape) != (self.n.shape if self.part_of else None):
            raise ValueError("what is a part says what it shares, of each group")

    def __len__(self) -> int:
        return len(self.n)

    @property
    def lengths(self) -> Ints:
        """Of each group's list, i64[G]; 0 where it has none of its own."""
        return self.stretches.lengths

    @property
    def n_bytes(self) -> int:
        """What its arrays take."""
        return self.n.nbytes + self.stretches.n_bytes

    def check_unpacked(self) -> None:
        """A ValueError of numbers below 0, and of lists that are none of any values."""
        check_counts(self.n)
        for source in self.stretches.sources:
            if len(source) != len(self.kinds) or any(
                column.dtype.kind not in kind for column, kind in zip(source, self.kinds, strict=True)
            ):
                raise ValueError("lists have columns of other kinds")
        self.check_lists()

    def check_stored(self, base: Self | None) -> None:
        """A ValueError of a group with values whose list is nowhere, or twice.  base: what these are part of."""
        shared = np.zeros(len(self), np.bool_) if base is None or self.shared is None else self.shared
        if base is not None and np.any(np.where(shared, self.n != base.n, self.n > base.n)):
            raise ValueError("a part is more than the whole, or shares what it has not")
        if np.any(np.where(shared, self.lengths > 0, (self.lengths == 0) & (self.n > 0))):
            raise ValueError("a group's list is nowhere, or is there twice")

    def at(self, places: Ints) -> Self:
        """Those of some groups, in this order."""
        shared = None if self.shared is None else self.shared[places]
        return replace(self, n=self.n[places], stretches=self.stretches.at(places), shared=shared)

    def sharing(self, name: str, shared: NDArray[np.bool_]) -> Self:
        """The same as a part of lists that are called so, without those of groups that are the same there."""
        own = replace(self.stretches, lengths=np.where(shared, 0, self.lengths)).tidied
        return replace(self, stretches=own, part_of=name, shared=shared)

    def with_shared(self, base: Self) -> Self:
        """The same with every group's list, of those that it shares with the base, too."""
        assert self.shared is not None
        both = Stretches.joined([self.stretches, base.stretches])
        places = np.arange(len(self)) + np.where(self.shared, len(self), 0)
        return replace(self, stretches=both.at(places), part_of="", shared=None)

    @classmethod
    def total(cls, parts: Sequence[Self], bases: Sequence[Self] | None, group_of: Ints, n_groups: int) -> Self:
        """The lists of all parts' groups added up by new groups.

        bases: what the parts are part of, if they are.  group_of: the new group of each group of each part.
        """
        n, shared = np.zeros(n_groups, np.int64), None
        np.add.at(n, group_of, np.concatenate([part.n for part in parts]))
        stretches = Stretches.joined([part.stretches for part in parts])
        if bases is not None:
            shares = np.concatenate([np.zeros(0, np.bool_) if part.shared is None else part.shared for part in parts])
            shared = np.ones(n_groups, np.bool_)
            shared[group_of[~shares]] = False
            # What is shared with a base on one side alone is shared no more.
            needed = shares & ~shared[group_of]
            if needed.any():
                of_bases = Stretches.joined([base.stretches for base in bases]).at(needed)
                stretches = Stretches.joined([stretches, of_bases])
                group_of = np.concatenate([group_of, group_of[needed]])
        there = stretches.lengths > 0
        stretches, group_of = stretches.at(there), group_of[there]
        several = np.bincount(group_of, minlength=n_groups)[group_of] > 1
        places = np.full(n_groups, len(stretches))
        places[group_of[~several]] = np.flatnonzero(~several)
        added = stretches.at(several).merged(group_of[several], n_groups, parts[0].reduce)
        places = np.where(places < len(stretches), places, len(stretches) + np.arange(n_groups))
        stretches = Stretches.joined([stretches, added]).at(places).tidied
        return replace(parts[0], n=n, stretches=stretches, shared=shared)
