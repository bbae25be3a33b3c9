"""Rows of two dumps, each with its partner in the other, as Arrow tables of what is compared to the bit.

Of each batch `compared_columns` makes a table.  Rows wait, by their keys, until their partners come (`Waiting`): hardly
any do where both dumps have one order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.reading.arrow_values import as_numpy, call, flattened
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.token_context import token_numbers
from rlcorr_cli.reading.values import texts
from rlcorr_cli.totals.flat import Ints
from rlcorr_cli.totals.row_keys import keys_of_floats

POLICIES, IDS = ("rollout_log_probs", "old_log_probs", "current_log_probs"), "token_ids"
TEXT = pa.large_string()
NO_ROWS = pa.Table.from_arrays([pa.nulls(0, pa.uint64())], ["key"])


def compared_columns(rows: CheckedRows, roles: Roles) -> pa.Table:
    """Of each row its key, which its partner has, too: of its ids, or else of its rollout log-probs; its name by its
    ids, null without; its prompt's tokens, -1 of unknown; its size, masked tokens included.  Of each valid token
    POLICIES, as float32; IDS, -1 of unknown; `at`, where it stands in the row."""
    batch, data, sizes, n_rows = rows.batch, rows.data, np.diff(rows.offsets), rows.batch.n_rows
    keys, valid = batch.row_keys, slice(None) if rows.valid is None else rows.valid
    if keys is None or not keys.all():
        of_rollouts = keys_of_floats(batch.rollout_logp, batch.offsets)
        keys = of_rollouts if keys is None else np.where(keys == 0, of_rollouts, keys)
    ids, prompts = [texts(data.column(name)) for name in roles.ids], np.full(n_rows, -1)
    names = call("binary_join_element_wise", *ids, pa.scalar(", ", TEXT)) if ids else pa.nulls(n_rows, TEXT)
    if roles.prompt is not None:
        prompts = as_numpy(call("list_value_length", data.column(roles.prompt)), null=-1).astype(np.int64)
    elif (length := dict(roles.levels).get("prompt_length")) is not None:
        said = texts(data.column(length)).to_pylist()
        prompts = np.array([int(n) if n and n.isdecimal() and len(n) < 19 else -1 for n in said], np.int64)
    at = np.arange(sizes.sum(), dtype=np.int32) - np.repeat(rows.offsets[:-1].astype(np.int32), sizes)
    of_tokens: dict[str, NDArray[Any]] = {"at": at[valid]}
    if IDS in roles.of_tokens:
        ids = token_numbers(data.column(roles.of_tokens[IDS]), rows.offsets)
        of_tokens[IDS] = np.full(batch.n_tokens, -1) if ids is None else ids[valid]
    for name, of in zip(POLICIES, (batch.rollout_logp, batch.old_logp, batch.current_logp), strict=True):
        if of is not None:
            of_tokens[name] = of.astype(np.float32, copy=False)
    lists = {name: pa.LargeListArray.from_arrays(batch.offsets, of) for name, of in of_tokens.items()}
    return pa.table({"key": keys, "name": names, "prompt": prompts, "size": sizes, **lists})


def flat(rows: pa.Table, name: str) -> tuple[NDArray[Any], Ints]:
    """The values of a column of lists, and where each row's begin and end."""
    values, ends = flattened(rows[name].combine_chunks())
    return as_numpy(values), ends


@dataclass
class Waiting:
    """Rows of two dumps that wait for their partners, of keys that leave `part` over n_parts; in the end, those that
    have none.

    n_read: rows of either that have come, whatever their keys.
    """

    part: int
    n_parts: int
    n_read: list[int] = field(default_factory=lambda: [0, 0])
    tables: list[pa.Table] = field(default_factory=lambda: [NO_ROWS, NO_ROWS])

    def met(self, side: int, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Rows of the first dump and their partners in the second, now that some of one of them (side) have come.

        A row without ids is named by its number.
        """
        first, self.n_read[side] = self.n_read[side], self.n_read[side] + len(rows)
        if rows["name"].null_count:
            numbers = pa.array(map(str, range(first, self.n_read[side])), TEXT)
            rows = rows.set_column(1, "name", call("coalesce", rows["name"], numbers))
        if self.n_parts > 1:
            rows = rows.filter(as_numpy(rows["key"]) % np.uint64(self.n_parts) == self.part)
        while True:  # of several rows of one key each has its turn
            theirs = self.tables[1 - side]
            _, at, there = np.intersect1d(as_numpy(rows["key"]), as_numpy(theirs["key"]), return_indices=True)
            if not len(at):
                break
            order = np.argsort(at)
            pair = _taken(rows, at[order]), _taken(theirs, there[order])
            yield pair[::-1] if side else pair
            rows, self.tables[1 - side] = _without(rows, at), _without(theirs, there)
        self.tables[side] = pa.concat_tables([self.tables[side], rows]) if len(self.tables[side]) else rows


def _taken(rows: pa.Table, at: Ints) -> pa.Table:
    """These rows; nothing is copied where they are all, in their order."""
    return rows if np.array_equal(at, np.arange(len(rows))) else rows.take(at)


def _without(rows: pa.Table, at: Ints) -> pa.Table:
    return _taken(rows, np.delete(np.arange(len(rows)), at))
