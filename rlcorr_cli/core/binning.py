"""A batch's share in the pictures: its tokens in bins.  `pictures.py` says which bins and what is counted."""

import numpy as np
import torch
from torch import Tensor

from rlcorr_cli.core.correct import Corrected
from rlcorr_cli.core.histograms import bincount, histogram
from rlcorr_cli.core.ragged import to_numpy
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.totals.binned import DEEPEST, LENGTH, POSITION, SCATTER, SURPRISE, Octaves, Pictures
from rlcorr_cli.totals.histogram import Floats


def draw(tokens: Tokens, corrected: Corrected) -> Pictures:
    """The pictures of some tokens under a plan."""
    ragged, log_ratio = tokens.ragged, tokens.log_ratio
    train = tokens.rollout_logp + log_ratio
    position = ragged.positions() + 1
    keep = torch.ones_like(log_ratio) if corrected.keep is None else corrected.keep.double()
    weights = _weights(tokens, corrected)
    kept = to_numpy(ragged.sum(keep))
    size = torch.from_numpy(ragged.sizes).to(log_ratio.device)
    length = _octave(size, LENGTH)
    table = _moments(length, LENGTH, tokens.log_ratio_sum)
    tokens_by_length = [
        _sums(length, LENGTH.n, torch.from_numpy(one).to(length.device)) for one in (ragged.sizes, kept)
    ]
    return Pictures(
        counts={
            "probability": _scatter(tokens.rollout_prob, torch.exp(train), 0.0, 1.0),
            "log_probability": _scatter(tokens.rollout_logp, train, DEEPEST, 0.0),
        },
        spread={
            "surprise": _moments(_octave(-tokens.rollout_logp, SURPRISE), SURPRISE, log_ratio),
            "position": _moments(_octave(position, POSITION), POSITION, log_ratio),
            "length": np.concatenate([table, tokens_by_length]),
        },
        histograms={"weights": histogram(weights), "loads": histogram(ragged.sum(weights * keep))},
    )


def _weights(tokens: Tokens, corrected: Corrected) -> Tensor:
    """Of every token; 1 without a weighting."""
    one = corrected.weighted
    if one is None:
        return torch.ones_like(tokens.log_ratio)
    return one.applied if one.weighting.scope == "token" else tokens.ragged.broadcast(one.applied)


def _octave(values: Tensor, bins: Octaves) -> Tensor:
    """Which bin each value falls into, i64."""
    bits = values.float().clamp_min(2.0**bins.first).view(torch.int32).long()
    return ((bits >> bins.shift) - bins.origin).clamp_(0, bins.n - 1)


def _moments(at: Tensor, bins: Octaves, values: Tensor) -> Floats:
    """Counts, sums and sums of squares by bin, f64[3, n]."""
    counts = bincount(at, bins.n).astype(np.float64)
    return np.stack([counts, _sums(at, bins.n, values), _sums(at, bins.n, values.square())])


def _sums(at: Tensor, n: int, values: Tensor) -> Floats:
    if at.device.type == "cpu":
        return np.bincount(at.numpy(), values.numpy(), minlength=n).astype(np.float64)
    return to_numpy(torch.bincount(at, values, minlength=n))


def _scatter(x: Tensor, y: Tensor, low: float, high: float) -> "np.ndarray":
    """Counts i64[SCATTER, SCATTER]; what lies outside falls into the nearest bin."""
    scale = SCATTER / (high - low)
    i, j = (((one - low) * scale).long().clamp_(0, SCATTER - 1) for one in (x, y))
    return bincount(i * SCATTER + j, SCATTER * SCATTER).reshape(SCATTER, SCATTER)
