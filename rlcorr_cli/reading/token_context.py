"""What stands around the tokens of checked rows: their ids, the masked ones between them, the levels of their rows."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.reading.arrow_values import take
from rlcorr_cli.reading.batch import TokenContext
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.checks import Lists
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.ids import keys
from rlcorr_cli.reading.values import coded, texts
from rlcorr_cli.totals.row_sample import stretches

RowLevels = tuple[NDArray[np.int64], tuple[Any, ...]]
"""The code of each row, and the levels that codes stand for."""


def token_context(rows: CheckedRows, roles: Roles, at: NDArray[np.int64]) -> TokenContext:
    """Of some rows of a batch, in this order, by the roles that they were read with."""
    names = [column for _, column in roles.levels] + ([] if roles.token_ids is None else [roles.token_ids])
    data, prompts = take(rows.data.select(list(dict.fromkeys(names))), at), dict(roles.levels).get("group_id")
    lengths = np.diff(rows.offsets)[at]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    levels: dict[str, RowLevels] = {}
    for name, column in roles.levels:
        codes, values = coded(data.column(column))
        levels[name] = codes, tuple(values)
    # With how many versions each row's policy is behind its step, where both are numbers and nothing says it.
    if "lag" not in levels and {"step", "policy_version"} <= levels.keys():
        steps, versions = (_numbers(*levels[name]) for name in ("step", "policy_version"))
        lags, codes = np.unique(steps - versions, return_inverse=True)
        if np.isfinite(lags).all():
            levels["lag"] = codes.astype(np.int64), tuple(lags.tolist())
    advantages = rows.batch.row_advantage
    return TokenContext(
        offsets=offsets,
        valid=None if rows.valid is None else rows.valid[stretches(rows.offsets[at], lengths)],
        token_ids=None if roles.token_ids is None else _token_ids(data.column(roles.token_ids), offsets),
        levels=levels,
        prompts=None if prompts is None else keys([data.column(prompts)]),
        advantages=None if advantages is None else advantages[at],
    )


def row_id(rows: CheckedRows, roles: Roles, row: int) -> str | None:
    """A row's sample_id as text; None where it has none."""
    return texts(rows.data.column(roles.ids[0]).slice(row, 1))[0].as_py() if roles.ids else None


def _numbers(codes: NDArray[np.int64], values: tuple[Any, ...]) -> NDArray[np.float64]:
    """Each row's level, NaN of one that is no number."""
    numbers = [math.nan if value is None or isinstance(value, str) else float(value) for value in values]
    return np.array(numbers)[codes]


def _token_ids(column: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Ids of rows that have as many as log-probs; what has another number of them names other tokens, too."""
    lists = Lists.of("token_ids", column)
    known = np.diff(lists.offsets) == np.diff(offsets)
    if not known.any():
        return None
    ids = np.full(int(offsets[-1]), -1, np.int64)
    of_known_rows, of_known_ids = (np.repeat(known, np.diff(ends)) for ends in (offsets, lists.offsets))
    values = lists.values[of_known_ids]
    if values.dtype.kind == "f":  # of JSON lines, or with nulls: what is not whole is no id
        values = np.where(np.isfinite(values) & (values == np.floor(values)), values, -1)
    ids[of_known_rows] = values.astype(np.int64)
    return ids
