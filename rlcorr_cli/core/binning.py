"""A batch's share in the pictures: its tokens in bins.  `totals/binned.py` says which bins and what is counted."""

import numpy as np
import torch
from torch import Tensor

from rlcorr_cli.core.correct import Corrected
from rlcorr_cli.core.histograms import bincount, histogram
from rlcorr_cli.core.ragged import to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.totals.binned import GRIDS, LENGTH, POSITION, SURPRISE, BinnedTotals
from rlcorr_cli.totals.bins import Binned, Grid, Octaves
from rlcorr_cli.totals.histogram import Floats, Histogram


def draw(tokens: Tokens, corrected: Corrected) -> BinnedTotals:
    """The pictures of some tokens under a plan."""
    ragged, log_ratio = tokens.ragged, tokens.log_ratio
    train = tokens.rollout_logp + log_ratio
    position = ragged.positions() + 1
    keep = torch.ones_like(log_ratio) if corrected.keep is None else corrected.keep.double()
    weights = _weights(tokens, corrected)
    n_tokens = {"tokens": ragged.lengths, "kept_tokens": ragged.sum(keep)}
    return BinnedTotals(
        counts={
            "probability": _scatter(tokens.rollout_prob, torch.exp(train), GRIDS["probability"]),
            "log_probability": _scatter(tokens.rollout_logp, train, GRIDS["log_probability"]),
        },
        spread={
            "surprise": _spread(-tokens.rollout_logp, SURPRISE, _moments(log_ratio)),
            "position": _spread(position, POSITION, _moments(log_ratio)),
            "length": _spread(ragged.lengths, LENGTH, _moments(tokens.log_ratio_sum) | n_tokens),
        },
        histograms=_histograms(tokens, corrected, weights, keep),
    )


def _histograms(tokens: Tokens, corrected: Corrected, weights: Tensor, keep: Tensor) -> dict[str, Histogram]:
    """Of the weights of tokens, all and kept, and of what a sequence's kept tokens weigh together."""
    kept, of_all = weights * keep, histogram(weights)
    advantages = tokens.advantages
    return {
        "weights": of_all,
        "loads": histogram(tokens.ragged.sum(kept)),
        "kept_weights": of_all if corrected.keep is None else histogram(weights[corrected.keep]),
        "gradient": Histogram.empty() if advantages is None else histogram(tokens.ragged.sum(kept * advantages.abs())),
    }


def _weights(tokens: Tokens, corrected: Corrected) -> Tensor:
    """Of every token; 1 without a weighting."""
    weighted = corrected.weighted
    if weighted is None:
        return torch.ones_like(tokens.log_ratio)
    return weighted.applied if weighted.weighting.scope == "token" else tokens.ragged.broadcast(weighted.applied)


def _octave(values: Tensor, bins: Octaves) -> Tensor:
    """Which bin each value falls into, i64."""
    bits = values.float().clamp_min(2.0**bins.first).view(torch.int32).long()
    return ((bits >> bins.shift) - bins.origin).clamp_(0, bins.n - 1)


def _moments(values: Tensor) -> dict[str, Tensor]:
    """What is to be summed of a quantity for its mean and spread."""
    return {"sum": values, "sum_of_squares": values.square()}


def _spread(axis: Tensor, binning: Octaves, values: dict[str, Tensor]) -> Binned[Octaves]:
    """Counts and the values' sums by bin of the axis."""
    at = _octave(axis, binning)
    sums = {name: _sums(at, binning.n, column) for name, column in values.items()}
    return Binned.of_table(binning, bincount(at, binning.n), sums)


def _sums(at: Tensor, n: int, values: Tensor) -> Floats:
    if at.device.type == "cpu":
        return np.bincount(at.numpy(), values.numpy(), minlength=n).astype(np.float64)
    return to_numpy(torch.bincount(at, values, minlength=n))


def _scatter(x: Tensor, y: Tensor, grid: Grid) -> Binned[Grid]:
    """Counts by square."""
    scale = grid.parts / (grid.high - grid.low)
    i, j = (((axis - grid.low) * scale).long().clamp_(0, grid.parts - 1) for axis in (x, y))
    return Binned.of_table(grid, bincount(i * grid.parts + j, grid.n))
