"""Lists of many groups in flat arrays, one group's after the other: no object for each of 100,000 groups.

A stretch is a part of flat columns: columns[k][start : start + length].  Stretches of one group are put together and
reduced to its list (equal bins added up, the largest values kept) a piece of the columns at a time, so that sorting
takes room for a piece and not for all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.totals.exact import check_counts

Ints = NDArray[np.int64]
Columns = tuple[NDArray[Any], ...]
"""Flat columns of one length, of any types."""
Reduce = Callable[[Ints, Columns], tuple[Ints, Columns]]
"""The group of each value, ascending, and the values' columns -> the same reduced, groups still ascending."""
PIECE = 1 << 20
"""Values that are reduced at once."""


def starts_of(lengths: Ints) -> Ints:
    """Where each stretch begins, of stretches that lie one after the other."""
    return np.cumsum(lengths) - lengths


def first_of_each(ordered: NDArray[Any]) -> Ints:
    """The places at which another value begins than the one before it."""
    return np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]]))


def places_of(starts: Ints, lengths: Ints) -> Ints:
    """Where each value of some stretches lies, one stretch after the other."""
    return np.repeat(starts - starts_of(lengths), lengths) + np.arange(int(lengths.sum()))


@dataclass(frozen=True)
class Stretches:
    """S stretches of the flat columns of several sources: the source, start, length and group of each, i64[S].

    A source is let go of when nothing more is to be read of it, by `merged`: of 100,000 groups it is a large one.
    """

    sources: list[Columns]
    source_of: Ints
    starts: Ints
    lengths: Ints
    group_of: Ints

    @classmethod
    def of_rows(cls, columns: Columns, lengths: Ints, group_of: Ints) -> "Stretches":
        """Of rows that lie one after the other."""
        return cls([columns], np.zeros(len(lengths), np.int64), starts_of(lengths), lengths, group_of)

    def at(self, places: "Ints | slice | NDArray[np.bool_]") -> "Stretches":
        """Some of them, in this order."""
        chosen = (each[places] for each in (self.source_of, self.starts, self.lengths, self.group_of))
        return Stretches(self.sources, *chosen)

    @property
    def gathered(self) -> Columns:
        """The stretches one after the other; views where they lie so already."""
        ends = self.starts + self.lengths
        if (self.source_of == self.source_of[0]).all() and np.array_equal(self.starts[1:], ends[:-1]):
            return tuple(column[self.starts[0] : ends[-1]] for column in self.sources[self.source_of[0]])
        places, n = starts_of(self.lengths), int(self.lengths.sum())
        present = sorted(set(self.source_of.tolist()))
        kinds = zip(*(self.sources[source] for source in present), strict=True)
        columns = tuple(np.empty(n, np.result_type(*kind)) for kind in kinds)
        for source in present:
            own = self.source_of == source
            here, there = (places_of(starts[own], self.lengths[own]) for starts in (places, self.starts))
            for column, values in zip(columns, self.sources[source], strict=True):
                column[here] = values[there]
        return columns

    def merged(self, n_groups: int, reduce: Reduce, *, reduced: bool) -> tuple[Ints, Columns]:
        """The length of each group's list, i64[G], and the lists one after the other.

        reduced: whether a stretch alone is a list already.
        """
        if (self.group_of[1:] < self.group_of[:-1]).any():
            return self.at(np.argsort(self.group_of, kind="stable")).merged(n_groups, reduce, reduced=reduced)
        is_list = reduced and bool((self.group_of[1:] > self.group_of[:-1]).all())
        ends, last_of = np.cumsum(self.lengths), np.zeros(len(self.sources), np.int64)
        last_of[self.source_of] = np.arange(len(ends))
        n_values = int(ends[-1:].sum())
        cuts = np.searchsorted(ends, np.arange(PIECE, n_values, PIECE), side="right")
        sizes, none = np.zeros(n_groups, np.int64), tuple(column[:0] for column in self.sources[0])
        groups, values, found = np.zeros(0, np.int64), none, _Column.of_each(none, n_values)
        for first, end in pairwise(sorted({0, *cuts.tolist(), len(ends)})):
            piece = self.at(slice(first, end))
            groups = np.concatenate([groups, np.repeat(piece.group_of, piece.lengths)])
            values = joined_columns([values, piece.gathered])
            if not is_list:
                groups, values = reduce(groups, values)
            # The last group may go on in the next piece.
            done = len(groups) if end == len(ends) else int(np.searchsorted(groups, groups[-1:].sum()))
            sizes += np.bincount(groups[:done], minlength=n_groups)
            for column, more in zip(found, values, strict=True):
                column.append(more[:done])
            groups, values = groups[done:], tuple(column[done:] for column in values)
            for source in np.flatnonzero(last_of < end).tolist():
                self.sources[source] = none
        return sizes, tuple(column.values for column in found)


@dataclass
class _Column:
    """A column that is filled from its start, in room for the most that it can come to: what is not filled takes no
    memory, and nothing is there twice."""

    room: NDArray[Any]
    n: int = 0

    @classmethod
    def of_each(cls, columns: Columns, most: int) -> "list[_Column]":
        """Of the types of some columns."""
        return [cls(np.empty(most, column.dtype)) for column in columns]

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Lists:
    """What G groups hold of some values: the histogram of each, or the largest.

    n: i64[G], how many values each is of.  lengths: i64[G], how many numbers of the columns are its own, which lie one
    group's after the other's.  part_of: the name of the lists of which these are of some of the values; shared:
    bool[G], whether a group has the same list there, and none of its own here.
    """

    n: Ints
    lengths: Ints
    columns: Columns
    part_of: str = ""
    shared: NDArray[np.bool_] | None = None

    def reduce(self, groups: Ints, columns: Columns) -> tuple[Ints, Columns]:
        """What stretches of values come to, as a Reduce."""
        raise NotImplementedError

    def check_lists(self) -> None:
        """A ValueError of lists that are none of any values."""
        raise NotImplementedError

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must be the same in all that are added up."""
        return type(self).__name__, self.part_of

    def __post_init__(self) -> None:
        if self.n.shape != self.lengths.shape or {len(column) for column in self.columns} != {int(self.lengths.sum())}:
            raise ValueError("lists need a length for each group, and as many numbers")
        if (self.shared is None) == bool(self.part_of) or (
            self.shared is not None and self.shared.shape != self.n.shape
        ):
            raise ValueError("what is a part says what it shares, of each group")

    def __len__(self) -> int:
        return len(self.n)

    @property
    def n_bytes(self) -> int:
        """What its arrays take."""
        return sum(column.nbytes for column in (self.n, self.lengths, *self.columns))

    def check_unpacked(self) -> None:
        """A ValueError of numbers and lengths below 0, and of lists that are none of any values."""
        check_counts(self.n, self.lengths)
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
        lengths = self.lengths[places]
        at = places_of(starts_of(self.lengths)[places], lengths)
        columns = tuple(column[at] for column in self.columns)
        shared = None if self.shared is None else self.shared[places]
        return replace(self, n=self.n[places], lengths=lengths, columns=columns, shared=shared)

    def sharing(self, name: str, shared: NDArray[np.bool_]) -> Self:
        """The same as a part of lists that are called so, without those of groups that are the same there."""
        own = self.at(np.flatnonzero(~shared))
        lengths = np.where(shared, 0, self.lengths)
        return replace(self, lengths=lengths, columns=own.columns, part_of=name, shared=shared)

    def with_shared(self, base: Self) -> Self:
        """The same with every group's list, of those that it shares with the base, too."""
        return self.total([self], [base], np.arange(len(self)), len(self), whole=True)

    @classmethod
    def total(
        cls, parts: list[Self], bases: Sequence[Self] | None, group_of: Ints, n_groups: int, *, whole: bool = False
    ) -> Self:
        """The lists of all parts' groups added up by new groups; the parts are taken out of their list, and let go of.

        bases: what the parts are part of, if they are.  group_of: the new group of each group of each part.  whole:
        whether groups that share their lists with the base are to have them here, too.
        """
        n = np.zeros(n_groups, np.int64)
        np.add.at(n, group_of, np.concatenate([part.n for part in parts]))
        sources, kind = [part.columns for part in parts], parts[0].at(np.zeros(0, np.int64))
        places = [_places(part, np.arange(len(part)), source) for source, part in enumerate(parts)]
        shared, groups = None, [group_of]
        if bases is not None:
            shares = np.concatenate([np.zeros(0, np.bool_) if part.shared is None else part.shared for part in parts])
            shared = np.ones(n_groups, np.bool_)
            shared[group_of[~shares]] = False
            # What is shared with a base on one side alone is shared no more.
            needed = shares & (whole | ~shared[group_of])
            of_bases = np.split(needed, np.cumsum([len(part) for part in parts])[:-1])
            places += [
                _places(base, np.flatnonzero(of_base), len(parts) + at)
                for at, (base, of_base) in enumerate(zip(bases, of_bases, strict=True))
            ]
            sources += [base.columns for base in bases]
            groups.append(group_of[needed])
        parts.clear()
        source_of, starts, lengths = (np.concatenate(each) for each in zip(*places, strict=True))
        stretches = Stretches(sources, source_of, starts, lengths, np.concatenate(groups))
        sizes, columns = stretches.at(lengths > 0).merged(n_groups, kind.reduce, reduced=True)
        about = {"part_of": ""} if whole else {"part_of": kind.part_of, "shared": shared}
        return replace(kind, **{"shared": None, **about}, n=n, lengths=sizes, columns=columns)


def _places(lists: Lists, groups: Ints, source: int) -> tuple[Ints, Ints, Ints]:
    """The source, start and length of the lists of some groups."""
    return np.full(len(groups), source), starts_of(lists.lengths)[groups], lists.lengths[groups]
