"""Values to bucket counts, on whatever device they are."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcorr_cli.totals.bins import FLOAT_BITS
from rlcorr_cli.totals.histogram import Histogram


def histogram(values: Tensor) -> Histogram:
    """Counts of some values."""
    return Histogram.of_counts(bincount(buckets(values), 1 << 16))


def buckets(values: Tensor) -> Tensor:
    """The top 16 bits of each value as float32."""
    if values.device.type == "cpu":
        return torch.from_numpy(FLOAT_BITS.bins_of(values.numpy()))
    return (values.float().view(torch.int32).long() >> 16) & 0xFFFF


def bincount(at: Tensor, n: int) -> NDArray[np.int64]:
    """How many of each of 0 .. n - 1."""
    if at.device.type == "cpu":
        return np.bincount(at.numpy(), minlength=n)
    return torch.bincount(at, minlength=n).cpu().numpy()
