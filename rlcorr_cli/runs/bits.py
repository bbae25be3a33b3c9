"""compared_rows(): two dumps read side by side, each row of one held against its partner in the other, to the bit.

Workers make of each batch the columns that are compared (`RowsOfShard`), and rows meet their partners here.  Where
those that wait take more than MOST_WAITING, both dumps are read anew in several parts, each of a share of all keys.
"""

import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_numpy
from rlcorr_cli.reading.batches import BadRows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.row_pairs import IDS, POLICIES, Waiting, compared_columns, flat
from rlcorr_cli.results.bits import MOST_LISTED, NOWHERE, Bits, PartedRow, block_size, earlier_in_longer_prompts
from rlcorr_cli.results.diffed import Pairs
from rlcorr_cli.results.groups import COUNTED
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.reading import Reading, ReadingNotes, ShardReading, Watch
from rlcorr_cli.totals.flat import Ints, offsets_of, ranges, unique_values

MOST_WAITING = 1 << 27
"""Bytes of rows whose partners have not come yet."""
MORE_PARTS, MOST_PARTS = 4, 64
"""How many parts take the place of one, and the most of all: what waits then is of few keys, which more do not part."""
Rows = Any
"""A table of `compared_columns`."""


@frozen(kw_only=True)
class RowsOfShard:
    """Shard -> its rows, batch by batch; last comes what its reading leaves beside them, but rows set aside."""

    reading: ShardReading

    def __call__(self, shard: Any) -> Generator[Rows | BadRows | ReadingNotes]:
        """Read one shard."""
        notes = ReadingNotes()
        for rows in self.reading.checked_rows(shard, notes):
            yield rows if isinstance(rows, BadRows) else compared_columns(rows, self.reading.reader.roles)
        yield notes


@dataclass(kw_only=True)
class ComparedRows:
    """What is found of pairs of rows, as it adds up, in place.

    counts: of each dump, in the order of COUNTED.  alone: rows of each without a partner.  largest: differences by
    column.  n_other: rows that go on with other tokens.  table: i64[B, 5] in pieces: of the pair tokens, the first that
    differs (NOWHERE of none), how many do, the prompt's, -1 of unknown, and all of the row, masked ones included.
    names: of those that part.
    """

    counts: Ints = field(default_factory=lambda: np.zeros((2, len(COUNTED)), np.int64))
    alone: Ints = field(default_factory=lambda: np.zeros(2, np.int64))
    largest: dict[str, float] = field(default_factory=dict[str, float])
    n_other: int = 0
    table: list[Ints] = field(default_factory=lambda: [np.zeros((0, 5), np.int64)])
    names: list[str] = field(default_factory=list[str])

    def count(self, side: int, rows: Rows) -> None:
        """Count rows of one dump."""
        n, size = np.diff(flat(rows, "at")[1]), as_numpy(rows["size"])
        self.counts[side] += (len(n), (n > 0).sum(), (n == 0).sum(), n.sum(), (size - n).sum())

    def add(self, a: Rows, b: Rows) -> None:
        """Add rows and their partners."""
        (at, ends_a), (_, ends_b), size = flat(a, "at"), flat(b, "at"), as_numpy(a["size"])
        of_a, of_b = np.diff(ends_a), np.diff(ends_b)
        n, longer = np.minimum(of_a, of_b), np.maximum(of_a, of_b)
        ends, other = offsets_of(n), np.where(of_a == of_b, NOWHERE, n)
        # Of two rows the first tokens; all, where they are equally long, are not copied.
        in_a, in_b = (slice(None) if np.array_equal(np.diff(of), n) else ranges(of[:-1], n) for of in (ends_a, ends_b))

        def unequal(name: str) -> tuple[NDArray[Any], NDArray[Any], Ints, Ints]:
            x, y = flat(a, name)[0][in_a], flat(b, name)[0][in_b]
            places = np.flatnonzero(x != y)
            return x[places], y[places], places, np.searchsorted(ends, places, side="right") - 1

        shared, found = {*a.column_names} & {*b.column_names}, [np.zeros(0, np.int64)]
        if IDS in shared:
            x, y, places, rows = unequal(IDS)
            known = (x >= 0) & (y >= 0)
            np.minimum.at(other, rows[known], (places - ends[rows])[known])
        for name in (name for name in POLICIES if name in shared):
            x, y, places, rows = unequal(name)
            is_before = places - ends[rows] < other[rows]
            gaps = abs(np.subtract(x, y, dtype=np.float64))[is_before]
            self.largest[name] = max(self.largest.get(name, 0.0), float(gaps.max(initial=0)))
            found.append(places[is_before])
        places = unique_values(np.concatenate(found))
        token, rows = other.copy(), np.searchsorted(ends, places, side="right") - 1
        np.minimum.at(token, rows, places - ends[rows])
        n_differ = np.bincount(rows, minlength=len(n)) + np.where(other < NOWHERE, longer - other, 0)
        # A token that a alone lacks is behind its last, masked ones included.
        place, is_in = np.where(token == NOWHERE, NOWHERE, size), token < of_a
        place[is_in] = at[(ends_a[:-1] + token)[is_in]]
        self.n_other += int((other < NOWHERE).sum())
        self.table.append(np.stack((longer, place, n_differ, as_numpy(a["prompt"]), size), axis=1))
        self.names += a["name"].filter(token < NOWHERE).to_pylist()

    @property
    def bits(self) -> Bits:
        """What is told of them."""
        table = np.concatenate(self.table)
        tokens, token, differ, prompts, sizes = table.T
        parted, known = token < NOWHERE, (prompts >= 0) & (sizes > 0)
        first, last = token[parted], np.where(parted, token, sizes - 1)
        listed = nsmallest(MOST_LISTED, zip(first.tolist(), self.names, table[parted].tolist(), strict=True))
        return Bits(
            equal=int((~parted).sum()),
            differ=len(first),
            tokens=int(tokens.sum()),
            tokens_differ=int(differ.sum()),
            columns=self.largest,
            token=(int(first.min()), float(np.median(first)), int(first.max())) if len(first) else None,
            prompt_p=earlier_in_longer_prompts(prompts[known], last[known], parted[known]),
            block_size=block_size((prompts + token)[parted & known & (token > 0)]),
            parted=tuple(
                PartedRow(row=name, token=at, differ=n, tokens=size, prompt_tokens=None if prompt < 0 else prompt)
                for _, name, (size, at, n, prompt, _) in listed
            ),
        )

    @property
    def pairs(self) -> Pairs:
        """Which rows both hold."""
        both, (only_a, only_b) = sum(map(len, self.table)), self.alone.tolist()
        return Pairs(both=both, only_a=only_a, only_b=only_b, other_text=self.n_other, exact=True)


def compared_rows(
    dumps: Sequence[Dump], computing: Computing, watch: Watch | None = None
) -> tuple[ComparedRows, list[Reading]]:
    """What the rows of two dumps have to do with each other, and what reading them left."""
    n_parts = 1
    with watch(sum(dump.n_bytes for dump in dumps)) if watch else nullcontext() as progress:
        while True:
            found, readings = ComparedRows(), list[Reading]()
            for part in range(n_parts):
                readings = [replace(Reading.alone(dump, computing), progress=progress) for dump in dumps]
                most = MOST_WAITING if n_parts < MOST_PARTS else sys.maxsize
                if not _join(readings, found, Waiting(part, n_parts), most):
                    n_parts *= MORE_PARTS
                    break
            else:
                return found, readings


def _join(readings: Sequence[Reading], found: ComparedRows, waiting: Waiting, most: int) -> bool:
    """Add the pairs of a share of all keys; whether at most so many bytes waited."""
    works = (RowsOfShard(reading=ShardReading.of(each.dump, each.computing, streams=True)) for each in readings)
    with ExitStack() as stack:
        of_both = (stack.enter_context(closing(each.stream(work))) for each, work in zip(readings, works, strict=True))
        streams = dict(enumerate(of_both))
        while streams:
            side = min(streams, key=waiting.n_read.__getitem__)  # rows of one order then meet at once
            _, rows = next(streams[side], (None, None))
            if rows is None:
                del streams[side]
                continue
            if waiting.part == 0:
                found.count(side, rows)
            for a, b in waiting.met(side, rows):
                found.add(a, b)
            if sum(table.nbytes for table in waiting.tables) > most:
                return False
    found.alone += [*map(len, waiting.tables)]
    return True
