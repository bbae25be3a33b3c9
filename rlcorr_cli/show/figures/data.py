"""What figures draw of totals: counts between any edges, places of bins, curves with gaps."""

import numpy as np

from rlcorr_cli.totals.bins import Bins, Octaves
from rlcorr_cli.totals.histogram import Floats, Histogram

WIDEST_GAP = 3.0
"""Neighbours further apart than this factor are not joined by a line."""


def rebinned(histogram: Histogram, edges: Floats) -> Floats:
    """Counts between edges, whole numbers f64[K]: a bucket's values are taken to lie evenly over it.

    Their sum is exact: the counts below each edge are rounded, and the differences of these taken.
    """
    if not len(histogram.bins):
        return np.zeros(len(edges) - 1)
    near, far = histogram.binning.ends(histogram.bins)
    counts = histogram.counts.astype(np.float64)
    return np.diff(np.round(below(counts, np.minimum(near, far), np.maximum(near, far), edges)))


def below(counts: Floats, low: Floats, high: Floats, edges: Floats) -> Floats:
    """How many lie below each edge, of counts that lie evenly over bins from low to high."""
    width = np.maximum(high - low, 1e-300)
    return np.array([(counts * np.clip((edge - low) / width, 0.0, 1.0)).sum() for edge in edges])


def whole_centres(axis: Octaves, bins: Bins) -> Floats:
    """The mean of the whole numbers in each bin of an axis of places, which has at least one."""
    return (np.ceil(axis.edges[bins]) + np.ceil(axis.edges[bins + 1]) - 1) / 2


def unbroken(places: Floats, values: Floats) -> tuple[Floats, Floats]:
    """A curve over a logarithmic axis, in pieces (NaN between them) where bins without enough tokens lie between."""
    size = np.abs(places)
    apart = 1 + np.flatnonzero(np.maximum(size[1:], size[:-1]) > WIDEST_GAP * np.minimum(size[1:], size[:-1]))
    return np.insert(places, apart, np.nan), np.insert(values, apart, np.nan)
