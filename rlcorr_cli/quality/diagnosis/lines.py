"""Straight lines of d on u or v, from sums."""

from dataclasses import dataclass, replace
from math import sqrt

from rlcorr_cli.quality.diagnosis.numbers import jackknife, ratio
from rlcorr_cli.totals.gap import LINE_SUMS
from rlcorr_cli.totals.histogram import Floats

N, X, D, X2, D2, XD = range(len(LINE_SUMS))


@dataclass(frozen=True, kw_only=True)
class Line:
    """slope of d on x, with its error; r2: its share of d's variance; match: corr(x, x +- d)^2, of the two log-odds."""

    slope: float
    error: float
    r2: float
    match: float
    n: int


NO_LINE = Line(slope=0.0, error=0.0, r2=0.0, match=0.0, n=0)


def line_of(groups: Floats, *, on_train: bool = False) -> Line:
    """Of f64[GROUPS, LINE_SUMS].  on_train: x is v, whose counterpart is u = v - d; else u, and v = u + d."""
    line = _line(groups.sum(axis=0), on_train=on_train)
    return replace(line, error=jackknife(_slope, groups)) if line.n else line


def line_of_tokens(sums: Floats) -> Line:
    """Of f64[LINE_SUMS] with x = u, which no groups of rows are kept of: the error is that of independent tokens."""
    line = _line(sums, on_train=False)
    var_x, var_d, _ = _moments(sums)
    return replace(line, error=sqrt(max(0.0, ratio(var_d * (1 - line.r2), var_x * line.n))))


def _line(sums: Floats, *, on_train: bool) -> Line:
    """All but the error."""
    if sums[N] < 3:
        return NO_LINE
    var_x, var_d, cov = _moments(sums)
    sign = -1 if on_train else 1
    # corr(x, y)^2 of y = x +- d, from x's and d's moments alone.
    cov_xy = var_x + sign * cov
    var_y = max(0.0, var_x + 2 * sign * cov + var_d)
    return Line(
        slope=ratio(cov, var_x),
        error=0.0,
        r2=min(1.0, ratio(cov * cov, var_x * var_d)),
        match=min(1.0, ratio(cov_xy * cov_xy, var_x * var_y)),
        n=int(sums[N]),
    )


def _slope(sums: Floats) -> float:
    var_x, _, cov = _moments(sums)
    return ratio(cov, var_x)


def _moments(sums: Floats) -> tuple[float, float, float]:
    n = max(float(sums[N]), 1.0)
    var_x = float(sums[X2]) / n - (float(sums[X]) / n) ** 2
    var_d = float(sums[D2]) / n - (float(sums[D]) / n) ** 2
    # What rounding leaves of equal values is no variance.
    if var_x <= 1e-12 * max(1.0, float(sums[X2]) / n):
        return 0.0, max(0.0, var_d), 0.0
    return var_x, max(0.0, var_d), float(sums[XD]) / n - float(sums[X]) * float(sums[D]) / n**2
