"""A batch's share in the pictures: its tokens in bins.  `totals/bins.py` says which bins and what is counted.

Bins are counted on the host, whatever the arithmetic ran on.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.measure.arrays import BLOCK_TOKENS, Segments, bin_counts, bin_sums, product
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.reading.batch import Decision
from rlcorr_cli.totals.bins import (
    GRIDS,
    LENGTH,
    MOMENTS,
    POSITION,
    SURPRISE,
    Binned,
    BinnedTotals,
    Grid,
    Histogram,
    Octaves,
)
from rlcorr_cli.totals.flat import Floats, ranges


def draw(tokens: Tokens, decision: Decision) -> BinnedTotals:
    """The pictures of a batch's tokens, which are on the host, under what a plan decides about them."""
    rows, log_ratio, keep = tokens.rows, tokens.log_ratio, decision.keep
    weights = np.ones(len(keep)) if decision.weights is None else decision.weights
    kept = np.where(keep, weights, 0.0)
    counts, surprise = _by_log_probs(tokens)
    n_tokens = {"tokens": rows.sizes, "kept_tokens": rows.count(keep)}
    of_all = Histogram.counting([weights])
    gradient = Histogram.empty()
    if tokens.advantages is not None:
        gradient = Histogram.counting([rows.sum(product(kept, abs(tokens.advantages)))])
    return BinnedTotals(
        counts=counts,
        spread={
            "surprise": surprise,
            "position": _by_position(rows, _moments(log_ratio)),
            "length": _spread(rows.sizes, LENGTH, _moments(tokens.log_ratio_sum) | n_tokens),
        },
        histograms={
            "weights": of_all,
            "loads": Histogram.counting([rows.sum(kept)]),
            "kept_weights": of_all if keep.all() else Histogram.counting([weights[keep]]),
            "gradient": gradient,
        },
    )


def _by_log_probs(tokens: Tokens) -> tuple[dict[str, Binned[Grid]], Binned[Octaves]]:
    """The scatters, and the spread by surprise; counted a piece at a time, which a processor's caches hold."""
    tables: dict[str, NDArray[Any]] = {}
    for start in range(0, tokens.rows.n_values, BLOCK_TOKENS):
        piece = slice(start, start + BLOCK_TOKENS)
        rollout, log_ratio = tokens.rollout_logp[piece], tokens.log_ratio[piece]
        train, at = rollout + log_ratio, _octave(-rollout, SURPRISE)
        of_piece = {
            "probability": _squares(np.exp(rollout), np.exp(train), GRIDS["probability"]),
            "log_probability": _squares(rollout, train, GRIDS["log_probability"]),
            "surprise": bin_counts(at, SURPRISE.n),
            **{name: bin_sums(at, SURPRISE.n, column) for name, column in _moments(log_ratio).items()},
        }
        tables = {name: tables.get(name, 0) + column for name, column in of_piece.items()}
    scatters = {name: Binned.of_table(grid, tables[name]) for name, grid in GRIDS.items()}
    return scatters, Binned.of_table(SURPRISE, tables["surprise"], {name: tables[name] for name in MOMENTS})


def _squares(x: Floats, y: Floats, grid: Grid) -> NDArray[np.int64]:
    """Counts by square, [n]."""
    scale = grid.parts / (grid.high - grid.low)
    i, j = (((axis - grid.low) * scale).astype(np.int64).clip(0, grid.parts - 1) for axis in (x, y))
    return bin_counts(i * grid.parts + j, grid.n)


def _by_position(rows: Segments, values: dict[str, Floats]) -> Binned[Octaves]:
    """Counts and the values' sums by position.

    The tokens of one bin stand together in each sequence: these stretches are added up as sequences are.
    """
    # The bins that hold a whole position, and the index of the first token in each; positions are from 1 on.
    edges = np.ceil(POSITION.edges).astype(np.int64)
    bins = np.flatnonzero(edges[1:] > edges[:-1])
    firsts = edges[bins] - 1
    n_bins = np.searchsorted(firsts, rows.lengths)
    nth = ranges(np.zeros_like(n_bins), n_bins)
    starts = np.repeat(rows.offsets[:-1], n_bins) + firsts[nth]
    of_bins = Segments(np.append(starts, rows.offsets[-1]))

    def by_bin(of_stretches: Floats) -> NDArray[Any]:
        return np.bincount(bins[nth], of_stretches, minlength=POSITION.n)

    sums = {name: by_bin(of_bins.sum(column)) for name, column in values.items()}
    return Binned.of_table(POSITION, by_bin(of_bins.sizes).astype(np.int64), sums)


def _octave(values: Floats, bins: Octaves) -> NDArray[np.int64]:
    """Which bin each value falls into."""
    bits = values.astype(np.float32).clip(min=2.0**bins.first).view(np.int32).astype(np.int64)
    return ((bits >> bins.shift) - bins.origin).clip(0, bins.n - 1)


def _moments(values: Floats) -> dict[str, Floats]:
    """What is to be summed of a quantity for its mean and spread."""
    return {"sum": values, "sum_of_squares": values * values}


def _spread(axis: Floats, binning: Octaves, values: dict[str, Floats]) -> Binned[Octaves]:
    """Counts and the values' sums by bin of the axis."""
    at = _octave(axis, binning)
    sums = {name: bin_sums(at, binning.n, column) for name, column in values.items()}
    return Binned.of_table(binning, bin_counts(at, binning.n), sums)
