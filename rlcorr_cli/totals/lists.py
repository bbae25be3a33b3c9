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


def gathered(columns: Columns, starts: Ints, lengths: Ints) -> Columns:
    """The stretches one after the other; views where they lie so already."""
    if not len(starts):
        return tuple(column[:0] for column in columns)
    if np.array_equal(starts[1:], (starts + lengths)[:-1]):
        return tuple(column[starts[0] : starts[-1] + lengths[-1]] for column in columns)
    at = np.repeat(starts - starts_of(lengths), lengths) + np.arange(int(lengths.sum()))
    return tuple(column[at] for column in columns)


@dataclass(frozen=True)
class Stretches:
    """S stretches of flat columns, and the group of each: starts, lengths, group_of i64[S]."""

    columns: Columns
    starts: Ints
    lengths: Ints
    group_of: Ints

    @classmethod
    def of_rows(cls, columns: Columns, lengths: Ints, group_of: Ints) -> "Stretches":
        """Of rows that lie one after the other."""
        return cls(columns, starts_of(lengths), lengths, group_of)

    def at(self, places: "Ints | slice | NDArray[np.bool_]") -> "Stretches":
        """Some of them, in this order."""
        return Stretches(self.columns, self.starts[places], self.lengths[places], self.group_of[places])

    @property
    def gathered(self) -> Columns:
        """The stretches one after the other."""
        return gathered(self.columns, self.starts, self.lengths)

    def merged(self, n_groups: int, reduce: Reduce, *, reduced: bool) -> tuple[Ints, Columns]:
        """The length of each group's list, i64[G], and the lists one after the other.

        reduced: whether a stretch alone is a list already.
        """
        if (self.group_of[1:] < self.group_of[:-1]).any():
            return self.at(np.argsort(self.group_of, kind="stable")).merged(n_groups, reduce, reduced=reduced)
        sizes = np.zeros(n_groups, np.int64)
        if reduced and (self.group_of[1:] > self.group_of[:-1]).all():
            sizes[self.group_of] = self.lengths
            return sizes, self.gathered
        ends = np.cumsum(self.lengths)
        firsts = np.searchsorted(ends, np.arange(PIECE, ends[-1:].sum(), PIECE), side="right")
        cuts = sorted({0, *firsts.tolist(), len(ends)})
        pieces = list[Columns]()
        groups, values = np.zeros(0, np.int64), tuple(column[:0] for column in self.columns)
        for first, end in pairwise(cuts):
            piece = self.at(slice(first, end))
            groups = np.concatenate([groups, np.repeat(piece.group_of, piece.lengths)])
            groups, values = reduce(groups, joined_columns([values, piece.gathered]))
            # The last group may go on in the next piece.
            done = len(groups) if end == len(ends) else int(np.searchsorted(groups, groups[-1:].sum()))
            sizes += np.bincount(groups[:done], minlength=n_groups)
            pieces.append(tuple(column[:done] for column in values))
            groups, values = groups[done:], tuple(column[done:] for column in values)
        return sizes, joined_columns([*pieces, values])


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
        columns = gathered(self.columns, starts_of(self.lengths)[places], lengths)
        shared = None if self.shared is None else self.shared[places]
        return replace(self, n=self.n[places], lengths=lengths, columns=columns, shared=shared)

    def sharing(self, name: str, shared: NDArray[np.bool_]) -> Self:
        """The same as a part of lists that are called so, without those of groups that are the same there."""
        own = ~shared
        columns = gathered(self.columns, starts_of(self.lengths)[own], self.lengths[own])
        return replace(self, lengths=np.where(shared, 0, self.lengths), columns=columns, part_of=name, shared=shared)

    def with_shared(self, base: Self) -> Self:
        """The same with every group's list, of those that it shares with the base, too."""
        return self.total([self], [base], np.arange(len(self)), len(self), whole=True)

    @classmethod
    def total(
        cls, parts: Sequence[Self], bases: Sequence[Self] | None, group_of: Ints, n_groups: int, *, whole: bool = False
    ) -> Self:
        """The lists of all parts' groups added up by new groups.

        bases: what the parts are part of, if they are.  group_of: the new group of each group of each part.  whole:
        whether groups that share their lists with the base are to have them here, too.
        """
        n = np.zeros(n_groups, np.int64)
        np.add.at(n, group_of, np.concatenate([part.n for part in parts]))
        columns, lengths = joined_columns([part.columns for part in parts]), np.concatenate([p.lengths for p in parts])
        stretches, alike = Stretches.of_rows(columns, lengths, group_of), None
        if bases is not None:
            shares = np.concatenate([np.zeros(0, np.bool_) if part.shared is None else part.shared for part in parts])
            alike = np.ones(n_groups, np.bool_)
            alike[group_of[~shares]] = False
            # What is shared with a base on one side alone is shared no more.
            needed = shares & (whole | ~alike[group_of])
            if needed.any():
                ends = np.cumsum([0, *map(len, parts)])
                of_bases = zip(bases, pairwise(ends.tolist()), strict=True)
                taken = [base.at(np.flatnonzero(needed[start:end])) for base, (start, end) in of_bases]
                stretches = Stretches.of_rows(
                    joined_columns([columns, *(each.columns for each in taken)]),
                    np.concatenate([lengths, *(each.lengths for each in taken)]),
                    np.concatenate([group_of, group_of[needed]]),
                )
        sizes, columns = stretches.at(stretches.lengths > 0).merged(n_groups, parts[0].reduce, reduced=True)
        return replace(
            parts[0],
            n=n,
            lengths=sizes,
            columns=columns,
            part_of="" if whole else parts[0].part_of,
            shared=None if whole else alike,
        )
