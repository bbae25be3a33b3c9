"""Histograms as figures take them: counts between any edges."""

import numpy as np

from rlcorr_cli.totals.histogram import Floats, Histogram


def rebinned(histogram: Histogram, edges: Floats) -> Floats:
    """Counts between edges, f64[K]: a bucket's values are taken to lie evenly over it.  Their sum is exact."""
    if not len(histogram.buckets):
        return np.zeros(len(edges) - 1)
    near, far = histogram.binning.ends(histogram.buckets)
    low, high = np.minimum(near, far), np.maximum(near, far)
    counts = histogram.counts.astype(np.float64)
    width = np.maximum(high - low, 1e-300)
    total = np.zeros(len(edges))
    for i, edge in enumerate(edges):
        total[i] = (counts * np.clip((edge - low) / width, 0.0, 1.0)).sum()
    return np.diff(total)
