"""Features: the numbers that the rules of a diagnosis look at, of GapTotals."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from rlcorr_cli.quality.diagnosis.diagnosis import Interval
from rlcorr_cli.quality.diagnosis.lines import Line, line_of
from rlcorr_cli.quality.diagnosis.numbers import jackknife, ratio, ratios
from rlcorr_cli.quality.diagnosis.spread import Spread, spread_of
from rlcorr_cli.totals.gap import BODY, FIELDS, LINES, ODD, ROW_SUMS, TOKEN_SUMS, GapTotals
from rlcorr_cli.totals.histogram import Floats

MOST_ODD = 0.25
UNRELATED = 0.3
"""Above this share of odd rows whose log-odds still go together, these are no accident, and belong to the body.  Of
other causes a window of 64 tokens leaves the least correlation, .83; two responses have .03 to .22."""


@dataclass(frozen=True, kw_only=True)
class Lean:
    """How rows differ in the share of tokens with l > 0: tau (lean) with its z, and its correlation with the advantage,
    with that one's z; 0.0 where there is nothing to go by, and n = 0 rows with an advantage."""

    tau: float
    z_tau: float
    correlation: float
    z_correlation: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Features:
    """Of a dump's body.

    odd_correlation: of the log-odds in odd rows, and odd_belong: whether these rows are part of the body.
    gap, body_gap: sums of l^2, of all tokens and of the body.  e2: sum of e^2 over the body.  curve: the share of
    body_gap that any function of b explains, with its error.  forward, inverse: means of
    e^l - 1 and e^-l - 1, each with its error.  positive: share of tokens with l > 0.  lines: by LINES.
    """

    n_tokens: int
    n_body: int
    odd_belong: bool
    odd_correlation: float
    gap: float
    body_gap: float
    k3: float | None
    deviation: float | None
    e2: float
    curve: float
    curve_error: float
    spread: Spread | None
    forward: float
    forward_error: float
    inverse: float
    inverse_error: float
    positive: float
    lines: dict[str, Line]
    lean: Lean

    @property
    def core(self) -> float:
        """The typical spread of d; 0.0 where no bin has enough tokens."""
        return 0.0 if self.spread is None else self.spread.core

    @property
    def fan(self) -> float:
        """See Spread; 1.0 where it has none."""
        return 1.0 if self.spread is None else self.spread.fan

    @property
    def tail(self) -> float:
        """See Spread; 1.0 where it has none."""
        return 1.0 if self.spread is None else self.spread.tail

    def share(self, sum_squares: float) -> float:
        """A part of the gap, between 0 and 1."""
        return min(1.0, max(0.0, ratio(sum_squares, self.gap)))

    @property
    def curve_interval(self) -> Interval:
        """Of curve_share."""
        low, high = (self.share((self.curve + side * 2 * self.curve_error) * self.body_gap) for side in (-1, 1))
        return low, high

    @property
    def curve_share(self) -> float:
        """What the curve explains of the whole gap."""
        return self.share(self.curve * self.body_gap)


def features_of(totals: GapTotals) -> Features:
    """Of any totals, empty ones included."""
    odd_correlation = sqrt(line_of(totals.lines[FIELDS.index("odd")][:, LINES.index("u")]).match)
    odd_belong = totals.n_odd > MOST_ODD * totals.n_rows and odd_correlation >= UNRELATED
    chosen = [ODD, BODY] if odd_belong else [BODY]
    fields = [FIELDS.index("odd"), FIELDS.index("body")] if odd_belong else [FIELDS.index("body")]
    body = dict(zip(TOKEN_SUMS, totals.tokens[chosen].sum(axis=0).T, strict=True))
    every = {name: float(column.sum()) for name, column in totals.sums().items()}
    n, n_body = every["n"], float(body["n"].sum())
    means = _mean_groups(totals, fields)
    lines = totals.lines[fields].sum(axis=0)
    return Features(
        n_tokens=int(n),
        n_body=int(n_body),
        odd_belong=odd_belong,
        odd_correlation=odd_correlation,
        gap=every["l2"],
        body_gap=float(body["l2"].sum()),
        k3=every["k3"] / n if n else None,
        deviation=sqrt(max(0.0, every["l2"] / n - (every["l"] / n) ** 2)) if n else None,
        e2=float(body["e2"].sum()),
        curve=curve_of(body),
        curve_error=jackknife(_curve, totals.curves[fields].sum(axis=0)),
        spread=spread_of(totals.spread[fields].sum(axis=0)),
        forward=_mean(means[:, [0, 1]].sum(axis=0)),
        forward_error=jackknife(_mean, means[:, [0, 1]]),
        inverse=_mean(means[:, [0, 2]].sum(axis=0)),
        inverse_error=jackknife(_mean, means[:, [0, 2]]),
        positive=ratio(float(body["n_positive"].sum()), n_body),
        lines={name: line_of(lines[:, i], on_train=name[0] == "v") for i, name in enumerate(LINES)},
        lean=_lean(totals.rows),
    )


def curve_of(body: dict[str, Floats]) -> float:
    """Sum of n mu^2 - sigma^2 over bins of u with n > 1 (mean and variance of l), over the sum of l^2.

    A bin's n mu^2 is sigma^2 on average where its true mean is 0, which the difference takes away.
    """
    return _curve(np.stack([body[name] for name in ("n", "l", "l2")], axis=-1))


def _curve(bins: Floats) -> float:
    """Of f64[N_SURPRISE, 3], sums of 1, l and l^2."""
    n, sums, l2 = bins[bins[:, 0] > 1].T
    mean = ratios(sums, n)
    variance = np.maximum(0.0, l2 - n * mean**2) / np.maximum(n - 1, 1)
    return max(0.0, ratio(float((n * mean**2 - variance).sum()), float(bins[:, 2].sum())))


def _mean_groups(totals: GapTotals, fields: list[int]) -> Floats:
    """f64[GROUPS, 3]: n, and sums of e^l - 1 and of e^-l - 1."""
    counts = totals.curves[fields].sum(axis=(0, 2))[:, :1]
    return np.concatenate([counts, totals.moments[fields].sum(axis=0)], axis=1)


def _mean(sums: Floats) -> float:
    return ratio(float(sums[1]), float(sums[0]))


def _lean(sums: Floats) -> Lean:
    named = dict(zip(ROW_SUMS, map(float, sums), strict=True))
    rows, positive, differing = named["rows"], named["positive"], named["differing"]
    pi = ratio(positive, differing)
    # (P - pi V)^2 / V summed over rows: P^2 / V - 2 pi P + pi^2 V.
    spread = named["positive2_by_differing"] - 2 * pi * positive + pi * pi * differing
    chi = ratio(spread, pi * (1 - pi) * rows, 1.0)
    correlation = _advantage_correlation(named, pi)
    n = named["n"]
    return Lean(
        tau=sqrt(max(0.0, chi - 1) * ratio(rows, 4 * differing)),
        z_tau=(chi - 1) * sqrt(rows / 2),
        correlation=correlation,
        z_correlation=correlation * sqrt(max(0.0, n - 2) / max(1e-9, 1 - correlation**2)),
        n=int(n),
    )


def _advantage_correlation(named: dict[str, float], pi: float) -> float:
    """Of (P - pi V) / sqrt V = s - pi t with A, over rows with an advantage."""
    n = named["n"]
    if n < 3:
        return 0.0
    mean_w, mean_a = (named["s"] - pi * named["t"]) / n, named["a"] / n
    w2 = (named["s2"] - 2 * pi * named["st"] + pi * pi * named["t2"]) / n - mean_w**2
    a2 = named["a2"] / n - mean_a**2
    cov = (named["as"] - pi * named["at"]) / n - mean_w * mean_a
    if w2 <= 1e-12 or a2 <= 1e-12 * max(1.0, named["a2"] / n):
        return 0.0
    return max(-1.0, min(1.0, cov / sqrt(w2 * a2)))
