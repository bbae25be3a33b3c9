"""What the steps of a sample tell: how large the gap of each is, and what one that changes is made of.

A cluster of a step, all rows of a prompt, has a k3_kl of its own.  The mean of the logarithms of these hardly moves for
a far token in one of them, and their spread says how well it is known: that tells a shift of few steps from chance.

A gap changes by a larger error at equal tokens, or by other tokens.  These are told apart by their surprise under the
rollout and by their place in the row: more surprised tokens and later ones have a larger gap in every dump.  With p the
share of a step's tokens in a bin and m their mean l^2, the change of sum p m from a first step to a last one is the sum
over bins of (m2 - m1) (p1 + p2) / 2, the error, and of (p2 - p1) (m1 + m2) / 2, the mix (Oaxaca, Blinder).
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import StepChange
from rlcorr_cli.causes.gap import INDEX_EDGES, SURPRISE_EDGES
from rlcorr_cli.causes.gap_rows import logit
from rlcorr_cli.causes.numbers import ratios
from rlcorr_cli.causes.rises import StepLevel, shift
from rlcorr_cli.measure.bootstrap import cluster_keys, row_keys
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.lists import first_of_each, offsets_of, starts_of
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


MIN_TOKENS = 1000
"""Of the first steps, and of the last ones: as many steps as it takes for so many tokens."""
MIN_CHANGE = 1.5
"""A mean l^2 that changes by less than this factor is not split."""
N_SURPRISE, N_PLACES = len(SURPRISE_EDGES) + 1, len(INDEX_EDGES) + 1


def between_steps(sample: RowSample) -> StepChange | None:
    """From the first steps of a sample to the last ones; None without such a change, or with too few tokens."""
    step = sample.levels.get(STEP)
    if step is None or not all(isinstance(value, (int, float)) and math.isfinite(value) for value in step.values):
        return None
    order = np.argsort(np.array(step.values, np.float64))
    tokens = np.bincount(step.codes, sample.n_valid, len(order))[order]
    n_first, n_last = (int(np.searchsorted(np.cumsum(each), MIN_TOKENS)) + 1 for each in (tokens, tokens[::-1]))
    if n_first + n_last > len(order):
        return None
    ends = order[:n_first], order[len(order) - n_last :]
    (n1, q1), (n2, q2) = (_binned(sample, np.isin(step.codes, codes)) for codes in ends)
    first, last = q1.sum() / n1.sum(), q2.sum() / n2.sum()
    if not min(first, last) > 0 or max(first, last) < MIN_CHANGE * min(first, last):
        return None
    of_steps = step_levels(sample)
    levels = [of_steps[value] for value in sorted(of_steps)]
    found = shift(sorted(of_steps), [math.exp(level.mean_log) for level in levels], levels)
    mix, of_surprise = _mix(n1, q1, n2, q2), _mix(*(each.sum(axis=1) for each in (n1, q1, n2, q2)))
    return StepChange(
        first=step.values[ends[0][0]],
        last=step.values[ends[1][-1]],
        mean_before=float(first),
        mean_after=float(last),
        error=float(1 - mix / (last - first)),
        surprise=float(of_surprise / (last - first)),
        length=float((mix - of_surprise) / (last - first)),
        established=found is not None and (found.after > found.before) == bool(last > first),
    )


def _mix(n1: Floats, q1: Floats, n2: Floats, q2: Floats) -> float:
    """What other shares of the bins change; a bin that only one step has is as large in the other."""
    m1, m2 = ratios(q1, n1), ratios(q2, n2)
    m1, m2 = np.where(n1 > 0, m1, m2), np.where(n2 > 0, m2, m1)
    return float(((n2 / n2.sum() - n1 / n1.sum()) * (m1 + m2) / 2).sum())


def _binned(sample: RowSample, of: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Tokens and sums of l^2 of some rows, by surprise and by place: f64[N_SURPRISE, N_PLACES] each."""
    rows = sample.rows(np.flatnonzero(of))
    b, a = rows.rollout.astype(np.float64), rows.train.astype(np.float64)
    surprise = np.digitize(logit(b), SURPRISE_EDGES)
    place = np.arange(len(b)) - np.repeat(starts_of(rows.n_valid), rows.n_valid)
    at = surprise * N_PLACES + np.digitize(np.arange(place.max(initial=0) + 1), INDEX_EDGES)[place]
    size, shape = N_SURPRISE * N_PLACES, (N_SURPRISE, N_PLACES)
    squares = (a - b) ** 2 if rows.unscored is None else np.where(rows.unscored, 0.0, (a - b) ** 2)
    counts, sums = np.bincount(at, minlength=size), np.bincount(at, squares, size)
    return counts.reshape(shape).astype(np.float64), sums.reshape(shape).astype(np.float64)
