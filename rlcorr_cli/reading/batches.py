"""From Arrow rows to Batches: flat arrays, masked tokens dropped, every value checked once.

Bad rows stop the reading, or are set aside before anything is made of them: what was set aside comes before the
CheckedRows it was taken from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.files import filesystem
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Place, Unit
from rlcorr_cli.reading import checks
from rlcorr_cli.reading.arrow_values import is_list, take
from rlcorr_cli.reading.bad_rows import ABOVE_ZERO, CLAMPED, BadRowCounts, BadRowPolicy, FirstBadRow, first_bad_row
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.reading.checks import Fault, Lists, Valid
from rlcorr_cli.reading.columns import Lag, Roles, read_for
from rlcorr_cli.reading.values import SeenIds, cluster_keys, coded, coded_lags, row_keys, texts
from rlcorr_cli.reading.whole_rows import ArrowRows, OriginalRows
from rlcorr_cli.totals.row_keys import Keys
from rlcorr_cli.totals.totals import GroupKey

PIECE_BYTES = 16 << 20


@frozen
class Places:
    """Where the rows of a part are.  numbers: of each row, counted from byte `start`, as in Place."""

    path: str
    unit: Unit
    numbers: Sequence[int] | NDArray[np.int64]
    start: int = 0

    def __getitem__(self, row: int) -> Place:
        return Place(self.path, self.unit, int(self.numbers[row]), self.start)

    def part(self, first: int, last: int) -> "Places":
        """Rows first..last-1."""
        return replace(self, numbers=self.numbers[first:last])

    def take(self, rows: NDArray[np.int64]) -> "Places":
        """These rows, in order."""
        return replace(self, numbers=np.asarray(self.numbers, np.int64)[rows])

    def row_of(self, number: int, lines: "LineCounter") -> int | None:
        """The row that has a number in the whole file, if one of these has.  lines: of the reading, so far."""
        at = np.flatnonzero(np.asarray(self.numbers, np.int64) == number - lines.before(self.path, self.start))
        return int(at[0]) if len(at) else None


def resolved(place: Place) -> Place:
    """The same place counted from the file's start: reads the file up to it where that is not known yet."""
    (counted,) = all_resolved([place])
    return counted


def all_resolved(places: Sequence[Place]) -> list[Place]:
    """The same of many places, in their order; each file is read once."""
    counter = LineCounter()
    starts = sorted({(place.path, place.start) for place in places})
    before = {(path, start): counter.before(path, start) for path, start in starts}
    return [replace(place, number=place.number + before[place.path, place.start], start=0) for place in places]


class LineCounter:
    """Counts the line ends before bytes of files; where the bytes of a file ascend, it is read once."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, int]] = {}

    def before(self, path: str, end: int) -> int:
        """Line ends before byte `end`; nothing is opened where all are counted."""
        start, count = self._counted.get(path, (0, 0))
        if start > end:
            start = count = 0
        if start < end:
            with filesystem(path).open(path) as file:
                file.seek(start)
                while (left := end - file.tell()) > 0 and (piece := file.read(min(left, PIECE_BYTES))):
                    count += piece.count(b"\n")
        self._counted[path] = (end, count)
        return count


ROW_TOKENS = 1 << 22
"""The most of one sequence; far beyond any model's, and still far from filling a memory."""
BATCH_ROWS = 1 << 13
"""The most rows of a batch: each takes some kilobytes while it is measured, most of them for the bootstrap's counts,
however short it is.  Four times as many are no faster.  Rows of under 96 tokens are cut by this and not by tokens."""


@frozen(kw_only=True)
class Rows:
    """Rows as read, unchecked.

    data: the columns that are needed.  original: the rows whole, where they are wanted so.  unread: rows whose line
    could not be read, and why; all their columns are null.
    """

    data: pa.RecordBatch
    places: Places
    original: OriginalRows | None = None
    unread: Mapping[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of(
        cls, batch: pa.RecordBatch, path: str, numbers: Sequence[int], needed: Sequence[str], *, whole: bool
    ) -> "Rows":
        """Rows that a container holds as columns of Arrow.  numbers: of each row in its file, from 0.  whole: whether
        all columns are wanted, beside those that are needed."""
        original = ArrowRows(pa.Table.from_batches([batch])) if whole else None
        return cls(data=batch.select(needed), places=Places(path, "row", numbers), original=original)

    def part(self, first: int, last: int) -> "Rows":
        """Rows first..last-1; their values are not copied."""
        if (first, last) == (0, self.data.num_rows):
            return self
        return Rows(
            data=self.data.slice(first, last - first),
            places=self.places.part(first, last),
            original=None if self.original is None else self.original.part(first, last),
            unread={row - first: why for row, why in self.unread.items() if first <= row < last},
        )

    def take(self, indices: NDArray[np.int64]) -> "Rows":
        """These rows, in order; all of them could be read."""
        return Rows(
            data=take(self.data, indices),
            places=self.places.take(indices),
            original=None if self.original is None else self.original.take(indices),
        )


@frozen(kw_only=True)
class CheckedRows:
    """A Batch and the rows that it came from.

    data, original: as of Rows.  offsets: i64[B+1] into all tokens, valid or not.  valid: bool over all tokens, None
    where all are.
    """

    batch: Batch
    data: pa.RecordBatch
    original: OriginalRows | None
    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    places: Places


@frozen
class BadRows:
    """Bad rows, and tokens that were cleared or kept.  original: the rows, where they are wanted; reasons: by row."""

    counts: BadRowCounts
    original: OriginalRows | None = None
    reasons: tuple[str, ...] = ()


def checked_batches(
    rows: Rows, roles: Roles, batch_tokens: int, *, bad_rows: BadRowPolicy | None = None, seen: SeenIds | None = None
) -> Iterator[CheckedRows | BadRows]:
    """The rows in order, cut where the next would pass batch_tokens or BATCH_ROWS.

    Where bad_rows stops, an error names the first bad row of a cut.  seen: the rows seen so far, if ids count.
    """
    bad_rows = bad_rows or BadRowPolicy()
    lists = lists_of(rows, roles)
    faults = [Fault(row, "unreadable_line", why) for row, why in rows.unread.items()]
    faults += checks.structural(lists, roles.rollout)
    if faults:
        rows, set_aside = _set_aside(rows, faults, bad_rows)
        yield set_aside
        lists = lists_of(rows, roles)
    offsets = lists[roles.rollout].offsets
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > ROW_TOKENS:
        row = int(lengths.argmax())
        raise DataError(
            f"{resolved(rows.places[row]).text} has {lengths[row]:,} tokens, over {ROW_TOKENS:,}.",
            "One row is one sequence: is the dump laid out so?",
        )
    first = 0
    while first < len(lengths):
        fitting = int(np.searchsorted(offsets, offsets[first] + batch_tokens, side="right")) - 1
        last = min(max(fitting, first + 1), first + BATCH_ROWS)
        cut = {name: whole.rows(first, last) for name, whole in lists.items()}
        yield from _checked(_Cut(rows.part(first, last), cut, roles, bad_rows), seen)
        first = last


def lists_of(rows: Rows, roles: Roles) -> dict[str, Lists]:
    """Every list column that is read, flat."""
    names = [*roles.log_probs, *([roles.mask] if roles.mask else [])]
    if roles.advantages and is_list(rows.data.column(roles.advantages).type):
        names.append(roles.advantages)
    return {name: Lists.of(name, rows.data.column(name)) for name in names}


@frozen
class _Cut:
    """Rows of one batch to be, with what is found out about them once."""

    rows: Rows
    lists: Mapping[str, Lists]
    roles: Roles
    policy: BadRowPolicy

    @cached_property
    def unscored(self) -> NDArray[np.bool_] | None:
        """Tokens that are kept without a rollout log-prob, bool over all; None where there are none."""
        if self.policy.nonfinite != "keep" or not self.roles.trained:
            return None
        missing = np.isnan(self.lists[self.roles.rollout].values)
        return missing if missing.any() else None

    @cached_property
    def looked_at(self) -> Mapping[str, Lists]:
        """The lists, with 0 for log-probs a little above it where that is asked for, and with the trained policy's in
        the place of those that the engine did not give."""
        lists = dict(self.lists)
        for name, above in self.clamped.items():
            lists[name] = replace(lists[name], values=np.where(above, 0, lists[name].values))
        if self.unscored is not None:
            rollout = lists[self.roles.rollout]
            filled = np.where(self.unscored, lists[self.roles.train].values, rollout.values)
            lists[self.roles.rollout] = replace(rollout, values=filled)
        return lists

    @cached_property
    def clamped(self) -> Mapping[str, NDArray[np.bool_]]:
        """Column -> the tokens on which it lies a little above 0, where 0 is to be read for that."""
        lists = {name: self.lists[name].values for name in self.roles.log_probs if self.policy.above_zero == "clamp"}
        return {name: (x > ABOVE_ZERO) & (x <= CLAMPED) for name, x in lists.items()}

    @cached_property
    def tokens(self) -> tuple[Valid, int]:
        """The valid tokens, and how many were cleared for not being finite."""
        roles, name = self.roles, self.roles.advantages
        advantages = None
        if name in self.lists:
            advantages = self.lists[name].values.astype(np.float64)
        elif name is not None:  # a row's one number is all its tokens'
            lengths = np.diff(self.lists[roles.rollout].offsets)
            advantages = np.repeat(checks.numbers(self.rows.data.column(name)), lengths)
        valid = checks.valid(self.looked_at, roles.log_probs, mask=roles.mask, advantages=advantages)
        if valid.sound or self.policy.nonfinite != "mask":
            return valid, 0
        bad = checks.not_finite(self.lists, roles.log_probs, advantages if name in self.lists else None)
        cleared = checks.valid(self.looked_at, roles.log_probs, mask=roles.mask, advantages=advantages, finite=~bad)
        return cleared, int(valid.of(bad).sum())

    @cached_property
    def row_keys(self) -> Keys | None:
        """A hash of each row's own id, 0 of a row without one; None where the dump has no ids."""
        names = self.roles.drawn_by
        return row_keys([self.rows.data.column(name) for name in names]) if names else None

    @cached_property
    def cluster_keys(self) -> Keys | None:
        """A hash of each row's cluster, 0 of a row without one; None where rollouts tell which rows are one."""
        if self.roles.cluster is None:
            return self.row_keys if self.roles.draws_rows else None
        return cluster_keys(self.rows.data.column(self.roles.cluster))


def _checked(cut: _Cut, seen: SeenIds | None) -> Iterator[CheckedRows | BadRows]:
    """The rows of one batch, those that fail a check before them."""
    # The order counts.  A line must be an object before its values are looked at; and an id counts as seen once it was
    # asked for, so only sound rows are asked: a bad row must not make a later good one with its id a duplicate.
    find_faults: Callable[[_Cut], list[Fault]]
    for find_faults in (_unreadable, _unsound, partial(_repeated, seen=seen)):
        faults = find_faults(cut)
        if faults:
            rows, set_aside = _set_aside(cut.rows, faults, cut.policy)
            yield set_aside
            cut = replace(cut, rows=rows, lists=lists_of(rows, cut.roles))
    valid, n_cleared = cut.tokens
    n_unscored = 0 if cut.unscored is None else int(valid.of(cut.unscored).sum())
    n_clamped = sum(int(valid.of(above).sum()) for above in cut.clamped.values())
    if n_cleared or n_unscored or n_clamped:
        yield BadRows(BadRowCounts(cleared=n_cleared, unscored=n_unscored, clamped=n_clamped))
    if cut.rows.data.num_rows:
        yield _checked_rows(cut, valid)


def _unreadable(cut: _Cut) -> list[Fault]:
    """Rows that are wanted whole, and cannot be had so."""
    unreadable = {} if cut.rows.original is None else cut.rows.original.unreadable()
    return [Fault(row, "unreadable_line", why) for row, why in unreadable.items()]


def _unsound(cut: _Cut) -> list[Fault]:
    """Rows with a value that may not stand."""
    valid, _ = cut.tokens
    if valid.sound:
        return []
    lists, roles, name = cut.looked_at, cut.roles, cut.roles.advantages
    faults = list(checks.of_values(lists, roles.log_probs, roles.mask, valid.keep))
    if name in lists:
        faults += checks.of_advantages(lists[name], valid.keep)
    elif name is not None:
        offsets = lists[roles.rollout].offsets
        n_valid = np.diff(offsets) - _masked_per_row(valid.keep, offsets)
        faults += checks.of_scalars(name, cut.rows.data.column(name), n_valid > 0)
    return faults


def _repeated(cut: _Cut, seen: SeenIds | None) -> list[Fault]:
    """Rows whose id came before; one without an id never did."""
    rows, roles, row_keys = cut.rows, cut.roles, cut.row_keys
    if seen is None or row_keys is None:
        return []
    places = np.flatnonzero(row_keys)
    again = places[seen.repeated(row_keys[places])]
    faults: list[Fault] = []
    for row in again.tolist():
        of_row = rows.data.slice(row, 1)
        first, *others = (f"{name} {texts(of_row.column(name))[0].as_py()}" for name in roles.ids)
        within = f" in {' and '.join(others)}" if others else ""
        faults.append(Fault(row, "duplicate_id", f"{first} is there twice{within}"))
    return faults


def _set_aside(rows: Rows, faults: Iterable[Fault], bad_rows: BadRowPolicy) -> tuple[Rows, BadRows]:
    """The rows without fault, and the others; an error if they are not to be set aside."""
    by_row: dict[int, Fault] = {}
    for fault in faults:  # of several of a row it counts under the first
        by_row.setdefault(fault.row, fault)
    fault_of = dict(sorted(by_row.items()))
    if bad_rows.stops:
        fault = next(iter(fault_of.values()))
        place = resolved(rows.places[fault.row]).text
        raise first_bad_row(fault.problem, place, fault.message, fault.fix)
    counts: dict[str, int] = {}
    first: dict[str, FirstBadRow] = {}
    for row, fault in fault_of.items():
        counts[fault.problem] = counts.get(fault.problem, 0) + 1
        first.setdefault(fault.problem, FirstBadRow(rows.places[row], fault.message))
    sound = np.ones(rows.data.num_rows, np.bool_)
    sound[list(fault_of)] = False
    totals = BadRowCounts(rows=counts, first=first)
    rest = rows.take(np.flatnonzero(sound))
    if not bad_rows.keeps:
        return rest, BadRows(totals)
    bad = rows.take(np.flatnonzero(~sound))
    reasons = tuple(f"{fault.problem}: {fault.message}" for fault in fault_of.values())
    return rest, BadRows(totals, bad.original, reasons)


def _checked_rows(cut: _Cut, valid: Valid) -> CheckedRows:
    rows, roles = cut.rows, cut.roles
    offsets = cut.lists[roles.rollout].offsets
    n_masked = _masked_per_row(valid.keep, offsets)
    group_index, groups = _grouped(rows, roles)
    batch = Batch(
        offsets=offsets - np.concatenate([[0], np.cumsum(n_masked)]),
        rollout_logp=valid.log_probs[roles.rollout],
        old_logp=valid.log_probs[roles.old] if roles.old else None,
        current_logp=valid.log_probs[roles.current] if roles.current else None,
        advantages=valid.advantages,
        n_masked=n_masked,
        reward=checks.numbers(rows.data.column(roles.reward)) if roles.reward else None,
        group_index=group_index,
        group_keys=groups,
        row_keys=cut.row_keys,
        cluster_keys=cut.cluster_keys,
        row_advantage=_row_means(rows.data.column(roles.row_advantage), offsets, valid.keep)
        if roles.row_advantage
        else None,
        unscored=None if cut.unscored is None else valid.of(cut.unscored),
        rollout_keys=row_keys([rows.data.column(name) for name in roles.rollouts]) if roles.rollouts else None,
    )
    return CheckedRows(
        batch=batch,
        data=rows.data,
        original=None if rows.original is None else rows.original.read(),
        offsets=offsets,
        valid=valid.keep,
        places=rows.places,
    )


def _row_means(column: pa.Array, offsets: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """One number per row, or the mean over its valid tokens that have one; NaN where none has, or the row's list is
    not as long as the others."""
    if not is_list(column.type):
        return checks.numbers(column)
    lists = Lists.of("advantages", column)
    lengths, wanted = np.diff(lists.offsets), np.diff(offsets)
    fits = lengths == wanted
    counted = np.isfinite(lists.values)
    if valid is not None:
        counted[np.repeat(fits, lengths)] &= valid[np.repeat(fits, wanted)]
    values = np.where(counted, lists.values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        n_counted = _row_sums(counted, lists.offsets)
        means = _row_sums(values, lists.offsets) / n_counted
        if np.isinf(means).any():  # the sum of numbers that float64 holds may be beyond it, their mean is not
            means = _row_sums(values / np.repeat(n_counted, lengths), lists.offsets)
    return np.where(fits & (n_counted > 0), means, np.nan)


def _row_sums(values: NDArray[Any], offsets: NDArray[np.int64], dtype: Any = np.float64) -> NDArray[Any]:
    """In a type; 0 of a row without values.  The last row ends with the values."""
    sums, filled = np.zeros(len(offsets) - 1, dtype), offsets[1:] > offsets[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(values, offsets[:-1][filled], dtype=dtype)
    return sums


def _masked_per_row(keep: NDArray[np.bool_] | None, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    if keep is None:
        return np.zeros(len(offsets) - 1, np.int64)
    return np.diff(offsets) - _row_sums(keep.view(np.int8), offsets, np.int32)  # of a row are ROW_TOKENS at most


def _grouped(rows: Rows, roles: Roles) -> tuple[NDArray[np.int32], tuple[GroupKey, ...]]:
    """Which group each row is in, and the groups there are; without columns all rows are one group, (None,)."""
    code: NDArray[np.int64] = np.zeros(rows.data.num_rows, np.int64)
    groups: list[GroupKey] = [(None,) if roles.batch is None else ()]
    for key in roles.group_keys if roles.batch is None else (roles.batch, *roles.group_keys):
        columns = [coded(rows.data.column(name)) for name in read_for([key])]
        codes, values = coded_lags(*columns) if isinstance(key, Lag) else columns[0]
        used, code = np.unique(code * len(values) + codes, return_inverse=True)
        groups = [(*groups[i // len(values)], values[i % len(values)]) for i in used.tolist()]
    return code.astype(np.int32), tuple(groups)
