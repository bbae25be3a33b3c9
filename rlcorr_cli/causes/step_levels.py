"""The k3_kl of each step's clusters in a sample of rows: what tells a shift of few steps from chance.

A cluster of a step, all rows of a prompt, has a k3_kl of its own.  The mean of the logarithms of these hardly moves for
a far token in one of them, and their spread says how well it is known.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcorr_cli.causes.rises import StepLevel
from rlcorr_cli.measure.bootstrap import cluster_keys, row_keys
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.totals.lists import first_of_each, offsets_of
from rlcorr_cli.totals.row_keys import Keys
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

STEP = "step"
"""The column of levels that a dump's steps are."""
LEAST_K3, MOST_LOG_RATIO = 5e-7, 500.0
"""A cluster's k3_kl below the first is rounding, and taken for it; larger log-ratios for the second, so that sums stay
finite."""


def sample_clusters(sample: RowSample) -> Keys:
    """The cluster of each row of a sample."""
    rollout, offsets = sample.scored.astype(np.float32), offsets_of(sample.n_valid)
    ids, prompts = (keys if keys.any() else None for keys in (sample.ids, sample.prompts))
    return cluster_keys(rollout, offsets, row_keys(rollout, offsets, ids), prompts, have_ids=ids is not None)


def step_levels(sample: RowSample | None, range_of: Mapping[Any, Any] | None = None) -> dict[Any, StepLevel]:
    """Each step's level, or that of each range of steps; without steps that of all rows, and empty without rows.
    range_of: step -> its range."""
    if sample is None or not sample.n_rows:
        return {}
    column = sample.levels.get(STEP) or ColumnOfKeys(codes=np.zeros(sample.n_rows, np.int64), values=(None,))
    names = column.values if range_of is None else [range_of.get(step) for step in column.values]
    column = ColumnOfKeys.of(column.codes, names).rows(np.arange(sample.n_rows))
    clusters, size = sample_clusters(sample), len(column.values)
    order = np.lexsort((clusters, column.codes))
    cells = np.union1d(first_of_each(clusters[order]), first_of_each(column.codes[order]))
    log_ratios = np.clip(sample.train.astype(np.float64) - sample.scored, -MOST_LOG_RATIO, MOST_LOG_RATIO)
    of_rows = np.add.reduceat(k3(log_ratios), offsets_of(sample.n_valid)[:-1])
    sums, tokens = (np.add.reduceat(of[order], cells) for of in (of_rows, sample.n_valid))
    steps, logs = column.codes[order][cells], np.log(np.maximum(sums / tokens, LEAST_K3))
    n = np.bincount(steps, minlength=size)
    means = np.bincount(steps, logs, size) / n
    squares = np.bincount(steps, (logs - means[steps]) ** 2, size)
    return {
        step: StepLevel(clusters=n, mean_log=mean, error=math.sqrt(of / (n * (n - 1))) if n > 1 else None)
        for step, n, mean, of in zip(column.values, n.tolist(), means.tolist(), squares.tolist(), strict=True)
    }
