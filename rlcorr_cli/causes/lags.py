"""What a lag does to the rows of a sample, told apart from what the steps do.

The lag of a row is how many updates lie between the weights that sampled it and those of its step; where versions are
told token by token, each part of a row that one version sampled counts as a row (`by_lag`).  Of many lags, the larger
ones stand together in ranges.  Rows of one lag are added up as `analyze` adds up a group, and their prompts drawn anew
for intervals (`lag_totals`).

Over a run the gap may grow, and the lag with it.  So what a lag adds is told within steps (`within_steps`): with K the
sum of k3 and n the tokens of a step s at a lag l,

    K / n = a_s + b_l,

by least squares with the tokens as weights; b of the base, the smallest lag, is 0.  A step with rows of one lag alone
says nothing, and lags are told apart only where steps join them.  The error of b is that of REPLICATES draws of the
prompts; b +- u errors is its interval, u the 97.5% quantile of Student's t with as many degrees of freedom as prompts
but one (metrics/interval.py).
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlcorr_cli.causes.steps import STEP, sample_batch
from rlcorr_cli.causes.where import LAG
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.bootstrap import REPLICATES, poisson_draws
from rlcorr_cli.measure.observe import Observation, Observed, observe
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS, t_quantile
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.comparison import uncorrected
from rlcorr_cli.totals.flat import Floats, Ints, first_of_each, starts_of, unique_values
from rlcorr_cli.totals.row_keys import Keys
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

MOST_LAGS = 12
"""Of more, those from RANGED_FROM on stand together in ranges, each twice as wide as the one before it."""
RANGED_FROM = 3
ROWS_AT_ONCE = 512
"""Rows whose draws are held at once."""
SURE = 0.9999
"""That a lag adds anything is said where chance would say it of one dump in ten thousand, were errors known exactly.
What steps change must not be given to a lag, and a lag that matters is far above it."""


@frozen(kw_only=True)
class AddedByLag(Record):
    """What the rows of a lag have more in k3_kl than those of the base in the same steps, nats; low, high: its 95%
    interval.  sure: whether that is no chance, all lags of the dump considered."""

    value: float
    low: float
    high: float
    sure: bool


@frozen(kw_only=True)
class WithinSteps:
    """What lags add, by the place of each, but of lags with fewer than FEWEST_CLUSTERS prompts; base: the place of the
    lag that they are compared with."""

    base: int
    added: Mapping[int, AddedByLag]


def by_lag(sample: RowSample) -> RowSample | None:
    """The rows of a sample whose lag is a number, with lags in order; None where these are not two lags at least."""
    step = sample.levels.get(STEP)
    if sample.versions is not None and step is not None and LAG not in sample.levels:
        sample = _by_version(sample, step)
    column = sample.levels.get(LAG)
    if column is None or not sample.n_rows:
        return None
    lags = column.numbers
    known = np.flatnonzero(np.isfinite(lags[column.codes]))
    sample, distinct = sample.rows(known), unique_values(lags[column.codes[known]])
    if len(distinct) < 2:
        return None
    first = {lag: _first_of_range(lag) if len(distinct) > MOST_LAGS else lag for lag in distinct.tolist()}
    members = {low: [lag for lag in first if first[lag] == low] for low in sorted(set(first.values()))}
    names = [_in_whole(some[0]) if len(some) == 1 else f"{some[0]:g} to {some[-1]:g}" for some in members.values()]
    place = {lag: i for i, some in enumerate(members.values()) for lag in some}
    codes = np.array([place[lag] for lag in lags[column.codes[known]].tolist()], np.int64)
    return replace(sample, levels={**sample.levels, LAG: ColumnOfKeys(codes=codes, values=tuple(names))})


def _first_of_range(lag: float) -> float:
    """Of 3 to 4, 5 to 8, 9 to 16 the first."""
    return lag if lag < RANGED_FROM else 2 ** math.ceil(math.log2(lag) - 1) + 1


def _in_whole(lag: float) -> int | float:
    """A whole number as int."""
    return int(lag) if lag.is_integer() else lag


def _by_version(sample: RowSample, step: ColumnOfKeys) -> RowSample:
    """Each part of a row that one version sampled as a row, with its lag; without parts of an unknown one."""
    assert sample.versions is not None
    valid = sample.is_valid
    starts, at_valid = starts_of(sample.n_tokens), np.flatnonzero(valid)
    row = np.repeat(np.arange(sample.n_rows), sample.n_tokens)
    versions, rows = sample.versions[at_valid], row[at_valid]
    is_first = np.append(True, (versions[1:] != versions[:-1]) | (rows[1:] != rows[:-1]))
    at, of_part, version = at_valid[is_first], rows[is_first], versions[is_first]
    at = np.where(np.append(True, of_part[1:] != of_part[:-1]), starts[of_part], at)
    steps = step.numbers[step.codes]
    lags = np.where(version >= 0, steps[of_part] - version, np.nan)
    distinct, codes = np.unique(lags, return_inverse=True)
    column = ColumnOfKeys(codes=codes.astype(np.int64), values=tuple(map(float, distinct)))
    return sample.parted(at, of_part, {LAG: column})


def lag_totals(sample: RowSample, plan: Plan) -> tuple[Observed, Plan]:
    """What `analyze` adds up of each lag, with replicates, and the plan that it is of: none where this one takes more
    than two policies and one batch.  sample: as of by_lag."""
    takes_more = plan.batched or plan.needs or plan.budgets
    plan = uncorrected("decoupled") if takes_more else replace(plan, mode="decoupled")
    has_advantages = bool(np.isfinite(sample.advantages).any())
    observation = Observation(plans=(plan,), seed=0, by_group=True, has_advantages=has_advantages)
    return observe(sample_batch(sample, sample.levels[LAG]), observation, CPU), plan


def within_steps(sample: RowSample, clusters: Keys) -> WithinSteps | None:
    """What lags add within steps; None where no step has rows of two lags.  sample: as of by_lag; clusters: of its
    rows."""
    lag, n_lags = sample.levels[LAG].codes, len(sample.levels[LAG].values)
    step = sample.levels[STEP].codes if STEP in sample.levels else np.zeros_like(lag)
    cells, cell = np.unique(step * n_lags + lag, return_inverse=True)
    of_lag, steps = cells % n_lags, np.unique(cells // n_lags, return_inverse=True)[1]
    tokens, tokens_of = np.bincount(cell, sample.n_valid), np.zeros((steps.max() + 1, n_lags))
    tokens_of[steps, of_lag] = tokens
    compared = _joined_lags(tokens_of)
    if len(compared) < 2:
        return None
    of_rows = np.add.reduceat(k3(sample.train.astype(np.float64) - sample.scored), starts_of(sample.n_valid))
    n, sums = (np.zeros((len(cells), REPLICATES + 1)) for _ in range(2))
    n[:, 0], sums[:, 0] = tokens, np.bincount(cell, of_rows)
    order = np.argsort(cell, kind="stable")
    for first in range(0, sample.n_rows, ROWS_AT_ONCE):
        some = order[first : first + ROWS_AT_ONCE]
        draws, starts = poisson_draws(clusters[some], 0), first_of_each(cell[some])
        for drawn, of in ((n, sample.n_valid), (sums, of_rows)):
            drawn[cell[some][starts], 1:] += np.add.reduceat(draws * of[some, None], starts)
    value, *fits = _fitted(n, sums, steps, of_lag, compared=compared)
    added: dict[int, AddedByLag] = {}
    for i, place in enumerate(compared[1:].tolist()):
        n_clusters = len(unique_values(clusters[lag == place]))
        error = float(np.nanstd([fit[i] for fit in fits]))
        if n_clusters < FEWEST_CLUSTERS or not math.isfinite(error):
            continue
        reach, far = (error * t_quantile(p, n_clusters) for p in (0.975, 1 - (1 - SURE) / 2 / (len(compared) - 1)))
        b = float(value[i])
        added[place] = AddedByLag(value=b, low=b - reach, high=b + reach, sure=abs(b) > far)
    return WithinSteps(base=int(compared[0]), added=added)


def _joined_lags(tokens: Floats) -> Ints:
    """The lags that steps join, of the most tokens, in order.  tokens: of each step at each lag, f64[S, L]."""
    joined = (tokens > 0).T.astype(np.float64) @ (tokens > 0)
    for _ in range(len(joined).bit_length()):  # twice as far each time
        joined = np.minimum(joined @ joined, 1.0)
    groups = [np.flatnonzero(row) for row in joined]
    return max(groups, key=lambda some: (len(some) > 1, tokens[:, some].sum()))


def _fitted(n: Floats, sums: Floats, steps: Ints, of_lag: Ints, *, compared: Ints) -> Floats:
    """b of the lags that are compared but the first: f64[1 + REPLICATES, L - 1]; NaN where a draw has none of a lag.

    n, sums: f64[C, 1 + REPLICATES] of the cells (steps, of_lag).  The a_s drop out of the normal equations: with N_s
    the tokens of a step and K_s its sum, sum_s (diag(n_s) - n_s n_s^T / N_s) b = sum_s (K_sl - n_sl K_s / N_s).
    """
    size, places = n.shape[1], {lag: i for i, lag in enumerate(compared.tolist())}
    matrix, right = np.zeros((size, len(compared), len(compared))), np.zeros((size, len(compared)))
    order = np.argsort(steps, kind="stable")
    for cells in np.split(order, np.flatnonzero(np.diff(steps[order])) + 1):
        kept = [(cell, places[lag]) for cell, lag in zip(cells, of_lag[cells].tolist(), strict=True) if lag in places]
        if len(kept) < 2:
            continue
        at, lags = np.array(kept).T
        of, k = n[at].T, sums[at].T
        total = np.maximum(of.sum(1, keepdims=True), 1.0)
        matrix[:, lags[:, None], lags] -= of[:, :, None] * of[:, None, :] / total[:, :, None]
        matrix[:, lags, lags] += of
        right[:, lags] += k - of * k.sum(1, keepdims=True) / total
    inner = matrix[:, 1:, 1:]
    known = np.einsum("rll->rl", inner) > 0
    solved = np.einsum("rij,rj->ri", np.linalg.pinv(inner, hermitian=True), right[:, 1:])
    return np.where(known, solved, np.nan)
