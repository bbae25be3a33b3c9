"""A batch's share in the pictures: its tokens in bins.  `totals/binned.py` says which bins and what is counted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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


def draw_groups(
    tokens: Tokens, group_of: NDArray[np.int64], values: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], BinnedTotals]:
    """The bins by surprise, position and length of each group's rows, by the group's values.

    group_of: each row's, i64[B]; groups of the same values are one.
    """
    places: dict[tuple[Any, ...], int] = {}
    present: list[int] = np.unique(group_of).tolist()
    place_of = {group: places.setdefault(values[group], len(places)) for group in present}
    ragged, n = tokens.ragged, len(places)
    rows = torch.tensor([place_of[group] for group in group_of.tolist()], device=tokens.log_ratio.device)
    moments, of_tokens = _moments(tokens.log_ratio), ragged.broadcast(rows)
    n_tokens = {"tokens": ragged.lengths, "kept_tokens": ragged.lengths}
    spread = {
        "surprise": _spreads(-tokens.rollout_logp, SURPRISE, moments, of_tokens, n),
        "position": _spreads(ragged.positions() + 1, POSITION, moments, of_tokens, n),
        "length": _spreads(ragged.lengths, LENGTH, _moments(tokens.log_ratio_sum) | n_tokens, rows, n),
    }
    return {key: BinnedTotals(spread={axis: spread[axis][place] for axis in spread}) for key, place in places.items()}


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
    (spread,) = _spreads(axis, binning, values, None, 1)
    return spread


def _spreads(
    axis: Tensor, binning: Octaves, values: dict[str, Tensor], group: Tensor | None, n_groups: int
) -> list[Binned[Octaves]]:
    """The same of each of some groups; group: which one each value is of, None of a single one."""
    at, n = _octave(axis, binning), n_groups * binning.n
    if group is not None:
        at += group * binning.n
    counts = bincount(at, n).reshape(n_groups, -1)
    sums = {name: _sums(at, n, column).reshape(n_groups, -1) for name, column in values.items()}
    return [
        Binned.of_table(binning, counts[i], {name: column[i] for name, column in sums.items()}) for i in range(n_groups)
    ]


def _sums(at: Tensor, n: int, values: Tensor) -> Floats:
    if at.device.type == "cpu":
        return np.bincount(at.numpy(), values.numpy(), minlength=n).astype(np.float64)
    return to_numpy(torch.bincount(at, values, minlength=n))


def _scatter(x: Tensor, y: Tensor, grid: Grid) -> Binned[Grid]:
    """Counts by square."""
    scale = grid.parts / (grid.high - grid.low)
    i, j = (((axis - grid.low) * scale).long().clamp_(0, grid.parts - 1) for axis in (x, y))
    return Binned.of_table(grid, bincount(i * grid.parts + j, grid.n))
