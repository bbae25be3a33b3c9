"""What a gap that changes from step to step is made of: a larger error at equal tokens, or other tokens.

Tokens are told apart by their surprise under the rollout and by their place in the row: more surprised tokens and
later ones have a larger gap in every dump.  With p the share of a step's tokens in a bin and m their mean l^2, the
change of sum p m from a first step to a last one is the sum over bins of (m2 - m1) (p1 + p2) / 2, the error, and of
(p2 - p1) (m1 + m2) / 2, the mix (Oaxaca, Blinder).
"""

from math import exp, isfinite

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import StepChange
from rlcorr_cli.causes.gap import INDEX_EDGES, SURPRISE_EDGES
from rlcorr_cli.causes.gap_rows import logit
from rlcorr_cli.causes.numbers import ratios
from rlcorr_cli.causes.rises import shift
from rlcorr_cli.causes.step_levels import STEP, step_levels
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.lists import starts_of
from rlcorr_cli.totals.row_sample import RowSample

MIN_TOKENS = 1000
"""Of the first steps, and of the last ones: as many steps as it takes for so many tokens."""
MIN_CHANGE = 1.5
"""A mean l^2 that changes by less than this factor is not split."""
N_SURPRISE, N_PLACES = len(SURPRISE_EDGES) + 1, len(INDEX_EDGES) + 1


def between_steps(sample: RowSample) -> StepChange | None:
    """From the first steps of a sample to the last ones; None without such a change, or with too few tokens."""
    step = sample.levels.get(STEP)
    if step is None or not all(isinstance(value, (int, float)) and isfinite(value) for value in step.values):
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
    found = shift(sorted(of_steps), [exp(level.mean_log) for level in levels], levels)
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
