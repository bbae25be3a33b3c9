"""From Arrow rows to Batches: flat arrays, masked tokens dropped, every value checked once.

Bad rows stop the reading, or are set aside before anything is made of them: an Aside takes the place of a Portion.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, GroupKey
from rlcorr_cli.errors import DataError
from rlcorr_cli.io import checks
from rlcorr_cli.io.arrow_types import is_list
from rlcorr_cli.io.as_numpy import as_indices, as_numpy
from rlcorr_cli.io.checks import Fault, Lists, Valid
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.containers.lines import row_of
from rlcorr_cli.io.duplicates import Seen, keys
from rlcorr_cli.quality.bad_rows import CURES, GO_ON, Problems

Place = Callable[[], str]
ROW_TOKENS = 1 << 22
"""The most of one sequence; far beyond any model's, and still far from filling a memory."""


@dataclass(frozen=True)
class Rows:
    """Rows as read, unchecked.  where(row): how to say which one it is, `dump.jsonl, line 17`, once it is to be said.

    numbers: what errors call the rows, from 0 in Parquet, lines from 1 in JSON lines.
    lines: the rows' own bytes, where they are JSON lines; data then holds only the columns that are needed.
    unread: rows whose line could not be read, and why; all their columns are null.
    """

    data: pa.RecordBatch
    where: Callable[[int], Place]
    numbers: Callable[[], Sequence[int]]
    lines: Callable[[], list[bytes]] | None = None
    unread: Mapping[int, str] = field(default_factory=dict[int, str])

    def part(self, first: int, last: int) -> "Rows":
        """Rows first..last-1, without copying."""
        if (first, last) == (0, self.data.num_rows):
            return self
        lines, where, numbers = self.lines, self.where, self.numbers
        return Rows(
            self.data.slice(first, last - first),
            lambda row: where(first + row),
            lambda: numbers()[first:last],
            lines and (lambda: lines()[first:last]),
            {row - first: why for row, why in self.unread.items() if first <= row < last},
        )

    def take(self, chosen: NDArray[np.int64]) -> "Rows":
        """Some rows, in order."""
        lines, where, numbers, indices = self.lines, self.where, self.numbers, chosen.tolist()

        def picked() -> list[bytes]:
            assert lines is not None
            given = lines()
            return [given[i] for i in indices]

        return Rows(
            self.data.take(as_indices(chosen)),
            lambda row: where(indices[row]),
            lambda: [numbers()[i] for i in indices],
            picked if lines else None,
        )


@dataclass(frozen=True)
class Care:
    """What is done about bad rows.  stop: the first is an error; else they are set aside.  clear: single tokens that
    are not finite leave the mask.  keep: the rows set aside are wanted whole."""

    stop: bool = True
    clear: bool = False
    keep: bool = False


@dataclass(frozen=True)
class Portion:
    """A Batch and the rows that it came from.

    data: the rows as read.  objects: their whole lines, of JSON lines.  offsets: i64[B+1] into all tokens, valid or
    not.  valid: bool over all tokens, None where all are.  where: as of Rows.
    """

    batch: Batch
    data: pa.RecordBatch
    objects: list[dict[str, Any]] | None
    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    where: Callable[[int], Place]


@dataclass(frozen=True)
class Aside:
    """Bad rows, and tokens that were cleared.  data, lines: as of a Portion, where they are wanted; reasons: by row."""

    problems: Problems
    data: pa.RecordBatch | None = None
    lines: list[bytes] | None = None
    reasons: tuple[str, ...] = ()


def portions(
    rows: Rows, roles: Roles, batch_tokens: int, care: Care | None = None, seen: Seen | None = None
) -> Iterator[Portion | Aside]:
    """The rows in order, cut where the next would pass batch_tokens.

    With care.stop an error names the first bad row of a portion.  seen: the rows met so far, where ids are looked at.
    """
    care = care or Care()
    if rows.lines is not None:
        given = rows.lines()
        rows = replace(rows, lines=lambda: given)
    lists = lists_of(rows, roles)
    faults = [Fault(row, "unreadable_line", why) for row, why in rows.unread.items()]
    faults += checks.structural(lists, roles.rollout)
    if faults:
        rows, aside = _set_aside(rows, faults, care)
        yield aside
        lists = lists_of(rows, roles)
    _check_lengths(rows, lists[roles.rollout].offsets)
    for first, last in _cuts(lists[roles.rollout].offsets, batch_tokens):
        cut = {name: whole.rows(first, last) for name, whole in lists.items()}
        yield from _checked(rows.part(first, last), cut, roles, care, seen)


def lists_of(rows: Rows, roles: Roles) -> dict[str, Lists]:
    """Every list column that is read, flat."""
    names = [*roles.log_probs, *([roles.mask] if roles.mask else [])]
    if roles.advantages and is_list(rows.data.column(roles.advantages).type):
        names.append(roles.advantages)
    return {name: Lists.of(name, rows.data.column(name)) for name in names}


def _check_lengths(rows: Rows, offsets: NDArray[np.int64]) -> None:
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > ROW_TOKENS:
        row = int(lengths.argmax())
        raise DataError(
            f"{rows.where(row)()} has {lengths[row]:,} tokens, over {ROW_TOKENS:,}.",
            "One row is one sequence: is the dump laid out so?",
        )


def _cuts(offsets: NDArray[np.int64], batch_tokens: int) -> Iterator[tuple[int, int]]:
    first, n_rows = 0, len(offsets) - 1
    while first < n_rows:
        fitting = int(np.searchsorted(offsets, offsets[first] + batch_tokens, side="right")) - 1
        last = max(fitting, first + 1)
        yield first, last
        first = last


def _checked(
    rows: Rows, lists: dict[str, Lists], roles: Roles, care: Care, seen: Seen | None
) -> Iterator[Portion | Aside]:
    """One portion, its bad rows before it.  seen: None where ids need not be looked at any more."""
    objects, faults = _objects(rows)
    if faults:
        rows, aside = _set_aside(rows, faults, care)
        yield aside
        yield from _checked(rows, lists_of(rows, roles), roles, care, seen)
        return
    valid, cleared = _valid(rows, lists, roles, None), 0
    if not valid.sound and care.clear:
        per_token = _advantages(rows, lists, roles) if roles.advantages in lists else None
        bad = checks.not_finite(lists, roles.log_probs, per_token)
        cleared = int(valid.of(bad).sum())
        valid = _valid(rows, lists, roles, ~bad)
    faults = [] if valid.sound else _faults(rows, lists, roles, valid)
    repeated = [] if faults else _repeated(rows, roles, seen)
    if faults or repeated:
        rows, aside = _set_aside(rows, faults or repeated, care)
        yield aside
        yield from _checked(rows, lists_of(rows, roles), roles, care, seen if faults else None)
        return
    if cleared:
        yield Aside(Problems(cleared=cleared))
    if rows.data.num_rows:
        yield _portion(rows, lists, roles, valid, objects)


def _objects(rows: Rows) -> tuple[list[dict[str, Any]] | None, list[Fault]]:
    """Whole lines, and those that are none, whatever the reader of single columns made of them."""
    if rows.lines is None:
        return None, []
    read = [row_of(line) for line in rows.lines()]
    faults = [Fault(row, "unreadable_line", one) for row, one in enumerate(read) if isinstance(one, str)]
    return [one for one in read if isinstance(one, dict)], faults


def _valid(rows: Rows, lists: Mapping[str, Lists], roles: Roles, finite: NDArray[np.bool_] | None) -> Valid:
    return checks.valid(lists, roles.log_probs, roles.mask, _advantages(rows, lists, roles), finite)


def _advantages(rows: Rows, lists: Mapping[str, Lists], roles: Roles) -> NDArray[np.float64] | None:
    """Of every token; a row's one number is all its tokens'."""
    name = roles.advantages
    if name is None:
        return None
    if name in lists:
        return lists[name].values.astype(np.float64)
    return np.repeat(checks.numbers(rows.data.column(name)), np.diff(lists[roles.rollout].offsets))


def _faults(rows: Rows, lists: Mapping[str, Lists], roles: Roles, valid: Valid) -> list[Fault]:
    """Of a portion that is not sound."""
    faults, name = list(checks.of_values(lists, roles.log_probs, roles.mask, valid.keep)), roles.advantages
    if name is None:
        return faults
    if name in lists:
        return faults + list(checks.of_advantages(lists[name], valid.keep))
    offsets = lists[roles.rollout].offsets
    n_valid = np.diff(offsets) - _masked_per_row(valid.keep, offsets)
    return faults + list(checks.of_scalars(name, rows.data.column(name), n_valid > 0))


def _repeated(rows: Rows, roles: Roles, seen: Seen | None) -> list[Fault]:
    """Rows whose id came before; one without an id never did."""
    if seen is None or not roles.ids:
        return []
    hashes, known = keys([rows.data.column(name) for name in roles.ids])
    places = np.flatnonzero(known)
    again = places[seen.repeated(hashes[places])]
    return [Fault(row, "duplicate_id", _twice(rows, roles.ids, row)) for row in again.tolist()]


def _twice(rows: Rows, ids: Sequence[str], row: int) -> str:
    one, *others = (f"{name} {rows.data.column(name)[row].as_py()}" for name in ids)
    return f"{one} is there twice" + (f" in {' and '.join(others)}" if others else "")


def _set_aside(rows: Rows, faults: Iterable[Fault], care: Care) -> tuple[Rows, Aside]:
    """The rows without fault, and the others; an error if they are not to be set aside."""
    found = checks.first_of_rows(faults)
    if care.stop:
        fault = next(iter(found.values()))
        raise DataError(f"{fault.at(rows.where(fault.row)())}.", f"{CURES[fault.problem]} {GO_ON}.")
    counts: dict[str, int] = {}
    first: dict[str, Place] = {}
    for row, fault in found.items():
        counts[fault.problem] = counts.get(fault.problem, 0) + 1
        first.setdefault(fault.problem, _said(rows.where(row), fault))
    sound = np.ones(rows.data.num_rows, np.bool_)
    sound[list(found)] = False
    problems = Problems(counts, first)
    rest = rows.take(np.flatnonzero(sound))
    if not care.keep:
        return rest, Aside(problems)
    bad = rows.take(np.flatnonzero(~sound))
    reasons = tuple(f"{fault.problem}: {fault.says}" for fault in found.values())
    return rest, Aside(problems, bad.data, bad.lines and bad.lines(), reasons)


def _said(place: Place, fault: Fault) -> Place:
    return lambda: fault.at(place())


def _portion(
    rows: Rows, lists: Mapping[str, Lists], roles: Roles, valid: Valid, objects: list[dict[str, Any]] | None
) -> Portion:
    offsets = lists[roles.rollout].offsets
    n_masked = _masked_per_row(valid.keep, offsets)
    leaf, groups = _grouped(rows, roles.keys)
    batch = Batch(
        offsets=offsets - np.concatenate([[0], np.cumsum(n_masked)]),
        train_logp=valid.log_probs[roles.train],
        rollout_logp=valid.log_probs[roles.rollout],
        current_logp=valid.log_probs[roles.current] if roles.current else None,
        advantages=valid.advantages,
        n_masked=n_masked,
        reward=checks.numbers(rows.data.column(roles.reward)) if roles.reward else None,
        leaf=leaf,
        keys=groups,
    )
    return Portion(batch, rows.data, objects, offsets, valid.keep, rows.where)


def _masked_per_row(keep: NDArray[np.bool_] | None, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    if keep is None:
        return np.zeros(len(offsets) - 1, np.int64)
    return np.diff(np.searchsorted(np.flatnonzero(~keep), offsets)).astype(np.int64)


def _grouped(rows: Rows, names: Sequence[str]) -> tuple[NDArray[np.int32], tuple[GroupKey, ...]]:
    """Which group each row is in, and the groups there are; without columns all rows are one group, ()."""
    code: NDArray[np.int64] = np.zeros(rows.data.num_rows, np.int64)
    groups: list[GroupKey] = [()]
    for name in names:
        try:
            codes, values = _coded(rows.data.column(name))
        except UnicodeDecodeError as error:
            raise DataError(f"{rows.where(0)()} or later: {name} is not UTF-8.", "Write the column again.") from error
        used, code = np.unique(code * len(values) + codes, return_inverse=True)
        groups = [(*groups[i // len(values)], values[i % len(values)]) for i in used.tolist()]
    return code.astype(np.int32), tuple(groups)


def _coded(column: pa.Array) -> tuple[NDArray[np.int64], list[Any]]:
    """One key column as codes into its distinct Python values; null and NaN are None."""
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_timestamp(plain.type) and plain.type.unit == "ns":
        plain = plain.cast(pa.timestamp("us", plain.type.tz), safe=False)  # Python's datetime has no nanoseconds
    encoded = plain.dictionary_encode()
    seen = [None if isinstance(v, float) and isnan(v) else v for v in encoded.dictionary.to_pylist()]
    distinct = {value: i for i, value in enumerate(dict.fromkeys([*seen, None]))}
    recode = np.array([distinct[value] for value in [*seen, None]])
    indices = as_numpy(encoded.indices, null=len(seen))
    return recode[indices], list(distinct)
