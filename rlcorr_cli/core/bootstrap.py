"""Poisson bootstrap over sequences, in one pass.

Tokens of one sequence are not independent, so sequences are resampled.  In replicate r a sequence counts
Poisson(1) times, drawn from a hash of (seed, r, the row's own values).  The draw depends on nothing but the row, so
any split of the work gives the same replicates, and replicates add like every other sum.

A row is known by its sample_id (and step) where the dump has one, else by its length and all its rollout log-probs, to
float32 (the same for a Parquet file, its JSON-lines twin, or seven parts of either), not by its place.  The training
log-probs are left out, so that a row scored twice gets the same draws in both dumps.  Rows alike in every value share
their draws: intervals are then too wide, never too narrow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlcorr_cli.core.quantities import Columns
from rlcorr_cli.core.ragged import to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.measured import MOST_RESAMPLED, GroupReplicates
from rlcorr_cli.totals.row_keys import Keys, joined, keys_of_floats, mix, stream
from rlcorr_cli.totals.summary import Replicates

REPLICATES = 200
"""Enough for a 95 % interval whose ends are good to about 5 % of its width."""


def resample(draws: Floats, columns: Columns) -> Replicates:
    """The replicates' sums of one batch's columns; draws: how often each row counts in each, f64[B, REPLICATES]."""
    names, logs = tuple(columns.sums), tuple(columns.logs)
    table = np.stack(tuple(columns.sums.values()))
    values = np.stack(tuple(columns.logs.values())) if columns.logs else np.zeros((0, len(draws)))
    peaks = values.max(axis=1)
    rests = np.exp(values - peaks[:, None])
    # torch's product, because it keeps to the one thread it was given.
    sums, rests = (torch.from_numpy(rows) @ torch.from_numpy(draws) for rows in (table, rests))
    return Replicates(names=names, sums=sums.numpy(), logs=logs, log_peaks=peaks, log_rests=rests.numpy())


def resample_groups(
    draws: Floats, columns: Mapping[str, Columns], group_of: NDArray[np.int32], values: Sequence[tuple[Any, ...]]
) -> GroupReplicates:
    """The replicates of each group's rows, by the group's values; groups of the same values are one.

    columns: by name.  group_of: each row's, i32[B].
    """
    members: dict[tuple[Any, ...], list[int]] = {}
    for group in np.unique(group_of).tolist():
        members.setdefault(values[int(group)], []).append(group)
    if len(members) > MOST_RESAMPLED:
        return None
    rows_of = {key: np.isin(group_of, groups) for key, groups in members.items()}
    return {
        key: {name: resample(draws[rows], _of_rows(of_all, rows)) for name, of_all in columns.items()}
        for key, rows in rows_of.items()
    }


def _of_rows(columns: Columns, rows: NDArray[np.bool_]) -> Columns:
    """The same columns of some of the sequences."""
    return Columns(*({name: values[rows] for name, values in table.items()} for table in columns.tables))


def row_keys(tokens: Tokens, ids: Keys | None) -> Keys:
    """One 64-bit identity per sequence, u64[B]; ids: from the dump's own, 0 where a row has none."""
    if ids is not None and ids.all():
        return ids
    keys = keys_of_floats(to_numpy(tokens.rollout_logp.float()), tokens.ragged.offsets)
    return keys if ids is None else np.where(ids == 0, keys, ids)


def content_keys(keys: Keys, columns: Columns) -> Keys:
    """What tells rows apart that may have the same key: one id in two steps, one text scored by two policies.

    Of the key and either policy's mean log-prob, to float32, so that rounding, which batches decide, is left out.
    """
    for name in ("rollout_log_ppl", "training_log_ppl"):
        bits = (columns.sums[name] + 0.0).astype(np.float32).view(np.uint32)
        keys = joined(keys, bits.astype(np.uint64))
    return keys


def poisson_draws(keys: Keys, seed: int) -> NDArray[np.float64]:
    """Poisson(1) counts, f64[B, REPLICATES]; 16 bits of hash for each."""
    words = stream(REPLICATES // 4, seed << 32)
    return _POISSON[mix(keys[:, None] + words[None, :]).view(np.uint16)].astype(np.float64)


def _poisson_table() -> NDArray[np.uint8]:
    """Poisson(1)'s inverse distribution function at the 65,536 bin middles."""
    probabilities = np.exp(-1.0) / np.cumprod(np.concatenate([[1.0], np.arange(1.0, 12.0)]))
    middles = (np.arange(65536) + 0.5) / 65536
    return np.searchsorted(np.cumsum(probabilities), middles).astype(np.uint8)


_POISSON = _poisson_table()
