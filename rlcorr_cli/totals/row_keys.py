"""What tells rows apart, as 64-bit keys that any worker computes alike, and how many rows share theirs.

A key is a sum over a row's values of (value + 1) times the random odd number of its place, modulo 2^64 (multilinear
hashing: two rows that differ meet with a chance near 2^-57), then mixed with the row's length.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Ints, first_of_each

Keys = NDArray[np.uint64]
SKETCH_SIZE, MOST_GROUPS = 1024, 1 << 18
HASHED_AT_ONCE = 1 << 15
"""Values of whole rows: few enough for a processor's cache."""
LONG_ROWS = 256
"""Values of a row on average from which copying factors row by row costs less than looking each of them up."""
_MIX = (30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)), (31, 1)
"""How far to shift, and what to multiply by."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(keys: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    return mixed(keys.view(np.int64)).view(np.uint64)


def mixed(state: Any) -> Any:
    """The same of int64, which torch has, too."""
    for shift, factor in _MIX:
        state = (state ^ ((state >> shift) & ((1 << (64 - shift)) - 1))) * factor  # a shift without the sign
    return state


def stream(n: int, first: int = 0) -> Keys:
    """States `first` to `first + n - 1` of SplitMix64, of which `mix` makes its numbers."""
    return (np.arange(n, dtype=np.uint64) + np.uint64(first)) * _GOLDEN


def keys_of(values: NDArray[np.uint32] | NDArray[np.uint8], offsets: NDArray[np.int64]) -> Keys:
    """One key per row of some values; an empty row has the key of no values."""
    lengths = np.diff(offsets)
    sums = np.zeros(len(lengths), np.uint64)
    of_places = factors(lengths)
    cuts = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], HASHED_AT_ONCE), side="left")
    for first, last in pairwise(sorted({0, *cuts.tolist(), len(lengths)})):
        start, end, filled = int(offsets[first]), int(offsets[last]), lengths[first:last] > 0
        starts = offsets[first:last] - start
        terms = values[start:end].astype(np.uint64)
        terms += np.uint64(1)  # so that a value of 0 counts, too
        if end - start < LONG_ROWS * (last - first):
            terms *= of_places.take(np.arange(end - start) - np.repeat(starts, lengths[first:last]))
        else:
            terms *= np.concatenate([of_places[:n] for n in lengths[first:last].tolist()])
        sums[first:last][filled] = np.add.reduceat(terms, starts[filled])
    return of_sums(sums, lengths)


def factors(lengths: Ints) -> Keys:
    """The random odd number of each place in the longest of some rows."""
    return mix(stream(int(lengths.max(initial=0)), 1)) | np.uint64(1)


def of_sums(sums: Keys, lengths: Ints) -> Keys:
    """The keys of rows, from the sums of (value + 1) times the factor of its place."""
    return mix(mix(sums) ^ mix(lengths.astype(np.uint64) + _GOLDEN))


def keys_of_floats(values: NDArray[np.floating[Any]], offsets: NDArray[np.int64]) -> Keys:
    """One key per row of some numbers, as float32 has them."""
    # + 0, because -0.0 and 0.0 are the same number.
    return keys_of((values.astype(np.float32, copy=False) + np.float32(0)).view(np.uint32), offsets)


def join_keys(first: Keys, second: Keys) -> Keys:
    """One key of two, in this order."""
    return mix(mix(first) + second)


@frozen(eq=False)
class DistinctKeys:
    """How many distinct keys there are: the smallest `most` of them, u64[K] ascending.

    Exact while there are fewer than `most`; beyond, keys being as good as random, the largest that is kept tells how
    densely they lie (Bar-Yossef et al. 2002; to 1 / sqrt(most) of their number).  + keeps the smallest of both.
    """

    keys: Keys
    most: int

    def __post_init__(self) -> None:
        if self.keys.ndim != 1 or len(self.keys) > self.most or (self.keys[1:] <= self.keys[:-1]).any():
            raise ValueError(f"at most {self.most} keys, each larger than the one before it")

    @classmethod
    def of(cls, keys: Keys, most: int) -> "DistinctKeys":
        """Of some keys, in any order."""
        ordered = np.sort(keys)  # np.unique of nothing but values would load numpy.ma
        return cls(ordered[first_of_each(ordered)][:most], most)

    def __add__(self, other: "DistinctKeys") -> "DistinctKeys":
        if self.most != other.most:
            raise ValueError("sketches of different sizes do not add")
        more, fewer = (self.keys, other.keys) if len(self.keys) >= len(other.keys) else (other.keys, self.keys)
        # No sort of all: a batch adds few keys to many.
        places = np.searchsorted(more, fewer)
        new = places == len(more)
        new[~new] = more[places[~new]] != fewer[~new]
        return DistinctKeys(np.insert(more, places[new], fewer[new])[: self.most], self.most)

    @property
    def exact(self) -> bool:
        """Whether `n` is counted; else it is an estimate."""
        return len(self.keys) < self.most

    @property
    def n(self) -> int:
        """How many distinct keys there are."""
        return len(self.keys) if self.exact else round((self.most - 1) / int(self.keys[-1]) * 2.0**64)


@frozen(eq=False)
class KeySample:
    """The smallest distinct keys met so far and how many rows have each: u64[K] ascending, i64[K].

    Keys are as good as random, so these are a fair sample of the distinct ones.  + keeps the smallest SKETCH_SIZE: of
    a key that is among them in the whole, no part has lost a row.  n_rows and key_sum (modulo 2^64) are of all rows:
    where both are equal, so are the rows.
    """

    keys: Keys
    counts: NDArray[np.int64]
    n_rows: int
    key_sum: int

    def __post_init__(self) -> None:
        if self.keys.ndim != 1 or self.keys.shape != self.counts.shape or len(self.keys) > SKETCH_SIZE:
            raise ValueError(f"there must be a count for each of at most {SKETCH_SIZE} keys")

    @classmethod
    def of(cls, keys: Keys) -> "KeySample":
        """Of some rows' keys."""
        distinct, counts = np.unique(keys, return_counts=True)
        key_sum = int(keys.sum(dtype=np.uint64))
        return cls(distinct[:SKETCH_SIZE], counts[:SKETCH_SIZE].astype(np.int64), len(keys), key_sum)

    def __add__(self, other: "KeySample") -> "KeySample":
        keys, places = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        n_rows, key_sum = self.n_rows + other.n_rows, (self.key_sum + other.key_sum) % (1 << 64)
        return KeySample(keys[:SKETCH_SIZE], counts[:SKETCH_SIZE], n_rows, key_sum)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, KeySample)
            and (self.n_rows, self.key_sum) == (other.n_rows, other.key_sum)
            and np.array_equal(self.keys, other.keys)
            and np.array_equal(self.counts, other.counts)
        )

    @property
    def n_distinct(self) -> int:
        """How many distinct rows there are, as far as SKETCH_SIZE."""
        return len(self.keys)

    @property
    def shared_fraction(self) -> float:
        """Share of rows whose key another row has; exact up to SKETCH_SIZE distinct rows, else an estimate."""
        total = int(self.counts.sum())
        return int(self.counts[self.counts > 1].sum()) / total if total else 0.0

    @property
    def reach(self) -> int:
        """The largest key of which the sketch would know; every key there is while it is not full."""
        return int(self.keys[-1]) if len(self.keys) == SKETCH_SIZE else (1 << 64) - 1


@frozen(eq=False)
class GroupRows:
    """How many rows of each group there were, and how many of them stay: i64[K] each, of keys u64[K] ascending.

    Keys are as good as random: of more than MOST_GROUPS the smallest are a fair sample.  + keeps these.  share: of all
    groups that the keys are.
    """

    keys: Keys
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    share: float = 1.0

    @classmethod
    def of(cls, keys: Keys, before: NDArray[np.int64], after: NDArray[np.int64]) -> "GroupRows":
        """Of some rows, or of groups that are counted already; a key may stand there more than once."""
        distinct, places = np.unique(keys, return_inverse=True)
        share = 1.0 if len(distinct) <= MOST_GROUPS else int(distinct[MOST_GROUPS - 1]) / 2.0**64
        n_before, n_after = (np.bincount(places, each, len(distinct)).astype(np.int64) for each in (before, after))
        return cls(distinct[:MOST_GROUPS], n_before[:MOST_GROUPS], n_after[:MOST_GROUPS], share)

    def __add__(self, other: "GroupRows") -> "GroupRows":
        keys = np.concatenate([self.keys, other.keys])
        before, after = np.concatenate([self.before, other.before]), np.concatenate([self.after, other.after])
        added = GroupRows.of(keys, before, after)
        return replace(added, share=min(self.share, other.share, added.share))


def shared_fraction(a: KeySample, b: KeySample) -> float:
    """The share of the smaller's distinct rows that the other holds, too; an estimate from as far as both reach.

    Rows that either holds more than once are left out: they are short, and tell nothing.
    """
    if a.n_rows and (a.n_rows, a.key_sum) == (b.n_rows, b.key_sum):
        return 1.0
    reach = np.uint64(min(a.reach, b.reach))
    mine, theirs = (sketch.keys[(sketch.keys <= reach) & (sketch.counts == 1)] for sketch in (a, b))
    fewer = min(len(mine), len(theirs))
    return len(np.intersect1d(mine, theirs)) / fewer if fewer else 0.0


def in_both(a: KeySample, b: KeySample) -> tuple[int, bool]:
    """How many rows of a have a partner in b, and whether that is counted; else it is an estimate."""
    if (a.n_rows, a.key_sum) == (b.n_rows, b.key_sum):
        return a.n_rows, True
    reach = np.uint64(min(a.reach, b.reach))
    keys, mine, theirs = np.intersect1d(a.keys[a.keys <= reach], b.keys[b.keys <= reach], return_indices=True)
    n_shared = int(np.minimum(a.counts[mine], b.counts[theirs]).sum()) if len(keys) else 0
    if max(len(a.keys), len(b.keys)) < SKETCH_SIZE:
        return n_shared, True
    looked_at = int(a.counts[a.keys <= reach].sum())
    return round(n_shared / looked_at * a.n_rows) if looked_at else 0, False
