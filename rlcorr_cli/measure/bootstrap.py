"""Poisson bootstrap over clusters of sequences, in one pass.

Neither the tokens of one sequence nor the samples of one prompt are independent, so clusters are resampled: in
replicate r all sequences of a cluster count Poisson(1) times, drawn from a hash of (seed, r, the cluster's identity).
The draw depends on nothing else, so any split of the work gives the same replicates, and replicates add like every
other sum.

A cluster is a prompt, where the dump tells prompts apart (the batch's cluster keys).  Elsewhere it is a rollout: its
length and all its rollout log-probs, to float32 (the same for a Parquet file, its JSON-lines twin, or seven parts of
either).  The training log-probs are left out, so that a rollout scored twice, by two policies or after two steps, is
one cluster, in one dump or in two.  A rollout of few telling log-probs is known by its sample_id (and step) where the
dump has one; without it, rows alike in every value share their draws: intervals are then too wide, never too narrow.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.measure.arrays import CPU, Array, Device, Segments, as_floats, host
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.flat import Floats, first_of_each
from rlcorr_cli.totals.row_keys import DistinctKeys, Keys, join_keys, mixed, stream
from rlcorr_cli.totals.totals import (
    MOST_CLUSTERS,
    MOST_GROUP_CLUSTERS,
    MOST_RESAMPLED,
    MOST_STEP_CLUSTERS,
    GroupReplicates,
    Replicates,
    Table,
)

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

REPLICATES = 200
"""Enough for a standard deviation that is good to 5%, and with it an interval's ends where nothing is skewed."""
ROWS_AT_ONCE = {"cpu": 1 << 9, "torch": 1 << 13}
"""Rows whose draws are held at once: with NumPy few enough for a processor's caches."""
TELLING_TOKENS = 8
"""Log-probs other than 0 by which a rollout is known: one of fewer may equal another by chance, and goes by its id."""


def resample(
    clusters: Keys, seed: int, columns: Columns, most_clusters: int = MOST_CLUSTERS, *, device: Device = CPU
) -> Replicates:
    """The replicates' sums of some rows' columns.

    clusters: each row's, u64[B].  most_clusters: from so many on they are estimated.  device: where is drawn.  A CPU
    draws how often rows count for a few rows at a time: of all rows it would be 200 numbers of each.
    """
    sums, values = (
        np.stack(tuple(table.values())) if table else np.zeros((0, len(clusters)))
        for table in (columns.sums, columns.logs)
    )
    peaks = values.max(axis=1, keepdims=True, initial=-np.inf)
    peaks = np.where(np.isfinite(peaks), peaks, 0.0)
    rows = np.concatenate([sums, np.exp(values - peaks)])
    drawn = np.zeros((len(rows), REPLICATES))
    at_once = ROWS_AT_ONCE["cpu" if device == CPU else "torch"]
    for start in range(0, len(clusters), at_once):
        some = slice(start, start + at_once)
        drawn += matrix_product(device.put(rows[:, some]), poisson_draws(clusters[some], seed, device))
    with np.errstate(divide="ignore"):
        logs = peaks + np.log(drawn[len(sums) :])
    return Replicates(
        sums=Table(tuple(columns.sums), drawn[: len(sums)]),
        logs=Table(tuple(columns.logs), logs),
        clusters=DistinctKeys.of(clusters, most_clusters),
    )


_ONE_PRODUCT = threading.Lock()


@cache
def _blas() -> "ThreadpoolController":
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def matrix_product(a: Array, b: Array) -> Floats:
    """The matrix product a b, by one thread: work is split over shards, and threads of BLAS beside those of the workers
    took four times the time.  One at a time, because how many threads BLAS takes is set for the whole process."""
    if not isinstance(a, np.ndarray) or os.environ.get("OPENBLAS_NUM_THREADS") == "1":  # before NumPy is loaded
        return host(a @ b)
    with _ONE_PRODUCT, _blas().limit(limits=1, user_api="blas"):
        return a @ b


def resample_groups(
    clusters: Keys,
    seed: int,
    columns: Mapping[str, Columns],
    *,
    group_of: NDArray[np.int32],
    values: Sequence[tuple[Any, ...]],
) -> GroupReplicates:
    """The replicates of each group's rows, by the group's values; groups of the same values are one.  None of more
    groups than MOST_RESAMPLED.

    columns: by name.  group_of: each row's, i32[B].
    """
    members: dict[tuple[Any, ...], list[int]] = {}
    for group in sorted(set(group_of.tolist())):
        members.setdefault(values[int(group)], []).append(group)
    if len(members) > MOST_RESAMPLED:
        return None
    rows_of = {key: np.isin(group_of, groups) for key, groups in members.items()}
    return {
        key: {
            name: resample(clusters[rows], seed, of_all.of_rows(rows), MOST_GROUP_CLUSTERS)
            for name, of_all in columns.items()
        }
        for key, rows in rows_of.items()
    }


def clusters_by(clusters: Keys, group_of: NDArray[np.int32], values: Sequence[Any]) -> dict[Any, DistinctKeys]:
    """The clusters of each value's rows.

    clusters: each row's, u64[B].  group_of: the place of each row's value, i32[B]; a value may stand at several.
    """
    counted: dict[Any, DistinctKeys] = {}
    order = np.argsort(group_of, kind="stable")
    starts = first_of_each(group_of[order])
    for keys, group in zip(np.split(clusters[order], starts[1:]), group_of[order][starts].tolist(), strict=True):
        distinct, value = DistinctKeys.of(keys, MOST_STEP_CLUSTERS), values[group]
        counted[value] = counted[value] + distinct if value in counted else distinct
    return counted


def keys_of_rows(batch: Batch, tokens: Tokens) -> tuple[Keys, Keys]:
    """The identity and the cluster of each row with a valid token, u64[B] each.  tokens: those of the batch."""
    ids, known = (None if of is None else of[batch.filled] for of in (batch.row_keys, batch.cluster_keys))
    keys = row_keys(tokens.rollout_logp, tokens.rows, ids)
    return keys, cluster_keys(tokens.rollout_logp, tokens.rows, keys, known, have_ids=ids is not None)


def row_keys(rollout: Array, rows: Segments, ids: Keys | None) -> Keys:
    """One 64-bit identity per sequence, u64[B].  rollout: its log-probs, [V]; ids: from the dump's own, 0 where a row
    has none."""
    if ids is not None and ids.all():
        return ids
    keys = rows.keys(rollout)
    return keys if ids is None else np.where(ids == 0, keys, ids)


def cluster_keys(rollout: Array, rows: Segments, keys: Keys, known: Keys | None, *, have_ids: bool) -> Keys:
    """The cluster of each sequence, u64[B].

    keys: as of `row_keys`.  known: the dump's own, 0 of a row without; None where rollouts tell.  have_ids: whether
    rows have ids of their own.
    """
    if known is not None and known.all():
        return known
    if have_ids:
        keys = np.where(rows.count(rollout != 0) >= TELLING_TOKENS, rows.keys(rollout), keys)
    return keys if known is None else np.where(known == 0, keys, known)


def content_keys(keys: Keys, columns: Columns) -> Keys:
    """What tells rows apart that may have the same key: one id in two steps, one text scored by two policies.

    Of the key and both policies' mean log-probs, to float32, so that rounding, which batches decide, is left out.
    """
    for name in ("rollout_log_ppl", "training_log_ppl"):
        bits = (columns.sums[name] + 0.0).astype(np.float32).view(np.uint32)
        keys = join_keys(keys, bits.astype(np.uint64))
    return keys


def poisson_draws(keys: Keys, seed: int, device: Device = CPU) -> Array:
    """Poisson(1) counts, f64[B, REPLICATES] on a device; 16 bits of hash for each."""
    xp, words = device.xp, stream(REPLICATES // 4, seed << 32)
    rows, columns = (device.put(of.view(np.int64)) for of in (keys, words))
    # Places below 0 count from the end of the table: it has 2^16 numbers.
    places = mixed(rows[:, None] + columns[None, :]).view(xp.int16)
    return as_floats(device.put(_POISSON)[xp.astype(places, xp.int64)])


_PROBABILITIES = np.exp(-1.0) / np.cumprod(np.concatenate([[1.0], np.arange(1.0, 12.0)]))
_POISSON = np.searchsorted(np.cumsum(_PROBABILITIES), (np.arange(65536) + 0.5) / 65536).astype(np.uint8)
"""Poisson(1)'s inverse distribution function at the 65,536 bin middles."""
