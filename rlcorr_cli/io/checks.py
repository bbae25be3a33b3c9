"""What a dump's lists must satisfy, and the words for where they do not.

The fast path is a handful of reductions; rows and positions are only looked for once something is known to be wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError

ABOVE_ZERO = 1e-6
"""How far a log-prob may lie above 0: kernels round log 1 upwards now and then."""


ADVANTAGE_HINT = "The plan looks at the sign of advantages: every row, and every valid token of a list, needs a number."


@dataclass(frozen=True)
class Lists:
    """A list column, flat.  values [T], nulls as NaN; offsets i64[B+1] from 0; items: values with nulls as nulls."""

    column: str
    values: NDArray[Any]
    offsets: NDArray[np.int64]
    items: pa.Array
    where: Callable[[int], str]

    def rows(self, first: int, last: int) -> "Lists":
        """Rows first..last-1, without copying."""
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return Lists(
            self.column,
            self.values[start:stop],
            self.offsets[first : last + 1] - start,
            self.items.slice(start, stop - start),
            partial(_shifted, self.where, first),
        )

    def place(self, token: int) -> tuple[str, str]:
        """Where flat token `token` is, and which: ('dump.jsonl, line 17', 'old_log_probs[4]')."""
        row = int(np.searchsorted(self.offsets, token, side="right")) - 1
        return self.where(row), f"{self.column}[{token - int(self.offsets[row])}]"

    def shown(self, token: int) -> str:
        """The value as the file has it."""
        value = self.items[token].as_py()
        return "null" if value is None else f"{value:g}"


def check_lengths(lists: Lists, rollout: Lists) -> None:
    """Each row's list is as long as its rollout log-probs."""
    if np.array_equal(lists.offsets, rollout.offsets):
        return
    ours, theirs = np.diff(lists.offsets), np.diff(rollout.offsets)
    row = int(np.flatnonzero(ours != theirs)[0])
    raise DataError(
        f"{lists.where(row)}: {lists.column} has {ours[row]} tokens, {rollout.column} has {theirs[row]}.",
        "They are compared token by token: repair the row, or use --map to name another column.",
    )


def kept(mask: Lists) -> NDArray[np.bool_] | None:
    """The mask as booleans; None where it leaves out nothing."""
    values = mask.values
    if values.size == 0:
        return None
    low, high = values.min(), values.max()
    keep = values if values.dtype == np.bool_ else values == 1
    if low < 0 or high > 1 or (values.dtype.kind == "f" and not np.all(keep | (values == 0))):
        token = int(np.flatnonzero(~(keep | (values == 0)))[0])
        where, which = mask.place(token)
        raise DataError(
            f"{where}: {which} is {mask.shown(token)}; a mask holds 0 and 1.",
            "1 (or true) is a token of the response; use --map response_mask=COLUMN to name another column.",
        )
    return None if low == 1 else keep


def check_log_probs(lists: Lists, keep: NDArray[np.bool_] | None, mask: str | None) -> NDArray[Any]:
    """The valid tokens' log-probs, finite and at most ABOVE_ZERO; masked ones may be anything."""
    valid = lists.values if keep is None else lists.values[keep]
    if valid.size == 0 or (np.isfinite(valid.min()) and valid.max() <= ABOVE_ZERO):  # a NaN would be the minimum
        return valid
    bad = ~(np.isfinite(lists.values) & (lists.values <= ABOVE_ZERO))
    token = int(np.flatnonzero(bad if keep is None else bad & keep)[0])
    where, which = lists.place(token)
    raise _impossible(f"{where}: {which} is {lists.shown(token)} on a valid token", float(lists.values[token]), mask)


def check_advantages(lists: Lists, keep: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """The valid tokens' advantages, finite."""
    values = lists.values.astype(np.float64)
    valid = values if keep is None else values[keep]
    if np.isfinite(valid).all():
        return valid
    bad = ~np.isfinite(values)
    token = int(np.flatnonzero(bad if keep is None else bad & keep)[0])
    where, which = lists.place(token)
    raise DataError(f"{where}: {which} is {lists.shown(token)} on a valid token.", ADVANTAGE_HINT)


def _impossible(what: str, value: float, mask: str | None) -> DataError:
    if 0 < value < np.inf:
        return DataError(
            f"{what}; a log-prob cannot be above 0.", "Are these probabilities? Use --map to name the log-probs."
        )
    if mask:
        return DataError(f"{what}.", f"Set it to 0 in {mask} if it is no response token, else repair the row.")
    return DataError(f"{what}.", "Name a mask that leaves it out with --map response_mask=COLUMN, or repair the row.")


def _shifted(where: Callable[[int], str], first: int, row: int) -> str:
    return where(first + row)
