"""What a dump's lists must satisfy, and the words for where they do not.

The fast path is a handful of reductions over a portion (`Valid.sound`); which rows are at fault, and where in them, is
only looked for once something is known to be wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.arrow_values import as_numpy, call, cast, flattened
from rlcorr_cli.reading.bad_rows import ABOVE_ZERO, CLAMPED, SENTINEL

Flags = NDArray[np.bool_]
ABOVE, NAME_THEM = "; a log-prob cannot be above 0", "Use ⟦map⟧ to name the log-probs."


@frozen
class Fault:
    """What is wrong with a row.  problem: its class.  message: a clause without the row's place; of a line that could
    not be read, its predicate.  fix: what to do, if that is not the same for all of the class."""

    row: int
    problem: str
    message: str
    fix: str = ""


@frozen(kw_only=True)
class Lists:
    """A list column, flat.  values [T], nulls as NaN; offsets i64[B+1] from 0; items: values with nulls as nulls.

    nulls: bool[B], rows whose list is null (of length 0 here), None of none.
    """

    column: str
    values: NDArray[Any]
    offsets: NDArray[np.int64]
    items: pa.Array
    nulls: Flags | None = None

    @classmethod
    def of(cls, name: str, column: pa.Array) -> "Lists":
        """A column of any list type."""
        has_offsets = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        nulls = None
        if has_offsets and len(column) and not column.null_count:
            # `.values` ignores a slice, whose offsets need not start at 0.
            ends = as_numpy(column.offsets).astype(np.int64)
            items, offsets = column.values.slice(ends[0], ends[-1] - ends[0]), ends - ends[0]
        else:
            items, offsets = flattened(column)
            if column.null_count:
                nulls = as_numpy(call("is_null", column))
        # Nulls become NaN, in the smallest float that has one: of whole numbers, which are a mask's and only held
        # against 0 and 1, a double.
        is_mask = items.null_count and not pa.types.is_floating(items.type)
        values = as_numpy(cast(items, pa.float64(), lossy=True) if is_mask else items, null=np.nan)
        if values.dtype == np.float16:
            values = values.astype(np.float32)
        return cls(column=name, values=values, offsets=offsets, items=items, nulls=nulls)

    def rows(self, first: int, last: int) -> "Lists":
        """Rows first..last-1, without copying."""
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        offsets = self.offsets[first : last + 1] - start
        return Lists(
            column=self.column,
            values=self.values[start:stop],
            offsets=offsets,
            items=self.items.slice(start, stop - start),
        )

    def row_of(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which rows flat tokens are in."""
        return np.searchsorted(self.offsets, tokens, side="right") - 1

    def says(self, token: int) -> str:
        """A flat token and its value as the file has it: 'old_log_probs[4] is null'."""
        value, row = self.items[token].as_py(), int(self.row_of(np.array([token]))[0])
        shown = "null" if value is None else f"{value:g}"
        return f"{self.column}[{token - int(self.offsets[row])}] is {shown}"


@frozen
class Valid:
    """The tokens that count.  keep: bool[T], None where all do.  log_probs: column -> [V].  advantages: f64[V]."""

    keep: Flags | None
    log_probs: Mapping[str, NDArray[Any]]
    advantages: NDArray[np.float64] | None
    mask_is_sound: bool = True

    @property
    def sound(self) -> bool:
        """Whether every value may stand; a handful of reductions."""
        if not self.mask_is_sound:
            return False
        for values in self.log_probs.values():
            if values.size:
                low, high = values.min(), values.max()  # a NaN would be both
                if not (low > SENTINEL and high <= ABOVE_ZERO):
                    return False
        return self.advantages is None or bool(np.isfinite(self.advantages).all())

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Those of all tokens that count."""
        return values if self.keep is None else values[self.keep]


def valid(
    lists: Mapping[str, Lists],
    log_probs: Iterable[str],
    *,
    mask: str | None,
    advantages: NDArray[np.float64] | None,
    finite: Flags | None = None,
) -> Valid:
    """The tokens that the mask leaves, unchecked.  advantages: f64[T].  finite: what else must hold of a token."""
    keep, sound = (None, True) if mask is None else _mask_as_flags(lists[mask].values)
    if finite is not None:
        keep = finite if keep is None else keep & finite
    chosen = Valid(keep, {}, None)
    return Valid(
        keep,
        {name: chosen.of(lists[name].values) for name in log_probs},
        None if advantages is None else chosen.of(advantages),
        sound,
    )


def structural(lists: Mapping[str, Lists], rollout: str) -> Iterator[Fault]:
    """Rows whose lists are null, or not as long as the rollout's."""
    base = lists[rollout]
    for column in lists.values():
        if column.nulls is not None:
            yield from (Fault(row, "null_list", f"{column.column} is null") for row in _places(column.nulls))
    for column in lists.values():
        if not np.array_equal(column.offsets, base.offsets):
            ours, theirs = np.diff(column.offsets), np.diff(base.offsets)
            for row in _places(ours != theirs):
                says = f"{column.column} has {plural(ours[row], 'token')}, {rollout} has {theirs[row]}"
                yield Fault(row, "unequal_lengths", says)


def not_finite(lists: Mapping[str, Lists], log_probs: Iterable[str], advantages: NDArray[np.float64] | None) -> Flags:
    """bool[T]: tokens at which some value that is looked at is null, NaN or infinite."""
    bad = np.logical_or.reduce([~np.isfinite(lists[name].values) for name in log_probs])
    return bad if advantages is None else bad | ~np.isfinite(advantages)


def of_values(
    lists: Mapping[str, Lists], log_probs: Iterable[str], mask: str | None, keep: Flags | None
) -> Iterator[Fault]:
    """For each class and column the rows with a bad value on a valid token, each with its first."""
    if mask is not None:
        values = lists[mask].values
        wrong = ~((values == 1) | (values == 0))
        yield from _first_faults(lists[mask], wrong, "mask_values", "; a mask holds 0 and 1")
    tests: tuple[tuple[str, Callable[[NDArray[Any]], Flags]], ...] = (
        ("not_finite", lambda x: ~np.isfinite(x)),
        ("above_zero", lambda x: (x > ABOVE_ZERO) & np.isfinite(x)),
        ("sentinel", lambda x: (x <= SENTINEL) & np.isfinite(x)),
    )
    for problem, test in tests:
        for name in log_probs:
            values = lists[name].values
            bad = test(values) if keep is None else test(values) & keep
            more, fix = _above_zero(values if keep is None else values[keep]) if problem == "above_zero" else ("", "")
            yield from _first_faults(lists[name], bad, problem, f" on a valid token{more}", fix=fix)


def _above_zero(values: NDArray[Any]) -> tuple[str, str]:
    """What a column with values above 0 may hold, and what to do.  values: those on valid tokens."""
    values = values[np.isfinite(values)]
    above = values[values > ABOVE_ZERO]
    low, high = float(values.min(initial=0)), float(above.max(initial=0))
    if low >= 0 and high <= 1 + ABOVE_ZERO:
        return ABOVE, f"Are these probabilities? {NAME_THEM}"
    if high > 1 or float(np.median(values)) >= 0:
        return ABOVE, f"Are these logits, or negative log-probs (nll)? {NAME_THEM}"
    if high > CLAMPED:
        return f"{ABOVE} (the largest is {high:g})", f"More than {CLAMPED:g} is no rounding. {NAME_THEM}"
    on_grid = next((f" on a grid of 1/{2**k}" for k in range(11) if not (above * 2**k % 1).any()), "")
    counted = f"{len(above):,} of {len(values):,} values here are, up to {high:g}{on_grid}"
    return f"{ABOVE}: {counted}, as of a log-softmax in bf16", "⟦above_zero clamp⟧ reads them as 0, and counts them."


def of_advantages(lists: Lists, keep: Flags | None) -> Iterator[Fault]:
    """Rows with an advantage that is not finite on a valid token."""
    bad = ~np.isfinite(lists.values)
    yield from _first_faults(lists, bad if keep is None else bad & keep, "not_finite", " on a valid token")


def of_scalars(name: str, column: pa.Array, counts: Flags) -> Iterator[Fault]:
    """Rows without a finite advantage.  counts: bool[B], rows with a valid token."""
    for row in _places(counts & ~np.isfinite(numbers(column))):
        value = column[row].as_py()
        yield Fault(row, "not_finite", f"{name} is {'null' if value is None else value}")


def numbers(column: pa.Array) -> NDArray[np.float64]:
    """One number per row as float64; null is NaN."""
    values = column if column.type == pa.float64() else cast(column, pa.float64(), lossy=True)
    return as_numpy(values, null=np.nan)


def _first_faults(lists: Lists, bad: Flags, problem: str, more: str, *, fix: str = "") -> Iterator[Fault]:
    tokens = np.flatnonzero(bad)
    rows, first = np.unique(lists.row_of(tokens), return_index=True)
    for row, token in zip(rows.tolist(), tokens[first].tolist(), strict=True):
        yield Fault(row, problem, lists.says(token) + more, fix)


def _mask_as_flags(values: NDArray[Any]) -> tuple[Flags | None, bool]:
    """The mask as booleans, None where it leaves out nothing, and whether it holds 0 and 1 only."""
    if values.size == 0:
        return None, True
    low, high = values.min(), values.max()
    keep = values if values.dtype == np.bool_ else values == 1
    sound = bool(low >= 0 and high <= 1) and (values.dtype.kind != "f" or bool(np.all(keep | (values == 0))))
    return (None if low == 1 and sound else keep), sound


def _places(flags: Flags) -> list[int]:
    return np.flatnonzero(flags).tolist()
