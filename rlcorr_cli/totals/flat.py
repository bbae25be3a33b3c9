"""Types of arrays; and lists of unequal length laid end to end in one array: where they start, ranges, regrouping."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def check_counts(*numbers: NDArray[Any]) -> None:
    """A ValueError unless all numbers are finite, at least 0, and no larger than what a float counts exactly."""
    if not all(np.all((values >= 0) & (values < 1 << 53)) for values in numbers):
        raise ValueError("a count is below 0, not finite or too large")


def first_of_each(ordered: NDArray[Any]) -> Ints:
    """The indices at which a run of equal values begins."""
    return np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]]))


def unique_values(values: NDArray[Any]) -> NDArray[Any]:
    """The values, sorted, each once.  Not np.unique or np.union1d: without another answer to give these load np.ma,
    which takes as long as all else that is done with a small dump."""
    ordered = np.sort(values)
    return ordered[first_of_each(ordered)]


def starts_of(lengths: Ints) -> Ints:
    """The index at which each row's values begin."""
    return np.cumsum(lengths) - lengths


def offsets_of(lengths: Ints) -> Ints:
    """The same, and the length of all: i64[B + 1], of the lengths of B rows."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """starts[i], ..., starts[i] + lengths[i] - 1 for every i, one after another."""
    return np.repeat(starts - starts_of(lengths), lengths) + np.arange(lengths.sum())


LONG = 32
"""Rows of so many values, on average, are copied one by one: no index is made of each value."""


def picker(starts: Ints, lengths: Ints) -> Callable[[NDArray[Any]], list[NDArray[Any]]]:
    """What picks the values at `ranges` out of an array, as arrays to be laid end to end, at least one."""
    if lengths.sum() < LONG * len(lengths):
        at = ranges(starts, lengths)
        return lambda values: [values[at]]
    rows = [slice(0, 0), *map(slice, starts.tolist(), (starts + lengths).tolist())]
    return lambda values: [values[row] for row in rows]


def by_group(values: NDArray[Any], lengths: Ints, group_of: Ints, n_groups: int) -> tuple[NDArray[Any], Ints]:
    """The values of each group's rows, group after group, and how many values each group has.  lengths, group_of: of
    each row, i64[B]."""
    if (group_of[1:] < group_of[:-1]).any():
        order = np.argsort(group_of, kind="stable")
        values = values[ranges(starts_of(lengths)[order], lengths[order])]
    sizes = np.zeros(n_groups, np.int64)
    np.add.at(sizes, group_of, lengths)
    return values, sizes
