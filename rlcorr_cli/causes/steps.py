"""What the steps of a sample tell: how large the gap of each is, and what one that changes is made of.

A cluster of a step, all rows of a prompt, has a k3_kl of its own.  The mean of the logarithms of these hardly moves for
a far token in one of them, and their spread says how well it is known: that tells a shift of few steps from chance.

A gap changes by a larger error at equal tokens, or by other tokens.  These are told apart by their surprise under the
rollout and by their place in the row: unlikely tokens and late ones have a larger gap in every dump.  With p the
share of a step's tokens in a bin and m their mean l^2, the change of sum p m from a first step to a last one is the sum
over bins of (m2 - m1) (p1 + p2) / 2, the error, and of (p2 - p1) (m1 + m2) / 2, the mix (Oaxaca, Blinder).

Whether a metric rose over ordered steps, or fell (`shift`) is told by what the scatter of steps, or of clusters,
excludes.

Each way to part n steps into k and the m after them is looked at.  With d the mean of the last m logarithms less that
of the first k, and s the standard deviation about the better of two shapes, one level and then another (a jump) and one
level that is left along a line (a growth), d / (s sqrt(1/k + 1/m)) is Student's t with n - 3 degrees of freedom.  It
is made a normal deviate z (Wallace), of which the skewness of the residuals is taken (Wilson and Hilferty), so that a
few far tokens in one step of many are no rise.  s^2 is (1 + r) / (1 - r) times as large, r what chance does not explain
of the correlation of residuals from step to step, MOST_SERIAL at most, and s at least LEAST_SCATTER.  There is a shift
where the largest |z| reaches sqrt(2 log n + SURE): a chance of false alarms that goes like 1 / n, for `watch`
looks anew at each step.  tests/benchmarks/rises.py measures what comes of it.

The order of few steps is often chance, whatever their values.  So there are FEWEST_CHOICES ways to choose the steps of
each part, or the scatter of clusters has to exclude it, too: that of a `StepLevel`, which hardly moves for a far token
in one cluster, and in which a shift is sought as in the metric itself.  Where no part has so many ways, clusters
decide, with s / sqrt((1 + r) / (1 - r)) in the place of their scatter where that is larger, from FEWEST_RESIDUALS steps
on.  A shift holds in the last third of the m steps, too.  A growth has a flat stretch before it, of
FEWEST_FLAT steps or more, where that explains the logarithms better than one line over all, with an F ratio above BENT.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import StepChange
from rlcorr_cli.causes.gap import INDEX_EDGES, SURPRISE_EDGES
from rlcorr_cli.causes.gap_sums import logit
from rlcorr_cli.causes.numbers import once, ratios
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Segments
from rlcorr_cli.measure.bootstrap import cluster_keys, row_keys
from rlcorr_cli.measure.statistics import k3
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.records.fields import Number
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.flat import Floats, first_of_each, offsets_of, starts_of, unique_values
from rlcorr_cli.totals.row_keys import Keys
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

RISES = 2.0
"""A shift by such a factor is told, and a smaller one where its 95% interval on that side reaches so far."""
SURE, OWN, FEWEST_KNOWN = 9.0, 0.9, 40
"""SURE as above; what z of the metric itself counts for beside that of clusters, which scatter less; fewer steps than
the last are held to as much as these."""
LEAST_SCATTER, MOST_SERIAL, FEWEST_CHOICES, FEWEST_RESIDUALS = 0.05, 0.5, 10_000, 8
FEWEST_FLAT, BENT = 3, 12.0
FEWEST_ALONE = next(n for n in range(2, 99) if math.comb(n, n // 2) >= FEWEST_CHOICES)
"""Steps of which values alone, without clusters, can tell a shift from chance."""


@frozen(kw_only=True)
class StepLevel(Record):
    """Of a step, or a range of steps, the mean over its clusters of the logarithm of each one's k3_kl, and the standard
    error of that mean, null of a single cluster; of the rows in which the cause is sought."""

    clusters: int
    mean_log: float
    error: Number


Levels = Sequence[StepLevel | None]


@frozen(kw_only=True)
class Shift:
    """since: the place of the first step after it; of a growth from the first step on 0.  before: the median of the
    steps before it; of such a growth the first value.  after: the median from there on; of a growth the last value."""

    shape: Literal["jump", "growth"]
    since: int
    before: float
    after: float


@frozen(kw_only=True)
class _Scan:
    """By how many steps come before, f64[n-1]: z, d, its standard error, and the squares that a jump and a growth
    leave."""

    z: Floats
    differences: Floats
    errors: Floats
    jumps: Floats
    growths: Floats


def _scan(x: Floats, y: Floats, levels: Levels = ()) -> _Scan:
    """All ways to part logarithms y, f64[n], at places x from 0 to 1.  levels: what y is of, where that is of
    clusters."""
    n, y, last = len(y), y - y.mean(), x[:-1]
    before, after, squares = np.arange(1, n), np.arange(n - 1, 0, -1), float(y @ y)
    of_x, of_xx, of_y, of_xy = (np.cumsum(of[::-1])[-2::-1] for of in (x, x * x, y, x * y))  # sums of the steps after
    differences, roots = of_y / after + of_y / before, np.sqrt(1 / before + 1 / after)
    jumps = squares - (differences / roots) ** 2
    # The regression on max(0, x - the place of the last step before).
    variance = of_xx - 2 * last * of_x + after * last**2 - (of_x - after * last) ** 2 / n
    growths = squares - (of_xy - last * of_y) ** 2 / variance
    is_jump = jumps.min() <= growths.min()
    shape = np.arange(n) > jumps.argmin() if is_jump else np.maximum(0.0, x - x[growths.argmin()])
    shape = shape - shape.mean()
    left = y - (shape @ y) / (shape @ shape) * shape
    squares = max(float(left @ left), 1e-30)
    r = min(MOST_SERIAL, max(0.0, float(left[1:] @ left[:-1]) / squares - 1 / math.sqrt(n)))
    scatter = math.sqrt(max(squares / max(1, n - 3), LEAST_SCATTER**2) * (1 + r) / (1 - r))

    def normal(scatter: float, f: int) -> Floats:
        """The size of Student's t with f degrees of freedom as a normal deviate."""
        t = differences / (scatter * roots)
        return (8 * f + 1) / (8 * f + 3) * np.sqrt(f * np.log1p(t * t / f))

    side, skewness = np.sign(differences), float((left**3).mean()) / (squares / n) ** 1.5
    a = np.maximum(side * skewness * (1 / after**2 - 1 / before**2) / roots**3, 1e-6)
    z = 6 / a * (np.cbrt(1 + a * normal(scatter, max(1, n - 3)) / 2) - 1) + a / 6
    fewest = next((some for some in range(1, n // 2 + 1) if math.comb(n, some) >= FEWEST_CHOICES), n)
    known = [(of.error, of.clusters - 1) for of in levels if of is not None and of.error is not None]
    of_clusters = np.zeros(n - 1)
    if len(known) == n:
        error, freedom = math.sqrt(fmean(error**2 for error, _ in known)), sum(freedom for _, freedom in known)
        of_steps = math.sqrt(squares / (n - 3)) if n >= FEWEST_RESIDUALS else LEAST_SCATTER
        of_clusters = normal(max(error, of_steps, LEAST_SCATTER), freedom)
        of_clusters = np.minimum(of_clusters, z) if fewest < n else of_clusters
    z = side * np.where(np.minimum(before, after) < fewest, of_clusters, z)
    return _Scan(z=z, differences=differences, errors=scatter * roots, jumps=jumps, growths=growths)


def shift(places: Sequence[float], values: Sequence[float], levels: Levels = (), *, n_steps: int = 0) -> Shift | None:
    """The shift of a metric, of positive values, over steps at increasing places; None without one.  levels: of k3_kl,
    where they are known.  n_steps: of all that were looked at, where more were than these."""
    n, least = len(values), math.log(RISES)
    if n < 2:
        return None
    x, logs = np.array(places, np.float64), np.log(np.array(values, np.float64))
    x = (x - x[0]) / (x[-1] - x[0])
    own, means = _scan(x, logs), [level.mean_log for level in levels if level is not None]
    scans = [(OWN, own), *([(1.0, _scan(x, np.array(means), levels))] if len(means) == n else [])]
    weight, found = max(scans, key=lambda scan: scan[0] * np.abs(scan[1].z).max())
    at = int(np.abs(found.z).argmax())
    k, m, side = at + 1, n - at - 1, float(np.sign(found.z[at]))
    sizes = [(side * float(scan.differences[at]), float(scan.errors[at])) for scan in (own, found)]
    is_small = any(size < least / 2 or size + 1.64 * error < least for size, error in sizes)
    is_past = side * float(logs[-max(1, m // 3) :].mean() - logs[:k].mean()) < sizes[0][0] / 2
    if weight * abs(found.z[at]) < math.sqrt(2 * math.log(max(n, n_steps, FEWEST_KNOWN)) + SURE) or is_small or is_past:
        return None
    bend = int(found.growths.argmin())
    is_bent = (
        bend + 1 >= FEWEST_FLAT and (found.growths[0] - found.growths[bend]) * (n - 3) > BENT * found.growths[bend]
    )
    flat = bend + 1 if is_bent else 0
    before, after = float(np.median(values[: max(flat, 1)])), float(values[-1])
    if found.growths.min() < found.jumps.min() and side * math.log(after / before) > least:
        return Shift(shape="growth", since=flat, before=before, after=after)
    jump = int(found.jumps.argmin())
    k = jump + 1 if side * found.differences[jump] > 0 else k
    before, after = (float(np.median(part)) for part in (values[:k], values[k:]))
    return Shift(shape="jump", since=k, before=before, after=after)


STEP = "step"
"""The column of levels that a dump's steps are."""
LEAST_K3, MOST_LOG_RATIO = 5e-7, 500.0
"""A cluster's k3_kl below the first is rounding, and taken for it; larger log-ratios for the second, so that sums stay
finite."""


def sample_batch(sample: RowSample, column: ColumnOfKeys) -> Batch:
    """The rows of a sample as they are measured, in groups by a column of levels; all of its values have rows."""
    ids, prompts = (keys if keys.any() else None for keys in (sample.ids, sample.prompts))
    return Batch(
        offsets=offsets_of(sample.n_valid),
        rollout_logp=sample.rollout,
        old_logp=sample.train,
        current_logp=None,
        advantages=None,
        row_advantage=sample.advantages,
        n_masked=sample.n_tokens - sample.n_valid,
        reward=None,
        group_index=column.codes.astype(np.int32),
        group_keys=tuple((None, value) for value in column.values),
        row_keys=ids,
        cluster_keys=prompts,
        unscored=sample.unscored,
    )


def sample_clusters(sample: RowSample) -> Keys:
    """The cluster of each row of a sample."""
    rollout, rows = sample.scored, Segments(offsets_of(sample.n_valid))
    ids, prompts = (keys if keys.any() else None for keys in (sample.ids, sample.prompts))
    return cluster_keys(rollout, rows, row_keys(rollout, rows, ids), prompts, have_ids=ids is not None)


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
    ends = (first_of_each(clusters[order]), first_of_each(column.codes[order]))
    cells = unique_values(np.concatenate(ends))
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


@once
def shift_of_sample(sample: RowSample) -> Shift | None:
    """The shift of the logarithms of its clusters' k3_kl along a sample's steps, which are numbers."""
    of_steps = step_levels(sample)
    levels = [of_steps[step] for step in sorted(of_steps)]
    return shift(sorted(of_steps), [math.exp(level.mean_log) for level in levels], levels)


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
    found = shift_of_sample(sample)
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
