"""When a metric that rises will break its limit: said of a rise that goes on, with a range that holds.

The latter half of the steps since the rise began is taken, in BLOCKS blocks of equal size where there are more steps:
their means scatter as the rise does, whether noise, stairs or waves make it.  Through these go two lines, one of log v,
which doubles again and again, and one of v, which adds the same every step, by least squares of relative errors.  With
b a line's slope and e what it leaves to the limit, the limit is passed in e / b steps, at the earliest in
(e - u s_e) / (b + u s_b), at the latest in (e + u s_e) / (b - u s_b): s are the standard errors, as much larger as the
correlation of neighbouring residuals takes, u the 95% quantile of Student's t.  Where the logarithm of the likelihood
of one line is CLEARLY above the other's, that line alone counts, else the range is from the first of both to the last.

Nothing is said where that slope is not surely above 0, where the last half of these blocks rises less than SLOWING
of the line, as what levels off, of what lies FARTHEST times as far ahead as the rise has lasted, and where the latest
is WIDEST times the soonest.  tests/benchmarks/forecast.py measures how often the range holds, and how often one is said
of runs that never pass the limit.
"""

import math
from collections.abc import Sequence

import numpy as np

from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.interval import t_quantile
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.flat import Floats

FEWEST, BLOCKS = 6, 16
CLEARLY, SLOWING, SLOWEST, FARTHEST, WIDEST = 2.5, 0.25, 5, 2, 40
LEAST_SCATTER, MOST_SERIAL, SURE = 0.05, 0.9, 0.95


@frozen(kw_only=True)
class Forecast(Record):
    """When a metric passes its limit, if it rises on as it does.

    limit: the rule's.  steps: how far beyond the last step, as steps are numbered; soonest, latest: their range.
    """

    limit: float
    steps: float
    soonest: float
    latest: float

    @property
    def sentence(self) -> str:
        """'At this rate it passes its limit of 0.1 in about 3 steps (2 to 5).'"""
        least, most = max(1, math.floor(self.soonest)), max(1, math.ceil(self.latest))
        steps = plural(min(max(round(self.steps), least), most), "step")
        reach = "" if least == most else f" ({least:,} to {most:,})"
        return f"At this rate it passes its limit of {self.limit:g} in about {steps}{reach}."


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
    slope, end, reach, squares, fit = _least_squares(t, y, w, last)
    for _ in range(0 if of_logs else 2):  # errors are relative to the line
        w = np.maximum(fit, v.min() / 4) ** -2.0
        slope, end, reach, squares, fit = _least_squares(t, y, w, last)
    left = y - fit if of_logs else np.log(v / np.maximum(fit, v.min() / 4))
    left = left - left.mean()
    sum_sq, m = max(float(left @ left), 1e-30), len(t)
    r = min(MOST_SERIAL, max(0.0, float(left[1:] @ left[:-1]) / sum_sq - 1 / math.sqrt(m)))
    serial = (1 + r) / (1 - r)
    scatter = math.sqrt(max(sum_sq / (m - 2), least**2) * serial)
    errors = scatter / math.sqrt(squares), scatter * reach
    return _Line(slope=slope, slope_error=errors[0], end=end, end_error=errors[1], left=left, serial=serial)


def _least_squares(t: Floats, y: Floats, w: Floats, last: float) -> tuple[float, float, float, float, Floats]:
    """By weights w: the slope, the value at the last step and its standard error for a scatter of 1, the weighted sum
    of squares of t, and the line, f64[m]."""
    total = float(w.sum())
    centre = float(w @ t) / total
    x = t - centre
    squares, mean = float(w @ (x * x)), float(w @ y) / total
    slope, beyond = float(w @ (x * y)) / squares, last - centre
    return slope, mean + slope * beyond, math.sqrt(1 / total + beyond**2 / squares), squares, mean + slope * x


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
    half = max(4, m // 2)
    of_half = _line(t[-half:], v[-half:], last=last, of_logs=True, least=least)
    rise = math.log(max(amounts.end, 1e-300) / max(amounts.end - amounts.slope * (last - t[-half]), v.min() / 4))
    if of_half.slope * (last - t[-half]) < SLOWING * rise:
        return None
    clear = m / 2 * math.log(float(amounts.left @ amounts.left) / float(logs.left @ logs.left)) / logs.serial
    ends = [logs.steps_to(log_limit, u)] if clear > -CLEARLY else []
    ends += [amounts.steps_to(limit, u)] if clear < CLEARLY else []
    steps, soonest, latest = ends[0][0], min(each[1] for each in ends), max(each[2] for each in ends)
    if soonest > FARTHEST * (last - places[0]) or latest > WIDEST * max(soonest, 1.0):
        return None
    return Forecast(limit=limit, steps=steps, soonest=max(0.0, soonest), latest=latest)
