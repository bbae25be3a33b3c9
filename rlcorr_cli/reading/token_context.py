"""What stands around the tokens of checked rows: their ids, the masked ones between them, the levels of their rows."""

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.reading.arrow_values import take
from rlcorr_cli.reading.batch import TokenContext
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.checks import Lists
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.heads import TokenLists, head_distances, whole
from rlcorr_cli.reading.ids import keys
from rlcorr_cli.reading.kept_sets import kept_sets
from rlcorr_cli.reading.names import KEPT_OFFSETS
from rlcorr_cli.reading.values import coded, coded_lags
from rlcorr_cli.totals.flat import offsets_of, ranges

N = TypeVar("N", bound=np.generic)


def token_context(rows: CheckedRows, roles: Roles, at: NDArray[np.int64]) -> TokenContext:
    """Of some rows of a batch, in this order, by the roles that they were read with."""
    names = [column for _, column in roles.levels] + [
        column for column in (*roles.of_each_token, *roles.heads, *roles.kept_parts) if column
    ]
    data, prompts = take(rows.data.select(list(dict.fromkeys(names))), at), dict(roles.levels).get("group_id")
    lengths = np.diff(rows.offsets)[at]
    offsets = offsets_of(lengths)
    levels = {name: coded(data.column(column)) for name, column in roles.levels}
    # With how many versions each row's policy is behind its step, where both are numbers and nothing says it.
    if "lag" not in levels and {"step", "policy_version"} <= levels.keys():
        lags = coded_lags(levels["step"], levels["policy_version"])
        if None not in lags[1]:
            levels["lag"] = lags
    advantages = rows.batch.row_advantage
    token_ids, versions = (
        None if name is None else _of_tokens(data.column(name), offsets) for name in (roles.token_ids, roles.versions)
    )
    heads = [TokenLists.of(data.column(name)) if name else None for name in roles.heads]
    distances = head_distances(heads, offsets)
    sets = None if roles.kept_sets is None else data.column(roles.kept_sets)
    parts = [data.column(name) if name else None for name in roles.kept_parts]
    kept = kept_sets(sets, parts, heads, offsets, is_offsets=roles.kept_sets == KEPT_OFFSETS)
    return TokenContext(
        offsets=offsets,
        valid=None if rows.valid is None else rows.valid[ranges(rows.offsets[at], lengths)],
        token_ids=token_ids,
        kept_sizes=kept.sizes,
        kept_by_rollout=kept.rollout,
        kept_by_train=kept.train,
        versions=versions,
        head_tv=None if distances is None else distances[0],
        head_kl=None if distances is None else distances[1],
        levels=levels,
        prompts=None if prompts is None else keys([data.column(prompts)]),
        advantages=None if advantages is None else advantages[at],
    )


def prefill(rows: CheckedRows, roles: Roles, at: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """The rollout engine's log-probs in one forward pass of all tokens of some rows, NaN where they are none: of rows
    that have another number of them, too.  None of a dump without."""
    if roles.prefill is None:
        return None
    lists, lengths = Lists.of(roles.prefill, take(rows.data.column(roles.prefill), at)), np.diff(rows.offsets)[at]
    values = lists.values.astype(np.float64)
    values = np.where(np.isfinite(values) & (values <= 0), values, np.nan)
    return _fitted(values, lists.offsets, offsets_of(lengths), np.nan)


def _of_tokens(column: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The whole numbers of rows that have as many as log-probs, -1 elsewhere.

    What has another number of them tells of other tokens, too.
    """
    lists = Lists.of("token_ids", column)
    ends, values = lists.offsets, lists.values
    if not (np.diff(ends) == np.diff(offsets)).any():
        return None
    return _fitted(whole(values), ends, offsets, -1)  # of JSON lines, or with nulls, they are floats


def _fitted(values: NDArray[N], ends: NDArray[np.int64], offsets: NDArray[np.int64], fill: float) -> NDArray[N]:
    """The values of rows that have as many as tokens, one a token, and `fill` in the others.  ends: where each row's
    values begin and end; offsets: the same of its tokens."""
    fits = np.diff(ends) == np.diff(offsets)
    fitted = np.full(int(offsets[-1]), fill, values.dtype)
    fitted[np.repeat(fits, np.diff(offsets))] = values[np.repeat(fits, np.diff(ends))]
    return fitted
