"""A batch's share in the pictures: its tokens in bins.  `totals/binned.py` says which bins and what is counted."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcorr_cli.core import elementwise
from rlcorr_cli.core.correct import Corrected
from rlcorr_cli.core.histograms import bincount, histogram
from rlcorr_cli.core.ragged import Ragged, stretches, to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.totals.binned import GRIDS, LENGTH, MOMENTS, POSITION, SURPRISE, BinnedTotals
from rlcorr_cli.totals.bins import Binned, Grid, Octaves
from rlcorr_cli.totals.histogram import Floats, Histogram

PIECE = 1 << 15
"""Tokens binned at once on a CPU: what is made of them stays in its cache, which takes half the time."""


def draw(tokens: Tokens, corrected: Corrected) -> BinnedTotals:
    """The pictures of some tokens under a plan."""
    ragged, log_ratio = tokens.ragged, tokens.log_ratio
    keep = torch.ones_like(log_ratio) if corrected.keep is None else corrected.keep.double()
    n_tokens = {"tokens": ragged.lengths, "kept_tokens": ragged.sum(keep)}
    counts, surprise = _by_log_probs(tokens)
    return BinnedTotals(
        counts=counts,
        spread={
            "surprise": surprise,
            "position": _by_position(ragged, _moments(log_ratio)),
            "length": _spread(ragged.lengths, LENGTH, _moments(tokens.log_ratio_sum) | n_tokens),
        },
        histograms=_histograms(tokens, corrected, _weights(tokens, corrected), keep),
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
        "surprise": _spreads(-tokens.rollout_logp, SURPRISE, moments, group=of_tokens, n_groups=n),
        "position": _spreads(ragged.positions() + 1, POSITION, moments, group=of_tokens, n_groups=n),
        "length": _spreads(ragged.lengths, LENGTH, _moments(tokens.log_ratio_sum) | n_tokens, group=rows, n_groups=n),
    }
    return {key: BinnedTotals(spread={axis: spread[axis][place] for axis in spread}) for key, place in places.items()}


def _by_log_probs(tokens: Tokens) -> tuple[dict[str, Binned[Grid]], Binned[Octaves]]:
    """The scatters, and the spread by surprise."""
    n = len(tokens.log_ratio)
    size = PIECE if tokens.ragged.on_cpu else n
    pieces = [_tables(tokens, slice(start, start + size)) for start in range(0, n, size)]
    table = {name: sum(piece[name] for piece in pieces[1:]) + pieces[0][name] for name in pieces[0]}
    scatters = {name: Binned.of_table(grid, table[name]) for name, grid in GRIDS.items()}
    return scatters, Binned.of_table(SURPRISE, table["surprise"], {name: table[name] for name in MOMENTS})


def _tables(tokens: Tokens, piece: slice) -> dict[str, NDArray[Any]]:
    """Counts by square of each grid and by surprise, and the log-ratio's sums by surprise."""
    rollout, log_ratio = tokens.rollout_logp[piece], tokens.log_ratio[piece]
    train = rollout + log_ratio
    at = _octave(-rollout, SURPRISE)
    return {
        "probability": _squares(elementwise.exp(rollout), elementwise.exp(train), GRIDS["probability"]),
        "log_probability": _squares(rollout, train, GRIDS["log_probability"]),
        "surprise": bincount(at, SURPRISE.n),
        **{name: _sums(at, SURPRISE.n, column) for name, column in _moments(log_ratio).items()},
    }


def _squares(x: Tensor, y: Tensor, grid: Grid) -> NDArray[np.int64]:
    """Counts by square, [n]."""
    scale = grid.parts / (grid.high - grid.low)
    i, j = (((axis - grid.low) * scale).long().clamp_(0, grid.parts - 1) for axis in (x, y))
    return bincount(i.mul_(grid.parts).add_(j), grid.n)


def _by_position(ragged: Ragged, values: dict[str, Tensor]) -> Binned[Octaves]:
    """Counts and the values' sums by position.

    The tokens of one bin stand together in each sequence: these stretches are added up as sequences are.
    """
    bins, firsts = _position_bins()
    n_bins = np.searchsorted(firsts, np.diff(ragged.offsets))
    nth = stretches(np.zeros_like(n_bins), n_bins)
    starts = np.repeat(ragged.offsets[:-1], n_bins) + firsts[nth]
    of_bins = Ragged(np.append(starts, ragged.offsets[-1]), ragged.device)

    def by_bin(of_stretches: Floats) -> NDArray[Any]:
        return np.bincount(bins[nth], of_stretches, minlength=POSITION.n)

    sums = {name: by_bin(to_numpy(of_bins.sum(column))) for name, column in values.items()}
    return Binned.of_table(POSITION, by_bin(of_bins.sizes).astype(np.int64), sums)


@cache
def _position_bins() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bins that hold a whole position, and the index of the first token in each; positions are from 1 on."""
    firsts = np.ceil(POSITION.edges).astype(np.int64)
    bins = np.flatnonzero(firsts[1:] > firsts[:-1])
    return bins, firsts[bins] - 1


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
    (spread,) = _spreads(axis, binning, values, group=None, n_groups=1)
    return spread


def _spreads(
    axis: Tensor, binning: Octaves, values: dict[str, Tensor], *, group: Tensor | None, n_groups: int
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
    return to_numpy(torch.bincount(at, values, minlength=n).double())
