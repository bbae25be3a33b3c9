"""When a metric that rises will break its limit: said of a rise that goes on, with a range that holds.

The latter half of the steps since the rise began is taken, in BLOCKS blocks of equal size where there are more steps:
their means scatter as the rise does, whether noise, stairs or waves make it.  Through these go two lines, one of log v,
which doubles again and again, and one of v, which adds the same every step, by least squares of relative errors.  With
b a line's slope and e what it leaves to the limit, the limit is passed in e / b steps, at the earliest in
(e - u s_e) / (b + u s_b), at the latest in (e + u s_e) / (b - u s_b): s are the standard errors, as much larger as the
correlation of neighbouring residuals takes, u the 95% quantile of Student's t.  Where the logarithm of the likelihood
of one line is CLEARLY above the other's, that line alone counts, else the range is from the first of both to the last.

Nothing is said where the slope of the latter half is not surely above 0, or where its last third rises less than
SLOWING of the line: a rise that levels off.  tests/benchmarks/forecast.py measures how often the range holds, and how
often one is said of runs that never pass the limit.
"""

import math
from collections.abc import Sequence

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.records.fields import Number
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.flat import Floats

FEWEST, BLOCKS = 6, 16
CLEARLY, SLOWING, SLOWEST = 2.5, 0.4, 5
LEAST_SCATTER, MOST_SERIAL, SURE = 0.05, 0.9, 0.95


@frozen(kw_only=True)
class Forecast(Record):
    """When a metric passes its limit, if it rises on as it does.

    limit: the rule's.  steps: how many from the last one on; soonest, latest: the range of these.  doubling: steps in
    which it doubles, fastest, slowest: the range of these; null where it may as well rise by equal amounts.
    """

    limit: float
    steps: float
    soonest: float
    latest: float
    doubling: Number = None
    fastest: Number = None
    slowest: Number = None


@frozen(kw_only=True)
class _Line:
    """A line of the metric, or of its logarithms, by least squares of relative errors.

    slope and its standard error; end, its value at the last step, and that value's; left: what it leaves of the
    logarithms, of mean 0, f64[m]; serial: how many times as large the correlation of these makes a variance.
    """

    slope: float
    slope_error: float
    end: float
    end_error: float
    left: Floats
    serial: float

    def steps_to(self, limit: float, u: float) -> tuple[float, float, float]:
        """As it goes, at the earliest and at the latest, u errors away."""
        far, apart, slope, error = limit - self.end, u * self.end_error, self.slope, u * self.slope_error
        return far / slope, (far - apart) / (slope + error), (far + apart) / max(slope - error, slope / SLOWEST)


def _line(t: Floats, v: Floats, *, last: float, of_logs: bool, least: float) -> _Line:
    """t, v: places and values, f64[m].  last: the place of the last step.  least: of the relative errors' scatter."""
    y, w = (np.log(v), np.ones(len(v))) if of_logs else (v, v**-2.0)
    for _ in range(1 if of_logs else 3):
        centre = (w @ t) / w.sum()
        x = t - centre
        squares, mean = float(w @ (x * x)), float(w @ y) / float(w.sum())
        slope = float(w @ (x * y)) / squares
        fit = mean + slope * x
        w = w if of_logs else np.maximum(fit, v.min() / 4) ** -2.0
    left = y - fit if of_logs else np.log(v * np.sqrt(w))
    left = left - left.mean()
    sum_sq, m = max(float(left @ left), 1e-30), len(t)
    r = min(MOST_SERIAL, max(0.0, float(left[1:] @ left[:-1]) / sum_sq - 1 / math.sqrt(m)))
    serial = (1 + r) / (1 - r)
    scatter = math.sqrt(max(sum_sq / (m - 2), least**2) * serial)
    reach = math.sqrt(1 / float(w.sum()) + (last - centre) ** 2 / squares)
    return _Line(
        slope=slope,
        slope_error=scatter / math.sqrt(squares),
        end=mean + slope * (last - centre),
        end_error=scatter * reach,
        left=left,
        serial=serial,
    )


def forecast(places: Sequence[float], values: Sequence[float], limit: float) -> Forecast | None:
    """Of values above 0 at places since a rise began, when they pass a limit; None where that cannot be said."""
    if len(values) < FEWEST or min(values) <= 0:
        return None
    m = max(FEWEST, math.ceil(len(values) / 2))
    size = max(1, m // BLOCKS)
    m //= size
    t, v = (np.array(of[-m * size :], np.float64).reshape(m, size).mean(1) for of in (places, values))
    last, least = float(places[-1]), LEAST_SCATTER / math.sqrt(size)
    logs, amounts = (_line(t, v, last=last, of_logs=of_logs, least=least) for of_logs in (True, False))
    u = t_quantile(SURE, m) * math.sqrt((m - 1) / m)
    log_limit = math.log(limit)
    if logs.slope <= u * logs.slope_error or amounts.slope <= 0 or max(logs.end - log_limit, amounts.end - limit) >= 0:
        return None
    third = max(4, m // 3)
    of_third = _line(t[-third:], v[-third:], last=last, of_logs=True, least=least)
    rise = math.log(max(amounts.end, 1e-300) / max(amounts.end - amounts.slope * (last - t[-third]), v.min() / 4))
    if of_third.slope * (last - t[-third]) < SLOWING * rise:
        return None
    clear = m / 2 * math.log(float(amounts.left @ amounts.left) / float(logs.left @ logs.left)) / logs.serial
    found = [logs.steps_to(log_limit, u)] if clear > -CLEARLY else []
    found += [amounts.steps_to(limit, u)] if clear < CLEARLY else []
    doublings: list[Number] = [None, None, None]
    if clear >= CLEARLY:
        doublings = [math.log(2) / (logs.slope + errors * logs.slope_error) for errors in (0, u, -u)]
    doubling, fastest, slowest = doublings
    return Forecast(
        limit=limit,
        steps=found[0][0],
        soonest=max(0.0, min(soonest for _, soonest, _ in found)),
        latest=max(latest for *_, latest in found),
        doubling=doubling,
        fastest=fastest,
        slowest=slowest,
    )
