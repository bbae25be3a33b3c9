"""What pictures of a diagnosis draw of its totals: curves over surprise, distributions, sizes by place."""

from dataclasses import dataclass

import numpy as np

from rlcorr_cli.causes.numbers import line_of, ratio, typical
from rlcorr_cli.totals.gap import (
    CERTAIN_LEAST,
    CERTAIN_STEP,
    FIELDS,
    INDEX_EDGES,
    LINE_SUMS,
    LINES,
    N_CERTAIN,
    N_SURPRISE,
    PARTS,
    PLACE_SUMS,
    SIZE_LEAST,
    SIZE_STEP,
    SIZE_SUMS,
    SPREAD_FACTOR,
    SPREAD_LEAST,
    SPREAD_STEPS,
    SURPRISE_EDGES,
    GapTotals,
)
from rlcorr_cli.totals.histogram import Floats

FEWEST = 15
"""Tokens in a bin below which nothing is drawn of it."""
FEWEST_OF_INDEX = 40
MIDDLE = (0.1587, 0.8413)
"""Ends of the middle 68 %."""
_SIDE: Floats = SPREAD_LEAST * np.power(SPREAD_FACTOR, np.arange(SPREAD_STEPS + 1), dtype=np.float64)
SPREAD_EDGES: Floats = np.concatenate([-_SIDE[::-1], _SIDE])
"""Edges of the bins of d."""
INSIDE = range(len(SURPRISE_EDGES) - 1)
"""Bins of u that lie between edges."""
AT_ONCE = 10
"""Neighbouring bins of ln(-a) that are drawn as one."""


@dataclass(frozen=True)
class Curve:
    """Over the bins of u with FEWEST tokens: mean u and d, and the ends of the middle 68 % of d."""

    u: Floats
    d: Floats
    low: Floats
    high: Floats


def curve(totals: GapTotals, part: str = "body") -> Curve:
    """The difference in log-odds by surprise."""
    sums, spread = totals.sums(part), totals.spread[FIELDS.index(part)]
    bins = [k for k in INSIDE if sums["n_inside"][k] >= FEWEST and spread[k].sum() >= FEWEST]
    n = sums["n_inside"][bins]
    ends = np.array([[quantile(spread[k], q) for q in MIDDLE] for k in bins]).reshape(-1, 2)
    return Curve(sums["u"][bins] / n, sums["d"][bins] / n, ends[:, 0], ends[:, 1])


def quantile(counts: Floats, q: float) -> float:
    """Of d by its bins, over which tokens are taken to lie evenly."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    return float(np.interp(q * below[-1], below, SPREAD_EDGES))


def line(totals: GapTotals) -> tuple[float, float]:
    """Slope and intercept of d on u over the body's inside tokens."""
    groups = totals.lines[FIELDS.index("body"), :, LINES.index("u")]
    sums = dict(zip(LINE_SUMS, groups.sum(axis=0).tolist(), strict=True))
    slope = line_of(groups).slope
    return slope, ratio(sums["d"] - slope * sums["x"], sums["n"])


def spread(totals: GapTotals, low: float, high: float, part: str = "body") -> Floats:
    """Counts of d by its bins, of tokens whose bin of u lies between two values."""
    bins = [k for k in INSIDE if low <= SURPRISE_EDGES[k] and SURPRISE_EDGES[k + 1] <= high]
    return totals.spread[FIELDS.index(part)][bins].sum(axis=0)


def rebinned(counts: Floats, edges: Floats) -> Floats:
    """Counts of d between other edges, those beyond the outermost left out."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    return np.diff(np.interp(edges, SPREAD_EDGES, below))


def far_by_part(totals: GapTotals) -> dict[str, tuple[int, int]]:
    """Part -> its tokens that are off by a factor of 2 or more, and all; parts without a token are left out."""
    columns = dict(zip(PLACE_SUMS, totals.places.T, strict=True))
    return {part: (int(columns["n_far"][k]), int(columns["n"][k])) for k, part in enumerate(PARTS) if columns["n"][k]}


def sizes_by_index(totals: GapTotals) -> tuple[Floats, Floats]:
    """The middle of each stretch of places in the response, and the typical |r| there."""
    columns = dict(zip(PLACE_SUMS, totals.indexes.T, strict=True))
    ends = np.array([*INDEX_EDGES[1:], 2 * INDEX_EDGES[-1]])
    middle = (np.array(INDEX_EDGES) + ends - 1) / 2
    kept = columns["n_graded"] >= FEWEST_OF_INDEX
    return middle[kept], np.array([typical(x) for x in columns["x"][kept] / columns["n_graded"][kept]])


def rows_by_size(totals: GapTotals) -> tuple[Floats, Floats]:
    """Rows by their typical |r|: edges and counts, without empty bins at the ends."""
    rows = totals.sizes[:, SIZE_SUMS.index("rows")]
    filled = np.flatnonzero(rows)
    if not len(filled):
        return np.zeros(0), np.zeros(0)
    first, last = int(filled[0]), int(filled[-1])
    edges = np.array([typical(SIZE_LEAST + SIZE_STEP * k) for k in range(first, last + 2)])
    return edges, rows[first : last + 1]


def certain(totals: GapTotals) -> tuple[Floats, Floats, Floats]:
    """Edges of -a in nats, and the counts of tokens with b = 0 and of those with b < 0; surer ones are left out."""
    starts = np.arange(AT_ONCE, N_CERTAIN, AT_ONCE)
    zero, unsure = (np.add.reduceat(row, starts) for row in totals.certain)
    edges = np.exp(CERTAIN_LEAST + CERTAIN_STEP * np.append(starts, N_CERTAIN))
    filled = np.flatnonzero(zero + unsure)
    if not len(filled):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    first, last = int(filled[0]), int(filled[-1])
    return edges[first : last + 2], zero[first : last + 1], unsure[first : last + 1]


def against_bound(totals: GapTotals, p: float) -> tuple[int, int, int, int]:
    """Tokens with a above log p and below it: those with b = 0 above and below, then those with b < 0 above and below.

    The first bin of ln(-a), of tokens that training is sure of, is left out.
    """
    # A bin counts by its middle, so the bound is true to half a bin.
    middle = np.exp(CERTAIN_LEAST + CERTAIN_STEP * (np.arange(N_CERTAIN) + 0.5))
    above = middle < -np.log(p)
    above_counts = totals.certain[:, 1:][:, above[1:]].sum(axis=1)
    below_counts = totals.certain[:, 1:][:, ~above[1:]].sum(axis=1)
    return int(above_counts[0]), int(below_counts[0]), int(above_counts[1]), int(below_counts[1])


def repeats(totals: GapTotals) -> tuple[Floats, Floats, Floats]:
    """The middle of each bin of u, and the mean d of tokens met first and of tokens met again in their row."""
    assert totals.vocabulary is not None
    n, d = totals.vocabulary.repeats[:, :, 0], totals.vocabulary.repeats[:, :, 1]
    bins = [k for k in range(N_SURPRISE) if k in INSIDE and n[k].min() >= FEWEST]
    middle = np.array([(SURPRISE_EDGES[k] + SURPRISE_EDGES[k + 1]) / 2 for k in bins])
    return middle, d[bins, 0] / n[bins, 0], d[bins, 1] / n[bins, 1]
